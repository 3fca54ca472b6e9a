# frozen_string_literal: true

# Stands in for yabeda in tests: groups of gauges, and what is called when metrics are collected.
module Yabeda
  Gauge = Struct.new(:group, :name, :unit, :value, keyword_init: true) do
    def set(_tags, value)
      self.value = value
    end

    def get
      value
    end
  end

  class << self
    def configure(&block)
      instance_exec(&block)
    end

    def group(name)
      @group = name
      yield
    end

    def gauge(name, unit:, comment:, aggregation:)
      raise ArgumentError, "no comment" if comment.empty?
      raise ArgumentError, "no aggregation #{aggregation}" unless %i[sum max min most_recent all].include?(aggregation)

      metrics["#{@group}_#{name}"] = made = Gauge.new(group: @group, name: name, unit: unit)
      groups[@group].define_singleton_method(name) { made }
    end

    def collect(&block)
      collectors << block
    end

    def collectors
      @collectors ||= []
    end

    def metrics
      @metrics ||= {}
    end

    def groups
      @groups ||= Hash.new { |found, name| found[name] = Object.new }
    end

    def snug
      groups.fetch(:snug)
    end
  end
end
