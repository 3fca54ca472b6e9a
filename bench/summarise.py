"""Writes the page about the workloads of a day: README.md beside their results.

Its tables are those of `snug report --overview` on DIRECTORY/*/compare.json. Added to them are which goals snug meets, and
for each workload in what a peer is better, by the estimates of `snug report --json`. `bench/compare` does this at its end.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from .summary import page, results
from .workloads import catalog

SNUG = Path(__file__).resolve().parent.parent / "build/snug"
PICTURES = ("frontier.svg", "memory.svg")
# Tables of the page. Those that no workload measured are left out.
OVERVIEWS = ("memory", "idle", "throughput", "p99", "page_faults", "allocator_cpu_percent", "uss_mean", "metric.worker_private_mb")


def snug_report(*arguments):
    """What `snug report` says: its estimates are made anew, whatever version saved the comparison."""
    ended = subprocess.run([SNUG, "report", *arguments], capture_output=True, text=True)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    return ended.stdout


def overview(found):
    """The tables of all comparisons, {name: path}, in Markdown."""
    tables = []
    for quantity in OVERVIEWS:
        try:
            tables.append(snug_report(f"--overview={quantity}", "--markdown", "-", *(f"{name}={path}" for name, path in found.items())))
        except ValueError as error:
            if "none of the files has" not in str(error):
                raise
    return "\n".join(tables)


def read(name, path):
    """The Result of a saved comparison."""
    comparison = json.loads(snug_report(path, "--json", "-"))
    snug = results.label_of_snug(comparison)
    against_snug = json.loads(snug_report(path, "--json", "-", "--baseline", snug)) if snug else comparison
    return results.read(name, comparison, against_snug)


def write(directory):
    """Writes the page. Returns its path, or None if the directory has no results."""
    known = [workload.name for workload in catalog.WORKLOADS]
    found = {path.parent.name: path for path in directory.glob("*/compare.json")}
    names = [name for name in known if name in found] + sorted(set(found) - set(known))
    if not names:
        return None
    everything = [read(name, found[name]) for name in names]
    pictures = {name: [picture for picture in PICTURES if (directory / name / picture).exists()] for name in names}
    path = directory / "README.md"
    path.write_text(page.page(everything, pictures, overview({name: found[name] for name in names})))
    return path


def main():
    parser = argparse.ArgumentParser(prog="bench/summarise", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/summarise bench/results/2026-11-21")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    directory = parser.parse_args().directory
    try:
        path = write(directory)
    except (KeyError, TypeError, ValueError) as error:
        print(f"bench/summarise: a compare.json in {directory} is none of snug compare's: {error!r}", file=sys.stderr)
        return 1
    if path is None:
        print(f"bench/summarise: {directory} holds no */compare.json; bench/compare makes them", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
