# frozen_string_literal: true

# Stands in for prometheus-client in tests: a registry, and gauges as version 4 makes them.
module Prometheus
  module Client
    class Gauge
      attr_reader :name, :docstring

      def initialize(name, docstring:, labels: [])
        raise ArgumentError, "metric name must be a symbol" unless name.is_a?(Symbol)
        raise "pid is reserved" if labels.include?(:pid)

        @name = name
        @docstring = docstring
        @labels = labels
      end
    end

    class Registry
      attr_reader :metrics

      def initialize
        @metrics = []
      end

      def register(metric)
        raise "#{metric.name} has already been registered" if @metrics.any? { |other| other.name == metric.name }

        @metrics << metric
      end
    end

    def self.registry
      @registry ||= Registry.new
    end
  end
end
