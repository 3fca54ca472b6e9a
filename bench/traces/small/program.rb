# frozen_string_literal: true

# What the committed trace is a recording of: threads that build strings, arrays and hashes, keep some of them, and
# end; new threads take their place. Most blocks are freed by the garbage collector on another thread.

srand(1)
kept = Queue.new

7.times do |generation|
  workers = Array.new(4) do |worker|
    Thread.new do
      40.times do |round|
        lines = Array.new(20) { "#{generation}:#{worker}:#{round} " + "x" * rand(120) }
        buffer = String.new
        lines.each { |line| buffer << line << "\n" }
        index = lines.each_with_index.to_h { |line, number| [line[0, 24], number] }
        kept << [buffer, index] if (round % 8).zero?
        kept.pop if kept.size > 200
        sleep 0.001 if (round % 20).zero?
      end
    end
  end
  workers.each(&:join)
  GC.start if (generation % 4).zero?
end
