# frozen_string_literal: true

# Hooks for Sidekiq, which `snug run`, `gem "snug"` in a Gemfile under snug, or `require "snug/sidekiq"` under any allocator switch
# on: a process that has no job for a while collects garbage, and under snug gives free memory back. See Snug::Idle.
# What SNUG_WARM_UP names is done before the first job.
require "sidekiq"
require "snug/idle"
require "snug/warm_up"

module Snug
  # Tells jobs that run from idle moments.
  class SidekiqMiddleware
    IDLE = Idle.new

    def call(_job, _message, _queue, &block)
      IDLE.work(&block)
    end
  end
end

Sidekiq.configure_server do |config|
  # First, so that a job of which another middleware does something has not ended before that has.
  config.server_middleware { |chain| chain.prepend Snug::SidekiqMiddleware }
  config.on(:startup) { Snug.harmless { Snug::WarmUp.run } }
end
