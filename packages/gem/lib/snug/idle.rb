# frozen_string_literal: true

require "snug"

module Snug
  # Collects garbage, and under snug gives free memory back, in the moments in which this process has nothing to do: when
  # the last request or job has ended SNUG_IDLE_SECONDS ago (2; 0: never), none has begun since, and the last collection
  # is SNUG_COLLECT_SECONDS ago (30). A thread does it, which the first end starts in each process; what begins
  # during a collection waits for the rest of it. Nothing here raises into the server: what goes wrong is said once.
  class Idle
    def initialize
      @idle_seconds = setting("SNUG_IDLE_SECONDS", 2)
      @collect_seconds = setting("SNUG_COLLECT_SECONDS", 30)
      @lock = Mutex.new
      @running = 0
      @ended = Queue.new
    end

    # Runs a job, whose end may begin an idle moment. Returns what the block returns.
    def work
      @lock.synchronize { @running += 1 }
      yield
    ensure
      @lock.synchronize { @running -= 1 }
      ended { @running.zero? }
    end

    # The last request has ended. The block says later whether none runs, and may be called in another thread.
    def ended(&quiet)
      return if @idle_seconds.zero?

      @quiet_since = now
      @quiet = quiet
      @ended << true if @ended.empty?
      # A forked process has no thread yet, or a dead one.
      @thread = Thread.new { watch } unless @thread&.alive?
    rescue StandardError => e
      say(e)
    end

    private

    def watch
      Thread.current.name = "snug-idle"
      loop do
        @ended.pop
        wait_for_quiet
        @ended.clear
        @collected_at = now
        collect
      end
    end

    # Returns when a collection may begin. Looks no more often than once per idle time, if requests follow each other.
    def wait_for_quiet
      loop do
        due = @quiet_since + @idle_seconds
        due = [due, @collected_at + @collect_seconds].max if @collected_at
        if due > now
          sleep(due - now)
        elsif @quiet.call
          return
        else
          sleep(@idle_seconds)
        end
      end
    end

    def collect
      GC.start
      Snug.purge if Snug.active?
    rescue StandardError => e
      say(e)
    end

    def say(error)
      return if @said

      @said = true
      warn "snug: a hook failed, and the server goes on: #{error.class}: #{error.message}"
    end

    def setting(name, default)
      text = ENV.fetch(name, "")
      value = text.empty? ? default : Float(text, exception: false)
      return value if value && value >= 0

      warn "snug: #{name}=#{text} is not a number from 0 up, so it stays #{default}"
      default
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
