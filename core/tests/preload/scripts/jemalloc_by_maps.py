"""jemalloc's numbers, found as Synapse does: the library that this process has mapped under its name, by ctypes."""

import ctypes
import json
import re

with open("/proc/self/maps") as maps:
    path = next(found.group(1) for found in re.finditer(r"(/\S*/libjemalloc\S*)", maps.read()))
library = ctypes.CDLL(path)


def refresh():
    epoch = ctypes.c_size_t(1)
    assert library.mallctl(b"epoch", None, None, ctypes.byref(epoch), ctypes.sizeof(epoch)) == 0


def number(name):
    value = ctypes.c_size_t(0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    assert library.mallctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0, name
    return value.value


version, size = ctypes.c_char_p(), ctypes.c_size_t(8)
assert library.mallctl(b"version", ctypes.byref(version), ctypes.byref(size), None, ctypes.c_size_t(0)) == 0
refresh()
before = number("stats.allocated")
kept = [bytes(20_000) for _ in range(1000)]
refresh()
names = ("allocated", "active", "metadata", "resident", "mapped", "retained")
print(json.dumps({"version": version.value.decode(), "grown": number("stats.allocated") - before,
                  **{name: number(f"stats.{name}") for name in names}}))
