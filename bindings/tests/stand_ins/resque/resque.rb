# frozen_string_literal: true

# Stands in for Resque in tests: its queues are files in a folder, and its worker calls hooks when Resque 2 and 3 call them, in
# the same processes.
require "json"

module Resque
  HOOKS = Hash.new { |hooks, name| hooks[name] = [] }
  FOLDER = ENV.fetch("QUEUE_FOLDER")

  %i[before_first_fork before_fork after_fork queue_empty worker_exit].each do |name|
    define_singleton_method(name) { |&block| block ? HOOKS[name] << block : HOOKS[name] }
  end

  def self.enqueue(job, *arguments)
    path = "#{FOLDER}/#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)}"
    File.write("#{path}.new", JSON.generate([job.name, arguments]))
    File.rename("#{path}.new", "#{path}.job")
  end

  class Worker
    def initialize(_queue)
      @idle = nil
    end

    def work(interval)
      run_hook(:before_first_fork)
      loop do
        path = Dir["#{FOLDER}/*.job"].min
        path ? work_on(path) : rest(interval)
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- a hook that raises ends the worker
      warn "Failed to start worker : #{e.inspect}"
    end

    private

    def work_on(path)
      name, arguments = JSON.parse(File.read(path))
      File.delete(path)
      @idle = false
      return Object.const_get(name).perform(*arguments) if ENV["FORK_PER_JOB"] == "false"

      run_hook(:before_fork)
      Process.wait(fork { run_hook(:after_fork) || Object.const_get(name).perform(*arguments) })
    end

    def rest(interval)
      run_hook(:queue_empty) unless @idle
      @idle = true
      sleep(interval)
    end

    def run_hook(name)
      HOOKS[name].each(&:call)
      nil
    end
  end
end
