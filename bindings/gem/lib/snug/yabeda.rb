# frozen_string_literal: true

# `require "snug/yabeda"` with the gem yabeda: gauges of the group snug, which adapters call snug_heap_live_bytes and so on, set
# whenever yabeda collects, and left alone where snug is not active.
require "yabeda"
require "snug/metrics"

Yabeda.configure do
  group :snug do
    Snug::METRICS.each { |name, _, docstring| gauge name, comment: docstring, unit: :bytes, aggregation: :sum }
  end

  collect do
    if Snug.active?
      stats = Snug.stats
      Snug::METRICS.each { |name, field, _| Yabeda.snug.public_send(name).set({}, stats.fetch(field)) }
    end
  end
end
