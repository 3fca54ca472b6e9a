"""What `make demo` runs once all is built: the Ruby program of the demo under glibc, glibc with
MALLOC_ARENA_MAX=2, jemalloc and snug, measured by `snug compare`.

Results go to build/demo. With QUICK=1 in the environment, or --quick, one short run each (about a minute).
"""

import argparse
import json
import os
import sys
from pathlib import Path

from .summary import shown
from .workloads.harness import foreground, session

HERE = Path(__file__).resolve().parent


ROOT = HERE.parent
SNUG = ROOT / "build/snug"
PROGRAM = "bench/workloads/ruby_threads.rb"
OUT = "build/demo"
ALLOCATORS = ("glibc", "glibc:MALLOC_ARENA_MAX=2", "jemalloc", "snug")
MEMORY = "rss_mean_bytes"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/demo", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument("--quick", action="store_true", default=quick, help="one short run each")
    parser.add_argument("--runs", type=int, help="runs under each allocator (3; quick: 1)")
    arguments = parser.parse_args()
    if arguments.runs is None:
        arguments.runs = 1 if arguments.quick else 3
    return arguments


def sentence(comparison):
    """The result in one sentence, of the medians and with the ratios that the table above it has: those of the numbers as
    they are printed (docs/decisions/0021)."""
    medians = {row["allocator"]: {name: quantity["median"] for name, quantity in row["quantities"].items()}
               for row in comparison["summary"]["allocators"]}
    snug, glibc, jemalloc = (shown.text(medians[name][MEMORY] / 1e6) for name in ("snug", "glibc", "jemalloc"))
    seconds, glibc_seconds = (float(shown.text(medians[name]["wall_s"])) for name in ("snug", "glibc"))
    return (f"This Ruby program used {snug} MB on average with snug, {glibc} MB with glibc and {jemalloc} MB with "
            f"jemalloc: {float(snug) / float(glibc):.2f} times glibc's memory and "
            f"{float(snug) / float(jemalloc):.2f} times jemalloc's, in {seconds / glibc_seconds:.2f} times "
            f"glibc's time.")


def main():
    arguments = parse_arguments()
    if not os.access(SNUG, os.X_OK):
        print("bench/demo: build/snug is missing; run: make demo", file=sys.stderr)
        return 1
    try:
        session.require_ruby("concurrent")
    except session.WorkloadError as error:
        print(f"bench/demo: {error}", file=sys.stderr)
        return 1
    quick = ["--quick"] if arguments.quick else []
    minutes = arguments.runs * len(ALLOCATORS) * (9 if arguments.quick else 41) / 60
    print(f"{PROGRAM} under {', '.join(ALLOCATORS)}: {arguments.runs} run(s) each, about {minutes:.0f} minutes",
          flush=True)
    status, _ = foreground.run(
        [SNUG, "compare", "--runs", str(arguments.runs), "--with", ",".join(ALLOCATORS), "--out", OUT, "--force",
         "--", PROGRAM, *quick], cwd=ROOT)
    if status != 0:
        return status
    with open(ROOT / OUT / "compare.json", encoding="utf-8") as file:
        comparison = json.load(file)
    print(f"\nMemory over time: {OUT}/memory.svg\n{sentence(comparison)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
