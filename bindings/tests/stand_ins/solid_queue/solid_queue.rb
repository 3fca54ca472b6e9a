# frozen_string_literal: true

# Stands in for Solid Queue in tests: its supervisor calls what on_start was given, then forks its worker; and the hooks of its
# loading run when it has been loaded.
require "active_support/lazy_load_hooks"

module SolidQueue
  STARTS = [] # rubocop:disable Style/MutableConstant

  def self.on_start(&block)
    STARTS << block
  end

  class Supervisor
    def start(&worker)
      STARTS.each { |block| block.call(self) }
      Process.wait(fork(&worker))
    end
  end

  ActiveSupport.run_load_hooks(:solid_queue, self)
end
