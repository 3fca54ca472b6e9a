# Moments at which Ruby has no frames, or is about to have none: threads, fibers and ractors end, processes fork, collect
# and end, ARGV[0] times. Prints "ended" last.
require "openssl"

def work = Array.new(50) { "x" * 700 }.map(&:upcase).join.hash

def threads
  4.times.map { Thread.new { work; Thread.pass; Thread.current[:kept] = work } }.each(&:join)
  Thread.new { Thread.exit }.join
  killed = Thread.new { loop { work } }
  Thread.pass
  killed.kill.join
end

def fibers
  20.times.map { Fiber.new { Fiber.yield work; work } }.each(&:resume).each_slice(2) { |one, _| one.resume }
  Enumerator.new { |y| loop { y << work } }.tap { |e| 3.times { e.next } }
end

def ractors = 2.times.map { Ractor.new { Array.new(50) { "x" * 700 }.size } }.each(&:take)

def child(number)
  at_exit { work }
  case number % 5
  when 0 then work
  when 1 then exit!
  when 2 then abort
  when 3 then raise SystemExit
  when 4 then exec("true")
  end
end

def forks(number)
  inner = -> { Process.wait(fork { child(number) }) }
  number.even? ? inner.call : Thread.new(&inner).join
  raise "a child died by #{$?}" if $?.signaled?
  system("true") && `echo`
end

def finalizers
  20.times { ObjectSpace.define_finalizer(Object.new, ->(_) { work }) }
  GC.start
  GC.compact if GC.respond_to?(:compact)
end

$stderr.reopen(File::NULL) # of abort
ARGV[0].to_i.times do |number|
  threads
  fibers
  ractors
  finalizers
  4.times { |more| forks(number * 4 + more) }
end
at_exit { work; puts "ended" }
