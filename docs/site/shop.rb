# What the example of a flame graph shows: two things that keep what they are given, and one that does not.
class Cart
  def initialize = @items = []
  def add(count) = count.times { |i| @items << "item #{i} " * 80 }
end

class Sessions
  def initialize = @all = {}
  def open(id) = @all[id] = { token: "s" * 5000, log: Array.new(300) { "l" * 90 } }
end

cart, sessions, id = Cart.new, Sessions.new, 0
puts "ready"
$stdout.flush
loop do
  cart.add(50)
  sessions.open(id += 1)
  Marshal.dump((1..500).map(&:to_s))
  sleep 0.01
end
