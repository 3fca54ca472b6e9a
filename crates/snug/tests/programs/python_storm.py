# All that could move or free what a sample reads, in several threads and in forked children, for sys.argv[1] seconds.
# Prints "ready" first and "ended" last.
import asyncio
import gc
import os
import sys
import threading
import time
import weakref

END = time.monotonic() + float(sys.argv[1])


class Node:
    """Its finalizer allocates, while the frame that held it ends."""
    def __init__(self, other=None):
        self.other, self.data = other or self, bytearray(700)

    def __del__(self):
        self.data = bytearray(900)


def generator():
    node = Node()
    try:
        yield bytearray(600)
        yield node
    finally:
        bytearray(5000)


def ends_in_the_middle():
    return next(generator())  # which is closed then


def code_that_ends():
    scope = {}
    exec(compile("def made(x):\n    return [bytearray(700) for _ in range(x)]\n", "<made>", "exec"), scope)
    seen = []
    weakref.finalize(scope["made"], lambda: seen.append(bytearray(800)))
    weakref.ref(scope["made"].__code__, lambda _: seen.append(bytearray(800)))
    return len(scope.pop("made")(3))


def deep(depth):
    try:
        return deep(depth - 1) if depth else bytearray(600) + ends_in_the_middle()
    except RecursionError:
        return bytearray(600)


async def task(depth):
    await asyncio.sleep(0)
    return bytearray(900) if depth == 0 else await task(depth - 1)


async def tasks():
    return await asyncio.gather(*(task(depth) for depth in range(10)))


def errors():
    try:
        {}["no key"]
    except KeyError as error:
        return str(error.__traceback__.tb_frame.f_locals)[:10] + "x" * 2000


def once():
    ends_in_the_middle()
    code_that_ends()
    deep(1000)
    asyncio.run(tasks())
    errors()
    Node(Node())
    hash(str(sorted(range(300), key=lambda x: bytearray(600) and -x)))


def work():
    while time.monotonic() < END:
        once()


def collect():
    while time.monotonic() < END:
        gc.collect()
        time.sleep(0.005)


sys.setrecursionlimit(300)
print("ready", flush=True)
threads = [threading.Thread(target=target) for target in [work, work, work, collect]]
for thread in threads:
    thread.start()
while time.monotonic() < END:
    child = os.fork()
    if child == 0:
        once()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status != 0:
        sys.exit(f"a child ended with {status}")
    time.sleep(0.02)
for thread in threads:
    thread.join()
print("ended", flush=True)
