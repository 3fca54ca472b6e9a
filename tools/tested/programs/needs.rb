require_relative "costly"

puts KEPT.size
