KEPT = []

def keep
  KEPT << "x" * 100_000
end

puts "ready"
$stdout.flush
loop do
  keep
  sleep 0.02
end
