# frozen_string_literal: true

# `require "snug/prometheus"` with the gem prometheus-client: gauges snug_heap_live_bytes and so on in its registry, read when
# Prometheus asks. They are of the process that answers, with its process ID as a label, and absent where snug is not active;
# `snug exporter` has those of all processes.
require "prometheus/client"
require "prometheus/client/gauge"
require "snug/metrics"

module Snug
  # A gauge without a value of its own.
  class PrometheusGauge < ::Prometheus::Client::Gauge
    # `field` is one of Snug.stats.
    def initialize(name, field, docstring)
      @field = field
      super(name, docstring: docstring)
    end

    def type
      :gauge
    end

    # The client keeps the label pid for its own gauges, and calls it that where each process has a value.
    def values
      Snug.active? ? { { pid: Process.pid.to_s } => Snug.stats.fetch(@field) } : {}
    end
  end

  METRICS.each do |name, field, docstring|
    ::Prometheus::Client.registry.register(PrometheusGauge.new(:"snug_#{name}_bytes", field, docstring))
  end
end
