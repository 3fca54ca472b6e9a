# frozen_string_literal: true

# `gem "snug", require: %w[snug snug/solid_queue]` in the Gemfile, or `require "snug/solid_queue"`: the supervisor of Solid
# Queue makes its heap ready before it forks its workers, and a worker that has no job for a while collects garbage, as with
# snug/active_job.
require "snug/active_job"
require "snug/warm_up"

ActiveSupport.on_load(:solid_queue) do
  SolidQueue.on_start do
    Snug.harmless { Snug::WarmUp.run }
    Snug::Hooks.before_fork
  end
end
