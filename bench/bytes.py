"""Says where each resident byte of a server is while it runs: runs workloads under snug, reads its counters four
times a second with `snug stats`, and prints the means; then what is resident beyond the live bytes and what is outside
once the server has been quiet for two seconds, in all of it and in its worst process.

What is outside (code, stacks, other mappings, arenas that an interpreter maps for itself) no allocator can make
smaller. Pages that the program never touched count as resident where they are live, so `outside` is the least it can
be. Of a family of processes all are added up as RSS: what they share is counted in each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .workloads import catalog
from .workloads.harness import memory

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


SNUG = ROOT / "build/snug"
LIBRARY = ROOT / "build/libsnug.so"
INTERVAL_S = 0.25
IDLE_S = 4  # how long workloads stay quiet at the end
QUIET_S = 2  # when what is free should have gone back
QUIET_CORES = 0.1  # less CPU time per time than this is quiet
PLACES = ("live", "rounding", "cached", "free_in_slabs", "free_dirty", "metadata", "outside")


def places_of(stats):
    """Where the bytes of one process are, by a parsed `snug stats --json`; None without a heap of ours."""
    allocator, heap = stats.get("allocator"), stats.get("heap")
    if not allocator or allocator["kind"] != "snug" or not heap or not heap["live_requested_bytes"]:
        return None
    places = {
        "live": heap["live_requested_bytes"],
        "rounding": max(0, heap["live_allocated_bytes"] - heap["live_requested_bytes"]),
        "cached": heap["cached_bytes"],
        "free_in_slabs": heap["slab_free_bytes"],
        "free_dirty": heap["dirty_bytes"],
        "metadata": heap["metadata_bytes"],
    }
    return {**places, "outside": max(0, stats["rss_bytes"] - sum(places.values())), "rss": stats["rss_bytes"]}


def is_measured(pid, workload):
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return workload.only.encode() in arguments


@dataclass(frozen=True)
class Reading:
    time_s: float
    cpu_s: float  # used so far by the whole server
    processes: dict  # PID to bytes by place

    def total(self, name):
        return sum(places[name] for places in self.processes.values())


def cpu_seconds(pid):
    fields = memory.stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0


def read_once(root_pid, workload):
    """A reading of the server's processes; None while there is none."""
    processes, cpu_s = {}, 0
    for pid in memory.process_tree(root_pid):
        if not is_measured(pid, workload):
            continue
        answer = subprocess.run([SNUG, "stats", str(pid), "--json"], capture_output=True, text=True)
        places = places_of(json.loads(answer.stdout)) if answer.returncode == 0 else None
        if places is not None:
            processes[pid] = places
            cpu_s += cpu_seconds(pid)
    return Reading(time.monotonic(), cpu_s, processes) if processes else None


def idle_reading(readings):
    """The first reading after QUIET_S of the last quiet time that is so long; None if there is none."""
    found, quiet_since_s, last = None, None, None
    for reading in readings:
        quiet = last is not None and reading.cpu_s - last.cpu_s < QUIET_CORES * (reading.time_s - last.time_s) \
            and reading.processes.keys() == last.processes.keys()
        if not quiet:
            quiet_since_s = None
        elif quiet_since_s is None:
            quiet_since_s, waited = last.time_s, False
        if quiet and not waited and reading.time_s - quiet_since_s >= QUIET_S:
            found, waited = reading, True
        last = reading
    return found


def excess(places):
    """Resident bytes divided by those that are live or outside, less one."""
    return places["rss"] / (places["live"] + places["outside"]) - 1


def measure(workload, quick, read=read_once, interval_s=INTERVAL_S, idle_s=IDLE_S):
    """Runs a workload, which is quiet for so long at its end, and reads its processes so often. Returns (its readings, exit status)."""
    command = workload.command_line("--idle-seconds", str(idle_s), *(["--quick"] if quick else []))
    program = subprocess.Popen(command, env={**os.environ, "LD_PRELOAD": str(LIBRARY)}, stdout=subprocess.DEVNULL)
    readings, due = [], time.monotonic()
    try:
        while program.poll() is None:
            reading = read(program.pid, workload)
            readings += [reading] if reading else []
            due = max(due + interval_s, time.monotonic())
            time.sleep(max(0, due - time.monotonic()))
    except KeyboardInterrupt:
        program.terminate()
        program.wait()
        raise
    return readings, program.returncode


def cells_of(readings):
    """The cells of a workload's row, but for its name."""
    means = {name: statistics.fmean(reading.total(name) for reading in readings) for name in (*PLACES, "rss")}
    shown = {name: round(means[name] / 1e6, 1) for name in (*PLACES, "rss")}
    # Worked out from the numbers beside it, as they are printed (docs/decisions/0021).
    ratio = f"{(shown['rss'] - shown['outside']) / shown['live']:.2f}" if shown["live"] else ""
    idle = idle_reading(readings)
    after = ["", ""]
    if idle:
        whole = {name: idle.total(name) for name in ("rss", "live", "outside")}
        worst = max(excess(places) for places in idle.processes.values())
        after = [f"{100 * excess(whole):.1f} %", f"{100 * worst:.1f} %"]
    processes = statistics.fmean(len(reading.processes) for reading in readings)
    return [f"{processes:.1f}", *(f"{megabytes:.1f}" for megabytes in shown.values()), ratio, *after]


def line(cells):
    return f"| {cells[0]} | " + " | ".join(f"{cell}" for cell in cells[1:]) + " |"


def parse_arguments(program, description):
    """The command line of a program that measures workloads under snug: (workloads, whether in their short form). Ends
    the program with a message where it is wrong, or nothing is built."""
    parser = argparse.ArgumentParser(prog=program, description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"Example: {program} --quick sidekiq celery_threads")
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"default: all ({catalog.names()})")
    parser.add_argument("--quick", action="store_true", help="the short form of each workload")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if catalog.find(name) is None]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are: {catalog.names()}")
    for path in (SNUG, LIBRARY):
        if not path.exists():
            sys.exit(f"{program}: {path.relative_to(ROOT)} is missing; run: make")
    return [catalog.find(name) for name in arguments.names] or catalog.WORKLOADS, arguments.quick


def main():
    workloads, quick = parse_arguments("bench/bytes", __doc__)
    heads = [name.replace("_", " ") for name in PLACES]
    print(line(["mean MB", "processes", *heads, "RSS", "(RSS - outside) / live", "idle: beyond live + outside", "worst"]))
    print("|---|" + "--:|" * (len(PLACES) + 5), flush=True)
    status = 0
    for workload in workloads:
        readings, code = measure(workload, quick)
        if not readings or code != 0:
            print(f"bench/bytes: {workload.name} ended with status {code}", file=sys.stderr)
            status = 1
        if readings:
            print(line([workload.name, *cells_of(readings)]), flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
