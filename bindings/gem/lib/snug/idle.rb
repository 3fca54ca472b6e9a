# frozen_string_literal: true

require "snug/hooks"

module Snug
  # Collects garbage, and under snug gives free memory back, in the moments in which this process has nothing to do: when
  # the last request or job has ended SNUG_IDLE_SECONDS ago (2; 0: never), none has begun since, and the last collection
  # is SNUG_COLLECT_SECONDS ago (30). A thread does it, which the first end starts in each process; what begins
  # during a collection waits for the rest of it. Nothing here raises into the server: what goes wrong is said once.
  #
  # A process may have several, as one that serves requests and runs jobs: it has nothing to do when all of them say so.
  class Idle
    @all = []
    class << self
      attr_reader :all
      attr_accessor :collected_at
    end

    attr_reader :quiet_since

    def initialize
      self.class.all << self
      @idle_seconds = Snug.setting("SNUG_IDLE_SECONDS", 2)
      @collect_seconds = Snug.setting("SNUG_COLLECT_SECONDS", 30)
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

      Snug.harmless do
        @quiet_since = now
        @quiet = quiet
        @ended << true if @ended.empty?
        # A forked process has no thread yet, or a dead one.
        @thread = Thread.new { watch } unless @thread&.alive?
      end
    end

    # For a server with one thread, which calls this between two jobs when no other waits: collects in this thread, unless the
    # last collection was less than SNUG_COLLECT_SECONDS ago.
    def pause
      return if @idle_seconds.zero? || (Idle.collected_at && now < Idle.collected_at + @collect_seconds)

      Idle.collected_at = now
      collect
    end

    # Whether neither a request nor a job of this kind runs.
    def quiet?
      @quiet.nil? || @quiet.call
    end

    private

    def watch
      Thread.current.name = "snug-idle"
      loop do
        @ended.pop
        wait_for_quiet
        @ended.clear
        Idle.collected_at = now
        collect
      end
    end

    # Returns when a collection may begin. Looks no more often than once per idle time, if requests follow each other.
    def wait_for_quiet
      loop do
        due = Idle.all.filter_map(&:quiet_since).max + @idle_seconds
        due = [due, Idle.collected_at + @collect_seconds].max if Idle.collected_at
        left = due - now
        if left.positive?
          sleep(left)
        elsif Idle.all.all?(&:quiet?)
          return
        else
          sleep(@idle_seconds)
        end
      end
    end

    def collect
      Snug.harmless do
        GC.start
        Snug.purge if Snug.active?
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
