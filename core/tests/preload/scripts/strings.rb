# Strings that grow by realloc from bytes to hundreds of megabytes, are cut, shared, packed.
# usage: strings.rb SCALE
require 'digest'

scale = Integer(ARGV[0])

grown = +''
total = 0
(200_000 * scale).times do |i|
  piece = 'p' * (i % 97)
  grown << piece
  total += piece.size
end
abort "grew to #{grown.size} instead of #{total}" unless grown.size == total && grown.count('p') == total

# Sizes around each boundary of an allocator: powers of two, pages, a megabyte; doubled as Ruby does.
(3..25).each do |shift|
  (-17..17).step(scale > 1 ? 1 : 4) do |offset|
    size = (1 << shift) + offset
    next if size <= 0
    text = 'a' * size
    text << 'b'
    abort "a string of #{size} bytes lost its end" unless text.bytesize == size + 1 && text[-2..] == 'ab'
    text.replace(text[0, size / 2])
    abort "a string of #{size} bytes was cut wrongly" unless text.bytesize == size / 2
  end
end

big = 'z' * (100 << 20)
shared = big[50 << 20..]
copy = shared.dup << 'end'
big = nil
GC.start
abort 'a shared string changed' unless copy.size == (50 << 20) + 3 && shared.count('z') == 50 << 20

lines = Array.new(50_000) { |i| "line #{i} #{'ü' * (i % 30)}" }
text = lines.join("\n")
abort 'encodings changed the text' unless text.encode('UTF-16').encode('UTF-8') == text
abort 'split lost lines' unless text.split("\n") == lines
abort 'gsub' unless text.gsub(/line (\d+)/) { "<#{$1}>" }.scan(/<\d+>/).size == 50_000
abort 'pack' unless lines.map(&:bytesize).pack('N*').unpack('N*') == lines.map(&:bytesize)
abort 'symbols' unless lines.first(20_000).map(&:to_sym).uniq.size == 20_000
abort 'integers' unless (3**100_000).to_s.size == 47_713 && Integer((3**20_000).to_s) == 3**20_000
abort 'format' unless format('%<a>0100000d', a: 7).size == 100_000
array = Array.new(2_000_000) { |i| i }
array.concat(array).shift(1_000_000)
abort 'arrays' unless array.size == 3_000_000 && array.first == 1_000_000 && array.pack('L*').bytesize == 12_000_000
pieces = Digest::SHA256.new.tap { |digest| 30.times { digest << 'q' * (1 << 20) } }
abort 'digest' unless Digest::SHA256.hexdigest('q' * (30 << 20)) == pieces.hexdigest
puts 'strings ok'
