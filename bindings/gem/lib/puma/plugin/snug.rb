# frozen_string_literal: true

# `plugin :snug` in config/puma.rb. With workers and preload_app! it makes the heap ready before workers are forked. A worker,
# or Puma without workers, that has no request for a while collects garbage, and under snug gives free memory back.
require "puma/plugin"
require "snug/idle"

Puma::Plugin.create do
  def config(configuration)
    configuration.before_fork { Snug.harmless { Snug.prepare_fork } }
    idle = Snug::Idle.new
    # Called with Puma's lock held, when the last request has ended: others would wait for what is done here.
    configuration.out_of_band do
      server = Puma::Server.current
      requests = server.requests_count
      idle.ended { server.requests_count == requests && server.backlog.zero? && server.pool_capacity == server.max_threads }
    end
  end
end
