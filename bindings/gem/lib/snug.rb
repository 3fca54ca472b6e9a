# frozen_string_literal: true

require "fiddle"

# snug: a malloc(3) that gives memory back to the kernel.
#
# An allocator must be there when a program starts: `bundle exec snug run puma` starts a program under it. Loading this switches
# hooks on in Puma and Sidekiq then (snug/auto), and changes nothing under other allocators. In such a program:
#
#   Snug.active?                        # => true
#   Snug.stats[:live_requested_bytes]   # => 3506176
#   Snug.purge                          # => 135168, bytes given back to the kernel
module Snug
  # This process has another allocator than snug.
  class NotActive < StandardError
    def initialize
      super("snug is not this process's allocator; #{Snug.advice}")
    end
  end

  # The fields of struct snug_stats in snug.h, each of 64 bits.
  FIELDS = %i[live_requested_bytes live_allocated_bytes cached_bytes slab_free_bytes dirty_bytes metadata_bytes
              resident_bytes mapped_bytes purged_bytes caches arenas].freeze
  private_constant :FIELDS

  class << self
    # The path of libsnug.so, for LD_PRELOAD.
    def library_path
      File.expand_path("snug/libsnug.so", __dir__)
    end

    # The path of the tool, or nil where the gem was compiled at its installation and has none.
    def tool_path
      path = File.expand_path("snug/snug", __dir__)
      path if File.exist?(path)
    end

    # Whether malloc of this process is snug's.
    def active?
      !function("snug_version").nil?
    end

    # The version of the snug that is active, as "0.1.0". Raises NotActive.
    def version
      call("snug_version", [], Fiddle::TYPE_VOIDP).to_s
    end

    # A moment's account of the heap: a Hash of the fields of struct snug_stats, in bytes, and the counts of caches and
    # arenas. Raises NotActive.
    def stats
      filled = "\0".b * (8 * FIELDS.size)
      call("snug_stats", [Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT, filled, filled.bytesize)
      FIELDS.zip(filled.unpack("Q*")).to_h
    end

    # Gives every free page back to the kernel. Returns the bytes given back. Raises NotActive.
    def purge
      call("snug_purge", [], Fiddle::TYPE_SIZE_T)
    end

    # Makes the heap ready for fork: what is garbage goes, what lives is moved together, so that workers share it for
    # longer. By Process.warmup where Ruby has it (3.3); costs a second or so in a large application.
    def prepare_fork
      if Process.respond_to?(:warmup)
        Process.warmup
      else
        # Four collections make what lives old.
        4.times { GC.start }
        GC.compact if GC.respond_to?(:compact)
        2.times { GC.start }
      end
      purge if active?
      nil
    end

    # What to do where snug is not active.
    def advice
      "start it by `bundle exec snug run PROGRAM`, or with LD_PRELOAD=#{library_path}"
    end

    private

    # Among what is loaded already: opening the library here would bring a second, unused heap.
    def function(name)
      Fiddle.dlopen(nil)[name]
    rescue Fiddle::DLError
      nil
    end

    def call(name, arguments, result, *values)
      found = function(name) or raise NotActive
      Fiddle::Function.new(found, arguments, result).call(*values)
    end
  end
end

require "snug/railtie" if defined?(Rails::Railtie)
require "snug/auto" if Snug.active?
