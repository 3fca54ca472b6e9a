# frozen_string_literal: true

# `gem "snug", require: %w[snug snug/active_job]` in the Gemfile, or `require "snug/active_job"`: a process in which Good Job,
# Solid Queue or another backend runs the jobs of Active Job, and which has none for a while, collects garbage, and under snug
# gives free memory back. See Snug::Idle.
require "active_support/lazy_load_hooks"
require "snug/idle"

module Snug
  # Tells jobs that run from idle moments.
  module ActiveJob
    IDLE = Idle.new
    private_constant :IDLE

    # A job that never was in a queue runs within something else: a request, another job.
    def self.around(job, &block)
      job.enqueued_at ? IDLE.work(&block) : yield
    end
  end
end

ActiveSupport.on_load(:active_job) do
  # The first that is declared is the outermost.
  around_perform(prepend: true) { |job, block| Snug::ActiveJob.around(job) { block.call } }
end
