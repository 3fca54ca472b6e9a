"""The worst moments of an allocator in a server under load: how long single calls of malloc, free and fork take.

Runs a workload under each allocator, in turns, with a library before it that notes the time of each call by the clock on the
wall (bench/call_times.c): also what the call waits, and what else the CPU does meanwhile. So run it alone, or with a higher
priority than all else. Noting takes some 50 ns of each call. Times are microseconds; the longest is that of all runs, the
others are medians over the runs.
"""

import argparse
import itertools
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from .compare import TUNED
from .small_servers import ALLOCATORS, environment_of
from .workloads import catalog
from .workloads.harness import session

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "bench/call_times.c"
KINDS = ("malloc", "calloc", "realloc", "aligned", "free", "fork")
SHOWN = {"malloc": ("malloc", "calloc", "realloc", "aligned"), "free": ("free",), "fork": ("fork",)}
EIGHTHS = 8
BUCKETS = 62 * EIGHTHS
PERCENTILES = (50, 99, 99.9, 99.99)
PEERS = {"glibc": "glibc", "jemalloc": "jemalloc", "jemalloc, tuned": TUNED, "mimalloc": "mimalloc", "tcmalloc": "tcmalloc", "snug": "snug"}


def least_ns(bucket):
    """The shortest time that falls into a bucket."""
    if bucket < EIGHTHS:
        return bucket
    return (EIGHTHS + bucket % EIGHTHS) << (bucket // EIGHTHS - 1)


def read(data):
    """{kind: (longest in ns, count of each bucket)} of what call_times.c wrote."""
    size = 8 * (2 + BUCKETS)
    rows = (struct.unpack_from(f"={2 + BUCKETS}Q", data, number * size) for number in range(len(KINDS)))
    return {kind: (longest, buckets) for kind, (_, longest, *buckets) in zip(KINDS, rows, strict=True)}


def percentile(buckets, percent):
    """In ns, as the upper end of its bucket; None if there was no call."""
    wanted = sum(buckets) * percent / 100
    if not wanted:
        return None
    return least_ns(1 + next(number for number, seen in enumerate(itertools.accumulate(buckets)) if seen >= wanted))


def summary(found):
    """{what is shown: {"calls", "longest" and each percentile, in ns}} of one run."""
    result = {}
    for name, kinds in SHOWN.items():
        buckets = [sum(counts) for counts in zip(*(found[kind][1] for kind in kinds), strict=True)]
        longest = max(found[kind][0] for kind in kinds)
        result[name] = {"calls": sum(buckets), **{str(percent): percentile(buckets, percent) for percent in PERCENTILES}, "longest": longest}
    return result


def run(workload, spelling, library, folder, options):
    """The summary of one run. Raises a WorkloadError if it fails."""
    path = Path(folder, "times")
    path.unlink(missing_ok=True)
    environment = environment_of(spelling)
    preload = f"{library} {environment.get('LD_PRELOAD', '')}".rstrip()
    environment |= {"LD_PRELOAD": preload, "MALLOC_CALL_TIMES_FILE": str(path)}
    with open(Path(folder, "log"), "w+", encoding="utf-8") as log:
        if subprocess.run(workload.command_line(*options), env=environment, stdout=log, stderr=log).returncode != 0:
            log.seek(0)
            raise session.WorkloadError(f"{workload.name} failed:\n{log.read()[-2000:]}")
    return summary(read(path.read_bytes()))


def combined(runs):
    """Medians of the runs' summaries; the longest is that of all."""
    def of(values, name):
        values = [value for value in values if value is not None]
        return None if not values else max(values) if name == "longest" else statistics.median(values)

    return {name: {key: of([one[name][key] for one in runs], key) for key in runs[0][name]} for name in SHOWN}


def table(name, found):
    """Markdown of one kind of call, in us, by allocator."""
    head = [f"{name}, us", "calls", "median", *(f"p{percent:g}" for percent in PERCENTILES[1:]), "longest"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    for allocator, kinds in found.items():
        one = kinds[name]
        times = (one[key] for key in (*map(str, PERCENTILES), "longest"))
        lines.append(f"| {allocator} | {one['calls']:,.0f} | {' | '.join('' if time is None else f'{time / 1e3:,.2f}' for time in times)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="bench/worst", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: nice -n -15 bench/worst rails_puma_cluster --runs 5")
    parser.add_argument("names", nargs="+", metavar="WORKLOAD", help=f"of {catalog.names()}")
    parser.add_argument("--runs", type=int, default=3, help="of each allocator, in turns (3)")
    parser.add_argument("--quick", action="store_true", help="the short form of each workload")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the summary of each run there")
    arguments = parser.parse_args()
    workloads = [catalog.find(name) or parser.error(f"no workload {name!r}; there are: {catalog.names()}") for name in arguments.names]
    peers = {name: spelling for name, spelling in PEERS.items() if Path(ALLOCATORS[spelling.partition(":")[0]] or "/").exists()}
    kept = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "libcall_times.so")
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
            for workload in workloads:
                workload.require()
                runs = {name: [] for name in peers}
                for _, (name, spelling) in itertools.product(range(arguments.runs), peers.items()):
                    print(f"{workload.name}: {name}", file=sys.stderr)
                    runs[name].append(run(workload, spelling, library, folder, ["--quick"] if arguments.quick else []))
                kept[workload.name] = runs
                found = {name: combined(several) for name, several in runs.items()}
                print(f"\n{workload.name}: {workload.summary}", *(table(kind, found) for kind in SHOWN), sep="\n\n", flush=True)
    except session.WorkloadError as error:
        print(f"bench/worst: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
