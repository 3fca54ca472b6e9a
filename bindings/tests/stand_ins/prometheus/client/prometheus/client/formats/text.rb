# frozen_string_literal: true

# Part of what stands in for prometheus-client: the text that Prometheus reads.
module Prometheus
  module Client
    module Formats
      module Text
        def self.marshal(registry)
          registry.metrics.flat_map { |metric|
            ["# TYPE #{metric.name} #{metric.type}", "# HELP #{metric.name} #{metric.docstring}",
             *metric.values.map { |labels, value| "#{metric.name}{#{labels.map { |name, text| "#{name}=\"#{text}\"" }.join(',')}} #{value}" }]
          }.join("\n")
        end
      end
    end
  end
end
