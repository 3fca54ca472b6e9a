"""What a fork costs the process that forks, and its child: of a large application in Python (bench/workloads/heavy).

For each allocator a process loads the application and forks. The time of the first fork has in it what is done once before,
by the hooks or by hand. Then come children that leave at once (os._exit), and some that end as an interpreter does. Times are
milliseconds: of the later forks the median, the least, and the longest, of the children's CPU time the median.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from .compare import TUNED
from .small_servers import environment_of
from .workloads.celery import drive as celery
from .workloads.harness import options, session

ROOT = Path(__file__).resolve().parent.parent
# The allocator, and what the process gets beside it, in the order of the table.
CASES = {
    "glibc": ("glibc", {}),
    "jemalloc, tuned": (TUNED, {}),
    "jemalloc, tuned, gc.freeze()": (TUNED, {"BENCH_BY_HAND": "1"}),
    "snug, no hooks": ("snug", {}),
    "snug": ("snug", {"PYTHONMALLOC": "malloc", "FORK_COST_HOOKS": "1"}),
}
COLUMNS = ("first fork", "later: median", "least", "longest", "child that leaves, CPU", "child that ends, CPU")


def fork(end, before=None):
    """(seconds until fork has returned, CPU seconds of the child)"""
    start = time.perf_counter()
    if before:
        before()
    pid = os.fork()
    if pid == 0:
        end(0)
    passed = time.perf_counter() - start
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"bench/fork_cost: a child ended with status {status}")
    return passed, usage.ru_utime + usage.ru_stime


def measure(forks):
    """Loads, forks and prints what that took; runs under the allocator that is measured."""
    from .workloads.heavy import boot  # the process that compares has none of it
    boot.load()
    before = boot.by_hand
    if os.environ.get("FORK_COST_HOOKS"):
        import snug.hooks
        before = snug.hooks.freeze_before_fork
    first, _ = fork(os._exit, before)
    leave = [fork(os._exit) for _ in range(forks)]
    end = [fork(sys.exit) for _ in range(max(forks // 10, 1))]
    later = [passed for passed, _ in leave]
    found = (first, statistics.median(later), min(later), max(later), statistics.median(cpu for _, cpu in leave), statistics.median(cpu for _, cpu in end))
    print(json.dumps(dict(zip(COLUMNS, (1e3 * seconds for seconds in found), strict=True))))


def main():
    parser = argparse.ArgumentParser(prog="bench/fork_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/inside debian-13 bench/fork_cost --forks 200")
    parser.add_argument("--forks", type=int, default=100, metavar="N", help="forks after the first (100)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each allocator, instead of a table")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.forks)
        return 0
    try:
        celery.require_heavy()
    except session.WorkloadError as error:
        print(f"bench/fork_cost: {error}", file=sys.stderr)
        return 1
    if not arguments.json:
        print(f"| ms | {' | '.join(COLUMNS)} |\n|---|{'--:|' * len(COLUMNS)}")
    for name, (spelling, variables) in CASES.items():
        command = [celery.HEAVY_PYTHON, "-B", "-m", "bench.fork_cost", "--measure", "--forks", str(arguments.forks)]
        environment = {**environment_of(spelling), "BENCH_HEAVY": "1", "PYTHONPATH": str(options.BINDINGS / "wheel"), **variables}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return 1
        found = json.loads(done.stdout)
        print(json.dumps({"allocator": name, **found}) if arguments.json else f"| {name} | {' | '.join(f'{found[column]:,.1f}' for column in COLUMNS)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
