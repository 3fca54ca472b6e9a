# frozen_string_literal: true

# `gem "snug", require: %w[snug snug/resque]` in the Gemfile, or `require "snug/resque"`: a Resque worker makes its heap ready
# before it forks for its first job. When it finds its queues empty, and so has nothing to do, it collects garbage, and
# under snug gives free memory back; that matters most with FORK_PER_JOB=false. See Snug::Idle.
require "resque"
require "snug/idle"
require "snug/warm_up"

module Snug
  # Resque calls its hooks in the worker's main thread, and ends the worker if one of them raises.
  module Resque
    IDLE = Idle.new
    private_constant :IDLE

    ::Resque.before_first_fork do
      Snug.harmless { WarmUp.run }
      Hooks.before_fork
    end
    # Since Resque 2.0.
    ::Resque.queue_empty { IDLE.pause } if ::Resque.respond_to?(:queue_empty)
  end
end
