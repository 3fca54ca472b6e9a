"""Writes the page about the workloads of a day: README.md beside their results.

Lets `snug report` read DIRECTORY/*/compare.json, and lays out what it says. For each workload a table of all allocators, whether snug meets its goals, and in
what a peer is better. `bench/compare` does this at its end.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from .summary import page, results
from .workloads import catalog

HERE = Path(__file__).resolve().parent


SNUG = HERE.parent / "build/snug"
PICTURES = ("frontier.svg", "memory.svg")


def report(path):
    """What `snug report` makes of a saved comparison: its estimates are made anew, whatever version saved it."""
    ended = subprocess.run([SNUG, "report", path, "--json", "-"], capture_output=True, text=True)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    return json.loads(ended.stdout)


def write(directory):
    """Writes the page. Returns its path, or None if the directory has no results."""
    known = [workload.name for workload in catalog.WORKLOADS]
    found = {path.parent.name: path for path in directory.glob("*/compare.json")}
    names = [name for name in known if name in found] + sorted(set(found) - set(known))
    if not names:
        return None
    everything = [results.read(name, report(found[name])) for name in names]
    pictures = {name: [picture for picture in PICTURES if (directory / name / picture).exists()] for name in names}
    path = directory / "README.md"
    path.write_text(page.page(everything, pictures))
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
