# Ractors run Ruby code truly in parallel: the one case where several of its threads call malloc at once.
# usage: ractors.rb SCALE
scale = Integer(ARGV[0])

(20 * scale).times do
  ractors = Array.new(4) do |number|
    Ractor.new(number) do |n|
      words = Hash.new(0)
      20_000.times { |i| words["word #{(i * 7919 + n) % 3001}"] += i }
      kept = Array.new(300) { |i| "#{n} #{i}" * (i % 50) }
      [words.size, words.values.sum, kept.sum(&:size)]
    end
  end
  results = ractors.map(&:take)
  abort "ractors disagree: #{results}" unless results.map { |size, sum, _| [size, sum] }.uniq == [[3001, 199_990_000]]
end

# Messages that are moved change their owner, and so the thread that frees them. Ruby 3.3 changes some strings that it
# moves, under every allocator: there they are copied.
MOVES = !RUBY_VERSION.start_with?('3.3')
worker = Ractor.new do
  while (text = Ractor.receive) != :end
    Ractor.yield(text << '!', move: MOVES)
  end
end
(2000 * scale).times do |i|
  worker.send("moved #{i} " * (i % 300), move: MOVES)
  answer = worker.take
  abort 'a moved string changed' unless answer == "#{"moved #{i} " * (i % 300)}!"
end
worker.send(:end)
worker.take
puts 'ractors ok'
