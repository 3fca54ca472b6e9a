# frozen_string_literal: true

require "json"
require "snug"

# What the hooks of servers share. Nothing here raises into the server: what goes wrong is said once in each process. Settings
# are variables of the environment:
#
#   SNUG_HOOKS=0           no hooks by themselves; those that a configuration names stay
#   SNUG_WARM_UP           requests, jobs or methods before workers are forked (Snug::WarmUp)
#   SNUG_IDLE_SECONDS, SNUG_COLLECT_SECONDS                            see Snug::Idle
module Snug
  # Runs what a hook does, and returns what that returns.
  def self.harmless
    yield
  rescue StandardError, NotImplementedError => e
    return if @said_in == Process.pid

    @said_in = Process.pid
    warn "snug: a hook failed, and the server goes on: #{e.class}: #{e.message}"
  end

  # The number that a variable holds; the default, and a warning, if it holds something else.
  def self.setting(name, default)
    text = ENV.fetch(name, "")
    value = text.empty? ? default : Float(text, exception: false)
    return value if value && value >= 0

    warn "snug: #{name}=#{text} is not a number from 0 up, so it stays #{default}"
    default
  end

  # One line on stderr, unless SNUG_QUIET is set.
  def self.say(text)
    warn "snug: #{text}" unless ENV["SNUG_QUIET"]
  end

  # The heap made ready for forks, once: what is made ready then, workers share.
  module Hooks
    # The beginning of a page of shared memory (/dev/zero in maps), in which other processes can read what state says, as JSON.
    # Workers inherit it.
    PAGE_BEGINS = "snug hooks 1\n"
    PAGE_BYTES = 4096
    READ_AND_WRITE = 3
    SHARED_AND_ANONYMOUS = 0x21
    # Marking writes empty call caches over themselves until 3.4 (ruby#10899).
    OLD = RUBY_VERSION.to_f < 3.4 ? "; with Ruby 3.4 or later a worker's first collection copies little of it" : ""
    private_constant :OLD, :PAGE_BYTES, :READ_AND_WRITE, :SHARED_AND_ANONYMOUS

    class << self
      # Before workers are forked: the first time makes the heap ready, says so, and leaves word for other processes.
      def before_fork
        Snug.harmless do
          next if @shared

          began = now
          @shared = { pid: Process.pid, immortal: false, reason: "Ruby does not count references", objects: 0, shared_bytes: 0,
                      seconds: 0 }
          Snug.prepare_fork
          seconds = (now - began).round(3)
          @shared.update(shared_bytes: rolled_up("Anonymous"), seconds: seconds)
          publish(JSON.generate(@shared))
          Snug.say(format("workers share %<mb>.0f MB (%<seconds>.1f s)%<old>s", mb: @shared[:shared_bytes] / 1e6, seconds: seconds, old: OLD))
        end
      end

      # What the workers of this process share, or what this worker shares with the others, as a Hash; nil before a fork.
      # shared_bytes is the anonymous memory of that moment, and copied_bytes, in a worker, an estimate of how much of it the
      # worker has copied since.
      def state
        return unless @shared

        copied = @shared[:pid] == Process.pid ? nil : [0, @shared[:shared_bytes] - rolled_up("Shared_Dirty")].max
        { **@shared, copied_bytes: copied }
      end

      private

      def rolled_up(name)
        File.read("/proc/self/smaps_rollup")[/^#{name}: +(\d+)/, 1].to_i << 10
      end

      def publish(text)
        kinds = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T, *[Fiddle::TYPE_INT] * 3, Fiddle::TYPE_LONG]
        map = Fiddle::Function.new(Fiddle.dlopen(nil)["mmap"], kinds, Fiddle::TYPE_VOIDP)
        @page = map.call(nil, PAGE_BYTES, READ_AND_WRITE, SHARED_AND_ANONYMOUS, -1, 0)
        raise "no page of shared memory" if @page.to_i == 2**(8 * Fiddle::SIZEOF_VOIDP) - 1

        @page[0, PAGE_BEGINS.bytesize + text.bytesize] = PAGE_BEGINS + text
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
