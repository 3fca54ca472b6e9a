# Runs under `ulimit -v` or `-d`: asks for more than there is, must get MemoryError each time, and must go on well.
import threading

kept = [b"x" * (i % 3000) for i in range(20_000)]
refused = 0
for size_bytes in (1 << 40, 1 << 33, 3 << 30, 2 << 30):
    try:
        bytearray(size_bytes)
    except MemoryError:
        refused += 1
assert refused == 4, f"only {refused} of 4 impossible requests were refused"

blocks = []
try:
    while len(blocks) < 10_000:  # 10 GB
        blocks.append(bytearray(1 << 20))
    raise SystemExit("the limit did not hold")
except MemoryError:
    held = len(blocks)
    del blocks
assert held >= 20, f"only {held} MB could be used"

small = []
try:
    while len(small) < 100_000_000:
        small.append(bytes(600) + b"%d" % len(small))
    raise SystemExit("the limit did not hold")
except MemoryError:
    del small

again = [bytearray(1 << 20) for _ in range(held // 2)]
assert len(again) == held // 2
del again
threading.stack_size(1 << 20)
done = []
threads = [threading.Thread(target=lambda: done.append(sum(len(b"y" * i) for i in range(3000)))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert done == [sum(range(3000))] * 4
assert sum(map(len, kept)) == sum(i % 3000 for i in range(20_000))
