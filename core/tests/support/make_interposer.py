#!/usr/bin/python3
"""Writes the source of a library that stands in front of every function which ours takes from others.

  make_interposer.py build/libsnug.so [--shared] >interposer.c

Each touches a thread-local variable, which in a library needs the thread state of the C library, and goes on to the
real one. So does libfaketime. A thread that has no such state must call none of them. With --shared there are also
those that ours has and passes on, malloc itself among them.

One of them allocates whenever it is called: the one whose number core/tests/startup/run_interposed writes over the mark.
"""

import argparse
import re
import subprocess
from pathlib import Path

# Data, and what an interposer itself needs.
LEFT_ALONE = re.compile(r"_ITM_.*|__gmon_start__|__cxa_finalize|environ|__libc_stack_end|dlsym|__tls_get_addr")
MARK = 0x5EC0FFEE

SOURCE = """/* Made by core/tests/support/make_interposer.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const volatile unsigned chosen = MARKu;
static __thread unsigned long calls;
static void *real[COUNT];
static const char *const names[] = {NAMES};

/* Shared with children. */
static unsigned *chosen_calls(void) {
  static unsigned *page;
  if (page == NULL) page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page;
}

unsigned interposer_calls(void) { return *chosen_calls(); }

static void use_heap(void) {
  static const size_t sizes[] = {1, 100, 1000, 5000, 40000, 300000, 2000000};
  char *blocks[sizeof sizes / sizeof sizes[0]];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    blocks[i] = malloc(sizes[i]);
    if (blocks[i] == NULL) _exit(99);
    blocks[i][0] = blocks[i][sizes[i] - 1] = (char)i;
  }
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (blocks[i][sizes[i] - 1] != (char)i) _exit(98);
    free(blocks[i]);
  }
}

typedef long function(long, long, long, long, long, long, long, long);

static function *interposed(unsigned number) {
  calls++;
  if (number == chosen) {
    __atomic_fetch_add(chosen_calls(), 1, __ATOMIC_RELAXED);
    use_heap();
  }
  if (real[number] == NULL) real[number] = dlsym(RTLD_NEXT, names[number]);
  function *next;
  *(void **)&next = real[number];
  return next;
}

__attribute__((constructor)) static void begin(void) {
  chosen_calls();
  for (unsigned i = 0; i < COUNT; i++) real[i] = dlsym(RTLD_NEXT, names[i]);
}

/* None has more arguments, and all are whole numbers, as are the results. */
#define INTERPOSE(number, name) \\
  function interpose_##number __asm__(#name); \\
  long interpose_##number(long a, long b, long c, long d, long e, long f, long g, long h) { \\
    function *next = interposed(number); \\
    return next != NULL ? next(a, b, c, d, e, f, g, h) : 0; \\
  }

"""


def listed(library, which):
    found = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in found.splitlines()}


def libc():
    """The C library of this process."""
    return next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line)


def names(library, shared):
    """What an interposer of the library stands in front of: by their numbers."""
    imported = listed(library, "--undefined-only")
    passed_on = listed(library, "--defined-only") & listed(libc(), "--defined-only") if shared else set()
    return sorted(name for name in imported | passed_on if not LEFT_ALONE.fullmatch(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--shared", action="store_true", help="also what the library has and passes on")
    arguments = parser.parse_args()
    found = names(arguments.library, arguments.shared)
    if not found:
        parser.error(f"{arguments.library} takes nothing from others?")
    head = SOURCE.replace("MARK", str(MARK)).replace("NAMES", ", ".join(f'"{name}"' for name in found))
    print(head.replace("COUNT", str(len(found))), end="")
    for number, name in enumerate(found):
        print(f"INTERPOSE({number}, {name})")


if __name__ == "__main__":
    main()
