# Many threads that share and outlive each other's objects: a free on another thread is the ordinary case.
# usage: threads.rb SCALE
require 'timeout'

scale = Integer(ARGV[0])
queue = SizedQueue.new(50)
kept = Queue.new

producers = Array.new(8) do |number|
  Thread.new do
    random = Random.new(number)
    (400 * scale).times { |i| queue << [number, i, (number * 1000 + i).to_s * random.rand(1..200)] }
  end
end
consumers = Array.new(8) do
  Thread.new do
    while (item = queue.pop)
      number, i, text = item
      abort 'a string changed on its way' unless text.start_with?((number * 1000 + i).to_s)
      kept << text if (i % 40).zero?
    end
  end
end
producers.each(&:join)
consumers.size.times { queue << nil }
consumers.each(&:join)
abort "#{kept.size} strings were kept" unless kept.size == 8 * 10 * scale

# Short threads, one after the other and many at once.
(300 * scale).times { |i| abort 'wrong value' unless Thread.new { "short #{i}" * 20 }.value.end_with?("short #{i}") }
(4 * scale).times do
  threads = Array.new(100) { |i| Thread.new { Array.new(50) { |n| "t#{i} #{n}" * 5 }.join.size } }
  abort 'threads disagree' unless threads.map(&:value).sum > 100_000
end

# Threads that die in the middle of their work.
killed = Array.new(20) { Thread.new { loop { Array.new(100) { 'x' * 500 } } } }
sleep 0.1
killed.each(&:kill).each(&:join)
begin
  Timeout.timeout(0.2) { loop { Array.new(1000) { |i| i.to_s * 10 } } }
rescue Timeout::Error
  timed_out = true
end
abort 'Timeout did not interrupt' unless timed_out

# Fibers have stacks and machine contexts of their own.
fibers = Array.new(1000) { |i| Fiber.new { 3.times { |n| Fiber.yield "fiber #{i} #{n}" * 10 } } }
3.times do |n|
  fibers.each_with_index { |fiber, i| abort 'wrong fiber' unless fiber.resume.start_with?("fiber #{i} #{n}") }
end
puts 'threads ok'
