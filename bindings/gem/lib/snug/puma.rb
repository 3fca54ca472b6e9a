# frozen_string_literal: true

# Hooks for Puma, which `snug run`, `gem "snug"` in a Gemfile under snug, or `plugin :snug` in config/puma.rb switch on.
#
# With workers and preload_app! the application is warmed up, if asked for, before the hooks before_fork of the configuration, and
# the heap made ready after them. A worker, or Puma without workers, that has no request for a while collects garbage, and
# under snug gives free memory back.
require "puma"
require "puma/cluster"
require "puma/server"
require "snug/idle"
require "snug/warm_up"

module Snug
  module Puma
    # In the process that forks.
    module Cluster
      # Called for preload_app! alone.
      def load_and_bind
        super
        Snug.harmless { WarmUp.run { app } }
      end

      # Called again and again, to replace workers.
      def spawn_workers
        Hooks.before_fork
        super
      end
    end

    # In each process that serves.
    module Server
      def run(...)
        Snug.harmless { Puma.collect_when_idle(self, @options) }
        super
      end
    end

    def self.collect_when_idle(server, options)
      idle = Idle.new
      # Called with Puma's lock held, when the last request has ended: others would wait for what is done here.
      options[:out_of_band] = [*options[:out_of_band], lambda { |*|
        requests = server.requests_count
        idle.ended { server.requests_count == requests && server.backlog.zero? && server.pool_capacity == server.max_threads }
      }]
    end

    ::Puma::Cluster.prepend(Cluster)
    ::Puma::Server.prepend(Server)
  end
end
