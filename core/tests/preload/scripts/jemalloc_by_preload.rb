# jemalloc's numbers as yabeda-jemalloc reads them: only if LD_PRELOAD names it, by Fiddle and the process's own symbols.
require "fiddle"
require "json"

abort "no jemalloc" unless ENV["LD_PRELOAD"].to_s.include?("libjemalloc.so.2")
types = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T]
MALLCTL = Fiddle::Function.new(Fiddle::Handle::DEFAULT["mallctl"], types, Fiddle::TYPE_INT)

def refresh
  raise "epoch" unless MALLCTL.call("epoch", nil, nil, [1].pack("Q"), 8).zero?
end

def read(name)
  value = "\0" * 8
  size = [8].pack("Q")
  raise name unless MALLCTL.call(name, value, size, nil, 0).zero?
  value.unpack1("Q")
end

refresh
before = read("stats.allocated")
kept = Array.new(1000) { "x" * 20_000 }
refresh
numbers = %w[allocated active metadata resident mapped retained].to_h { |name| [name, read("stats.#{name}")] }
version = Fiddle::Pointer.new(read("version")).to_s
puts JSON.generate({ version: version, grown: numbers["allocated"] - before }.merge(numbers)) if kept.size == 1000
