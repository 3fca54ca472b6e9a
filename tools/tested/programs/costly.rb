KEPT = Array.new(400) { "x" * 20_000 }
