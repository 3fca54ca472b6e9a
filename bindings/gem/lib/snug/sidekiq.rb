# frozen_string_literal: true

# `gem "snug", require: %w[snug snug/sidekiq]` in the Gemfile, or `require "snug/sidekiq"`: a Sidekiq process that has no
# job for a while collects garbage, and under snug gives free memory back. See Snug::Idle.
require "sidekiq"
require "snug/idle"

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
end
