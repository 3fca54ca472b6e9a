import time

KEPT = []


def keep():
    KEPT.append(bytearray(100_000))


print("ready", flush=True)
while True:
    keep()
    time.sleep(0.02)
