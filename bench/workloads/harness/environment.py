"""Keeps the allocator under measurement away from everything but the server.

`snug compare` selects an allocator through the environment of the program that it starts, which is our
driver. The driver puts those variables aside, runs itself again without them, and hands them to the server
alone: redis-server and the load client are then the same under every allocator.
"""

import json
import os
import re
import sys

ALLOCATOR_VARIABLE = re.compile(
    r"LD_PRELOAD|GLIBC_TUNABLES|PYTHONMALLOC|SNUG(_.*)?|MALLOC_.*|JE_MALLOC_.*|_RJEM_.*|TCMALLOC_.*|MIMALLOC_.*|MI_.*|SCUDO_.*"
)
SET_ASIDE = "BENCH_SERVER_ENVIRONMENT"


def split(environment):
    """Returns (variables that select or tune an allocator, all others)."""
    allocator = {name: value for name, value in environment.items() if ALLOCATOR_VARIABLE.fullmatch(name)}
    others = {name: value for name, value in environment.items() if name not in allocator}
    return allocator, others


def detach_allocator():
    """Makes this process run without the allocator's variables. Returns those the server gets."""
    allocator, others = split(os.environ)
    if allocator:
        others[SET_ASIDE] = json.dumps(allocator)
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], others)
    return json.loads(os.environ.pop(SET_ASIDE, "{}"))
