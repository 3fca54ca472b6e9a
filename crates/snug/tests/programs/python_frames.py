# Prints "ready" and waits for a line. Then it allocates 8 MB in many kinds of code, prints as JSON which stacks the
# interpreter itself names there, a list of stacks, innermost first, of [function, file, line], and waits again.
import asyncio
import contextlib
import functools
import json
import sys
import threading

SIZE = 8_000_000
kept = []


def stack():
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        frames.append([frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames


def function():
    kept.append((stack(), bytearray(SIZE)))


class Cart:
    def add(self):
        kept.append((stack(), bytearray(SIZE)))

    @classmethod
    def make(cls):
        cls().add()

    @property
    def total(self):
        return self.add()

    def __enter__(self):
        self.add()

    def __exit__(self, *_):
        self.add()


def recursive(depth):
    if depth > 0:
        recursive(depth - 1)
    else:
        kept.append((stack(), bytearray(SIZE)))


def generator():
    for _ in range(2):
        yield kept.append((stack(), bytearray(SIZE)))


def many_lines():
    total = 0
    if total == 0 and sum(
            [1,
             2,
             3]) == 6:
        total = max(
            1,
            2 if kept.append((
                stack(), bytearray(SIZE))) else 3)
    return total


def ünïcode_日本_𠀀():
    kept.append((stack(), bytearray(SIZE)))


def raises():
    try:
        raise ValueError
    except ValueError:
        kept.append((stack(), bytearray(SIZE)))
    finally:
        kept.append((stack(), bytearray(SIZE)))


async def coroutine():
    await asyncio.sleep(0)
    kept.append((stack(), bytearray(SIZE)))


@contextlib.contextmanager
def managed():
    kept.append((stack(), bytearray(SIZE)))
    yield


def closure():
    def inner(number):
        kept.append((stack(), bytearray(SIZE)))
        return number
    return inner


print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    bytearray(SIZE)  # the setting that was changed meanwhile is seen at a slow call
function()
Cart.make()
total = Cart().total
with Cart():
    pass
with managed():
    function()
recursive(40)
list(generator())
[function() for _ in range(2)]
(lambda: kept.append((stack(), bytearray(SIZE))))()
many_lines()
ünïcode_日本_𠀀()
raises()
asyncio.run(coroutine())
sorted([3, 1], key=closure())
functools.partial(function)()
exec(compile("\n" * 500 + "kept.append((stack(), bytearray(SIZE)))", "<a string>", "exec"))
long = "def long():\n" + "    x = [1, 2, 3]\n" * 3000 + "    kept.append((stack(), bytearray(SIZE)))\n    y = 1\n"
exec(compile(long, "/srv/" + "longest-folder/" * 40 + "long.py", "exec"))
long()
thread = threading.Thread(target=function)
thread.start()
thread.join()
print(json.dumps([frames for frames, _ in kept]), flush=True)
sys.stdin.readline()
