"""Runs `snug compare` on workloads, under every allocator of Debian's and of build/peers, and under snug.

bench/results/DATE/WORKLOAD keeps, with paths made relative and samples thinned, compare.json, report.md, table.txt,
runs.csv and the plots; bench/results/DATE/README.md is a page about all of them. Everything else (all samples, HTML,
logs) is in build/bench/DATE. With --quick both are in build/bench/quick-DATE.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .summary import keep
from .workloads import catalog
from .workloads.harness import foreground, session
from .workloads.harness.options import BY_HAND, HOOKS_VARIABLE, OURS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


SNUG = ROOT / "build/snug"
PEERS = ROOT / "build/peers"
TUNED = "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0"
DEBIAN_ALLOCATORS = (
    "glibc",
    "glibc:MALLOC_ARENA_MAX=2",
    "jemalloc",
    TUNED,
    "tcmalloc",
    "mimalloc",
)
PYTHONS_MALLOC = "PYTHONMALLOC=malloc"
INTERRUPTED = 130


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/compare rails_puma sidekiq --runs 5")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"of {catalog.names()} (all but {', '.join(one.name for one in catalog.WORKLOADS if one.forks_much)})")
    parser.add_argument("--runs", type=int, default=3, help="runs under each allocator, interleaved (3)")
    parser.add_argument("--quick", action="store_true", help="the short form of each workload")
    parser.add_argument("--with", dest="allocators", action="append", metavar="LIST",
                        help="allocators as snug compare takes them (Debian's, those of build/peers, and snug)")
    parser.add_argument("--hooks", action="store_true",
                        help=f"each allocator a second time, the server with the hooks of bindings/ ({HOOKS_VARIABLE}=1 in its label)")
    parser.add_argument("--forks", action="store_true",
                        help=f"the servers with many forks under what teams run: glibc and tuned jemalloc with nothing and with gc.freeze() or "
                             f"Process.warmup by hand ({HOOKS_VARIABLE}={BY_HAND}), snug with nothing and as it comes")
    parser.add_argument("--every", action="store_true",
                        help="with --forks: every allocator with nothing, by hand, and with the hooks, snug also as it comes")
    parser.add_argument("--profile", action="store_true", help="also the share of CPU time that goes into memory, by perf")
    parser.add_argument("--idle-seconds", type=float, metavar="S",
                        help="quiet time after the load, half of which passes before hooks act (5; quick: 2; ruby_threads: 3, 1)")
    parser.add_argument("--check", action="store_true", help="only look whether all that is needed is there; measures nothing")
    parser.add_argument("--out", type=Path, help="directory for what is kept of the results (bench/results/DATE)")
    parser.add_argument("--minutes", type=float, metavar="N",
                        help="end after about so long, and go on when called again with the same --out: one round at a time, of the workload that has "
                             "the fewest, until all have --runs")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if catalog.find(name) is None]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are: {catalog.names()}")
    return arguments


def allocators():
    """All there are, as `snug compare --with` takes them."""
    peers = sorted(PEERS.glob("lib*.so.*"))
    if not peers:
        print("bench/compare: without the newest mimalloc, snmalloc, jemalloc and rpmalloc; to build them: "
              "make bench-peers", file=sys.stderr)
    return [*DEBIAN_ALLOCATORS, *(f"./{os.path.relpath(peer, ROOT)}" for peer in peers), "snug"]


def with_hooks(lists, kinds=(OURS,)):
    """Each allocator of lists, as --with takes them, followed by itself with hooks of these kinds. A comma separates allocators unless
    what follows is the next setting of MALLOC_CONF and its like: a name, a colon, and no = before another comma."""
    names = []
    for text in lists:
        for part in text.split(","):
            setting = re.fullmatch(r"[a-z_]+:[^=:]*", part) and names and "=" in names[-1]
            if setting:
                names[-1] += f",{part}"
            else:
                names.append(part)
    # Before other settings: what comes behind a MALLOC_CONF is part of it.
    return [variant for name in names for variant in (
        name, *(":".join((name.partition(":")[0], f"{HOOKS_VARIABLE}={kind}", *name.split(":", 1)[1:])) for kind in kinds))]


def for_forks(names, python):
    """The allocators of --forks, of which some may be measured every way: for a server in Python, or in another language."""
    as_it_comes = f"snug:{HOOKS_VARIABLE}={OURS}" + (f":{PYTHONS_MALLOC}" if python else "")
    if names:
        return list(dict.fromkeys([*with_hooks(names, (BY_HAND, OURS)), as_it_comes]))
    ways = (BY_HAND, f"{BY_HAND}:{PYTHONS_MALLOC}") if python else (BY_HAND,)
    return ["glibc", TUNED, with_hooks(["glibc"], (BY_HAND,))[1], *with_hooks([TUNED], ways)[1:], "snug", as_it_comes]


def compare(workload, arguments, names, work, kept, runs=None):
    """Compares on one workload; so many runs are added to those that were kept before. Returns whether all went well."""
    options = [option for name in names for option in ("--with", name)]
    idle = [] if arguments.idle_seconds is None else ["--idle-seconds", f"{arguments.idle_seconds:g}"]
    program = workload.command_line(*(["--quick"] if arguments.quick else []), *idle)
    program[0] = os.path.relpath(program[0], ROOT)
    command = [os.path.relpath(SNUG, ROOT), "compare", "--runs", str(runs or arguments.runs), *options,
               *workload.compare_options(), *(["--profile"] if arguments.profile else []), "--keep-going", "--out", work, "--", *program]
    print(f"\n{workload.name}: {workload.summary}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    (work / "compare.json").unlink(missing_ok=True)
    status, table = foreground.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(table, end="", flush=True)
    if status == INTERRUPTED or status < 0:
        sys.exit(INTERRUPTED)
    (work / "table.txt").write_text(table)
    if (work / "compare.json").exists():
        keep.keep(work, kept, ROOT, add=runs is not None)
    return status == 0


def go_on(workloads, arguments, names, work, kept):
    """Adds rounds, one at a time, until the time is over. Returns the workloads in which not all went well."""
    end, failed = time.monotonic() + arguments.minutes * 60, []
    while True:
        left = {one: keep.rounds(kept / one.name) for one in workloads if one not in failed}
        now = time.monotonic()
        left = {one: rounds for one, rounds in left.items() if rounds < arguments.runs and now + seconds_of([one], arguments, names) <= end}
        if not left:
            break
        workload = min(left, key=left.get)
        if not compare(workload, arguments, names(workload), work / workload.name, kept / workload.name, runs=1):
            failed.append(workload)
    for one in workloads:
        print(f"{one.name}: {keep.rounds(kept / one.name)} of {arguments.runs} rounds", flush=True)
    return failed


def seconds_of(workloads, arguments, names):
    """About how long a round takes."""
    return sum((one.quick_seconds if arguments.quick else one.full_seconds) * len(names(one)) for one in workloads)


def missing(workloads, profile):
    """What keeps the workloads from being measured here, a line each: found out in seconds, before hours are spent."""
    lacking = {}
    for workload in workloads:
        try:
            workload.require()
        except session.WorkloadError as error:
            lacking.setdefault(str(error), []).append(workload.name)
    found = [f"{', '.join(names)}: {text}" for text, names in lacking.items()]
    return found + (profile_refused() if profile else [])


def profile_refused():
    """What `snug compare --profile` says where perf can't sample, tried on a program that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run([SNUG, "compare", "--runs", "1", "--with", "glibc", "--profile", "--out", folder, "--force", "--", "sleep", "0.2"],
                               cwd=ROOT, capture_output=True, text=True)
    if tried.returncode == 0:
        return []
    said = "; ".join(line.strip() for line in tried.stderr.splitlines() if line.strip())
    return [f"{said}; or leave that column out: make bench PROFILE=, bench/compare without --profile"]


def about(seconds):
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{seconds / 60:.0f} minutes"


def main():
    arguments = parse_arguments()
    if not os.access(SNUG, os.X_OK):
        print("bench/compare: build/snug is missing; run: make", file=sys.stderr)
        return 1
    workloads = [catalog.find(name) for name in arguments.names] or (catalog.forking() if arguments.forks else catalog.by_default())
    if obstacles := missing(workloads, arguments.profile):
        print("bench/compare: nothing was measured, since not all of it can be here:", *obstacles, sep="\n  ", file=sys.stderr)
        return 1
    if arguments.check:
        return 0
    day = datetime.date.today().isoformat()
    work = ROOT / "build/bench" / (f"quick-{day}" if arguments.quick else day)
    kept = arguments.out or (work / "kept" if arguments.quick else HERE / "results" / day)
    kept = kept.resolve()
    every = arguments.allocators or allocators()
    if arguments.hooks:
        every = with_hooks(every)

    def names(workload):
        return for_forks(every if arguments.every or arguments.allocators else (), workload.python) if arguments.forks else every

    if not arguments.allocators:
        print(f"{max(len(names(one)) for one in workloads)} allocators, {arguments.runs} runs of each workload: about "
              f"{about(seconds_of(workloads, arguments, names) * arguments.runs)}", flush=True)
    if arguments.minutes is None:
        failed = [w for w in workloads if not compare(w, arguments, names(w), work / w.name, kept / w.name)]
    else:
        failed = go_on(workloads, arguments, names, work, kept)
    if failed:
        print(f"bench/compare: not all runs went well in: {', '.join(w.name for w in failed)}; see {work}/*/logs", file=sys.stderr)
    summarised = subprocess.run([HERE / "summarise", kept]).returncode == 0
    return 1 if failed or not summarised else 0


if __name__ == "__main__":
    sys.exit(main())
