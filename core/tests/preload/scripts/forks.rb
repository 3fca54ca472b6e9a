# Fork while other threads allocate; children allocate, fork again, exec and use threads. usage: forks.rb SCALE
require 'open3'

scale = Integer(ARGV[0])
data = Array.new(20_000) { |i| "entry #{i} " * (i % 20) }
expected = data.sum(&:size)
stop = false
busy = Array.new(4) do
  Thread.new do
    until stop
      Array.new(200) { |i| 'b' * (i * 37 % 3000) }
      sleep 0.001 # else each wait of the main thread costs it a turn of 100 ms
    end
  end
end

def in_child
  reader, writer = IO.pipe
  pid = fork do
    reader.close
    writer.write(yield.to_s)
    writer.close
    exit!(0)
  end
  writer.close
  answer = reader.read
  reader.close
  _, status = Process.wait2(pid)
  abort "a child ended with #{status}" unless status.success?
  answer
end

(30 * scale).times do |round|
  answer = in_child do
    more = Array.new(5000) { |i| 'c' * (i % 400) }
    data.shift(5000)
    GC.start
    GC.compact if round % 10 == 0
    threads = Array.new(3) { |n| Thread.new { Array.new(500) { |i| "#{n}#{i}" * 9 }.sum(&:size) } }
    more.sum(&:size) + threads.sum(&:value) + (round % 5 == 0 ? in_child { data.sum(&:size) }.to_i : 0)
  end
  abort "a child computed #{answer}" unless answer.to_i > 900_000
end

# Children that live on while the parent frees: copy-on-write must keep what they saw.
pipes = Array.new(8) do
  reader, writer = IO.pipe
  go_reader, go_writer = IO.pipe
  pid = fork do
    go_reader.read(1)
    writer.write(data.sum(&:size).to_s)
    writer.close
    exit!(0)
  end
  writer.close
  [pid, reader, go_writer]
end
data = nil
GC.start
Array.new(20_000) { |i| 'overwrite' * (i % 30) }
pipes.each do |pid, reader, go|
  go.write('g')
  abort 'a child saw other data than before the fork' unless reader.read.to_i == expected
  Process.wait(pid)
  abort 'a child failed' unless $?.success?
end

(20 * scale).times do |i|
  output, status = Open3.capture2('cat', stdin_data: "#{i} " * 20_000)
  abort 'cat changed its input' unless status.success? && output == "#{i} " * 20_000
end
abort 'spawn failed' unless Array.new(30) { spawn('true') }.all? { |pid| Process.wait2(pid)[1].success? }
abort 'backquotes failed' unless `ruby -e 'print "x" * 1000000'`.size == 1_000_000
stop = true
busy.each(&:join)
puts 'forks ok'
