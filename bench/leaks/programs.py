"""Programs with a leak in one line, drawn by a seed: how large its blocks are, how fast it is, how deep the stack, and what
the program does besides. That is garbage of other lines, of which there is more than of the leak and of which some lives
for a while, and caches that fill and then stop.

Each program prints "ready PID" of the process that leaks, and goes on until it is killed.
"""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

MARK = "LEAK"  # stands in the guilty line
PYTHON = "/usr/bin/python3"
OF_RUBY = ("ruby_array", "ruby_closure", "c_extension", "forked_worker")
COLLECTED_RATE = 1e7  # bytes per second: Ruby collects after 16 to 32 MB
BLOCKS_PER_S = 10_000  # of one line at most: more would keep a processor busy


@dataclass
class Variation:
    """What a seed drew. Rates are bytes per second, times seconds."""

    kind: str
    seed: int
    block_bytes: int
    leak_rate: int
    noise: list  # (bytes of a block, rate, how long it lives)
    cache_bytes: int
    cache_block_bytes: int
    cache_rate: int
    depth: int


def draw(kind, seed, watch_s):
    """The variation of this seed, for a watch of so many seconds."""
    chance = random.Random(f"{kind} {seed}")

    def between(low, high):
        return low * (high / low) ** chance.random()

    leak_rate = between(3e5, 3e6)
    # More than the leak, and in Ruby enough for some collections: what no collection has seen can't be told from a leak.
    noise_rate = min(max(leak_rate * between(1.5, 30), COLLECTED_RATE if kind in OF_RUBY else 0), 3e7)
    parts = [chance.random() + 0.1 for _ in range(chance.randint(1, 5))]
    noise = []
    for part in parts:
        size = int(between(1000, 60e3))
        rate = min(int(noise_rate * part / sum(parts)), size * BLOCKS_PER_S)
        noise.append((size, rate, chance.choice([0, 0, between(0.05, 1.0)])))
    # It is full when the watch has begun to look, after a third of it at the latest.
    cache_bytes = int(between(1e5, 2e7))
    fills_s = chance.uniform(0.05, 0.33) * watch_s
    block_bytes = int(between(64, 60e3))
    freed_rate = sum(rate for _, rate, _ in noise)
    leak_rate = int(min(leak_rate, block_bytes * BLOCKS_PER_S, freed_rate / 1.5))
    return Variation(kind, seed, block_bytes, leak_rate, noise, cache_bytes, int(between(100, 30e3)),
                     int(cache_bytes / fills_s), chance.randint(0, 60))


RUBY = """
$begin = Process.clock_gettime(Process::CLOCK_MONOTONIC)
def now; Process.clock_gettime(Process::CLOCK_MONOTONIC) - $begin; end
$cache = {}
def fill_cache(key, bytes)
  $cache[key] = "c" * bytes
end
%(noise)s
%(leak)s
def work(depth)
  return work(depth - 1) if depth > 0
  t = now
  %(pay)s
end
def serve
  STDOUT.write "ready #{$$}\\n"
  STDOUT.flush
  loop { work(%(depth)d); sleep 0.01 }
end
%(serve)s
"""

RUBY_LEAKS = {
    "ruby_array": """
$kept = []
def leak(bytes)
  $kept << "x" * bytes # LEAK
end
""",
    "ruby_closure": """
$handlers = []
def leak(bytes)
  payload = "x" * bytes # LEAK
  $handlers << -> { payload.size } # LEAK, too: it keeps the payload, and may be the larger of the two
end
""",
    "c_extension": """
require %(extension)r
def leak(bytes)
  planted_keep(bytes) # LEAK
end
""",
}

# As a C extension is, by the ABI alone: the headers of Ruby need not be installed.
EXTENSION = """
#include <stdlib.h>
#include <string.h>
typedef unsigned long VALUE;
void rb_define_global_function(const char *name, VALUE (*function)(VALUE, VALUE), int arguments);
long rb_num2long(VALUE);
static void *volatile kept;
static VALUE keep(VALUE self, VALUE bytes) {
  long size = rb_num2long(bytes);
  (void)self;
  kept = memset(malloc(size), 1, size);
  return 8;
}
void Init_planted(void) { rb_define_global_function("planted_keep", keep, 1); }
"""

PYTHON_PROGRAM = """
import os, sys, time
begin = time.monotonic()
def now(): return time.monotonic() - begin
cache = {}
def fill_cache(key, size):
    cache[key] = bytearray(size)
kept = {}
def leak(size):
    kept[len(kept)] = bytearray(size) # LEAK
%(noise)s
class Pay:
    pass
def work(depth):
    if depth > 0:
        return work(depth - 1)
    t = now()
    %(pay)s
print("ready", os.getpid(), flush=True)
while True:
    work(%(depth)d)
    time.sleep(0.01)
"""

C_PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static double begin;
static void *volatile sink;
__attribute__((noinline)) void fill_cache(long size) { sink = memset(malloc(size), 1, size); }
__attribute__((noinline)) void leak(long size) { sink = memset(malloc(size), 1, size); } // LEAK
%(noise)s
__attribute__((noinline)) void noise_work(int depth) {
  if (depth > 0) { noise_work(depth - 1); __asm__ volatile(""); return; }
  double t = now() - begin;
  %(pay_noise)s
}
__attribute__((noinline)) void leak_work(int depth) {
  if (depth > 0) { leak_work(depth - 1); __asm__ volatile(""); return; }
  double t = now() - begin;
  %(pay_leak)s
}
static void *leaker(void *nothing) { for (;; usleep(10000)) leak_work(%(depth)d); return nothing; }
int main(void) {
  pthread_t thread;
  begin = now();
  printf("ready %%d\\n", (int)getpid());
  fflush(stdout);
  pthread_create(&thread, NULL, leaker, NULL);
  for (;; usleep(10000)) noise_work(%(depth)d);
}
"""

# Forked: the parent and one worker do all but the leak, the other worker leaks.
FORKED = """
$leaks = true
fork { $leaks = false; serve_quietly }
fork { serve }
$leaks = false
serve_quietly
"""


def _ruby_pay(name, rate, call):
    return (f"${name} ||= 0; while ${name} < {rate} * t do {call}; end")


def _ruby(variation, folder):
    noise, pay = [], []
    for index, (size, rate, lives_s) in enumerate(variation.noise):
        ring = max(1, int(rate * lives_s / size))
        noise.append(f"$ring{index} = []\ndef noise{index}(bytes)\n  $ring{index} << \"n\" * bytes\n"
                     f"  $ring{index}.shift if $ring{index}.size > {ring}\nend")
        pay.append(_ruby_pay(f"noise{index}", rate, f"noise{index}({size}); $noise{index} += {size}"))
    size = variation.cache_block_bytes
    pay.append(_ruby_pay("filled", variation.cache_rate, f"break if $filled >= {variation.cache_bytes}; "
                         f"fill_cache($filled, {size}); $filled += {size}"))
    # However long the program lives before it leaks, it does not catch up.
    pay.append(_ruby_pay("leaked", variation.leak_rate,
                         f"leak({variation.block_bytes}) if $leaks; $leaked += {variation.block_bytes}"))
    serve, kind = "$leaks = true\nserve", variation.kind
    if kind == "forked_worker":
        quiet = f"def serve_quietly\n  loop {{ work({variation.depth}); sleep 0.01 }}\nend"
        serve, kind = quiet + FORKED, "ruby_array"
    leak = RUBY_LEAKS[kind]
    if kind == "c_extension":
        leak = leak % {"extension": str(_extension(folder))}
    values = {"noise": "\n".join(noise), "leak": leak, "pay": "\n  ".join(pay), "depth": variation.depth, "serve": serve}
    return RUBY % values


def _extension(folder):
    source, library = folder / "planted.c", folder / "planted.so"
    source.write_text(EXTENSION)
    _compile(source, library, "-shared", "-fPIC")
    return library


def _compile(source, out, *options):
    subprocess.run(["gcc", "-O1", "-g", "-w", *options, str(source), "-o", str(out), "-lpthread"], check=True)


def _python(variation):
    noise, pay = [], []
    for index, (size, rate, lives_s) in enumerate(variation.noise):
        ring = max(1, int(rate * lives_s / size))
        noise.append(f"ring{index} = []\ndef noise{index}(size):\n    ring{index}.append(bytearray(size))\n"
                     f"    if len(ring{index}) > {ring}: del ring{index}[0]\nPaid{index} = [0]")
        pay.append(f"while Paid{index}[0] < {rate} * t: noise{index}({size}); Paid{index}[0] += {size}")
    noise.append("Leaked, Filled = [0], [0]")
    size = variation.cache_block_bytes
    pay.append(f"while Filled[0] < min({variation.cache_rate} * t, {variation.cache_bytes}): "
               f"fill_cache(Filled[0], {size}); Filled[0] += {size}")
    size = variation.block_bytes
    pay.append(f"while Leaked[0] < {variation.leak_rate} * t: leak({size}); Leaked[0] += {size}")
    return PYTHON_PROGRAM % {"noise": "\n".join(noise), "pay": "\n    ".join(pay), "depth": variation.depth}


def _c(variation):
    noise, pay = [], []
    for index, (size, rate, lives_s) in enumerate(variation.noise):
        ring = max(1, min(200000, int(rate * lives_s / size)))
        noise.append(f"static void *ring{index}[{ring}]; static long at{index}; static double paid{index};\n"
                     f"__attribute__((noinline)) void noise{index}(long size) {{ void **slot = &ring{index}[at{index}++ % {ring}];\n"
                     f"  free(*slot); *slot = memset(malloc(size), 1, size); }}")
        pay.append(f"while (paid{index} < {rate} * t) {{ noise{index}({size}); paid{index} += {size}; }}")
    size = variation.cache_block_bytes
    noise.append("static double filled, leaked;")
    pay.append(f"while (filled < {variation.cache_rate} * t && filled < {variation.cache_bytes}) "
               f"{{ fill_cache({size}); filled += {size}; }}")
    size = variation.block_bytes
    leak = f"while (leaked < {variation.leak_rate} * t) {{ leak({size}); leaked += {size}; }}"
    return C_PROGRAM % {"noise": "\n".join(noise), "pay_noise": "\n  ".join(pay), "pay_leak": leak, "depth": variation.depth}


KINDS = ("ruby_array", "ruby_closure", "c_extension", "python_dict", "native_thread", "forked_worker")


@dataclass
class Planted:
    """A program on disk: how to start it, and the place that should be named."""

    command: list
    environment: dict
    function: str
    file: str
    lines: tuple  # (0,): native code, which has none


def plant(variation, folder):
    """Writes and compiles the program of a variation into the folder."""
    folder = Path(folder)
    if variation.kind == "native_thread":
        source, program = folder / "planted.c", folder / "planted"
        source.write_text(_c(variation))
        _compile(source, program)
        return Planted([str(program)], {}, "leak", str(program), (0,))
    if variation.kind == "python_dict":
        path, text, command = folder / "planted.py", _python(variation), [PYTHON, "-B"]
        environment = {"PYTHONMALLOC": "malloc"}
    else:
        path, text, command = folder / "planted.rb", _ruby(variation, folder), ["ruby", "--disable-gems"]
        environment = {}
    path.write_text(text)
    lines = tuple(number for number, line in enumerate(text.splitlines(), 1) if f"# {MARK}" in line)
    return Planted([*command, str(path)], environment, "leak", str(path), lines)
