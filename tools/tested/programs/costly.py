KEPT = [bytearray(20_000) for _ in range(400)]
