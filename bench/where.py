"""Says what the resident memory of servers is, by `snug stats --where`, under load and once they have been quiet for two
seconds: the share of each part, how far the table is from the RSS that the kernel counts, and what stays `other`, of
which no more is known than its addresses. Both should be below 3 %.

A table is compared with the RSS right before and after it was made; while the server works, memory comes and goes
between the three, so that the nearer of the two counts.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from . import bytes as bench_bytes
from .workloads.harness import memory

INTERVAL_S = 1.0
IDLE_S = 12  # nine processes are not read in a moment
LIMIT = 0.03
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid):
    """RSS as /proc/PID/statm has it."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def table_of(pid):
    """Bytes by part of one process, with "rss" as the kernel counts it; None if it has ended or is not under snug."""
    try:
        before = resident_bytes(pid)
        answer = subprocess.run([bench_bytes.SNUG, "stats", str(pid), "--where", "--json"], capture_output=True, text=True)
        after = resident_bytes(pid)
    except (OSError, IndexError):
        return None
    if answer.returncode != 0:
        return None
    residence = json.loads(answer.stdout)
    if residence["allocator"] != "snug":
        return None
    parts = {part["part"]: part["bytes"] for part in residence["parts"]}
    told = sum(parts.values())
    return {**parts, "rss": min(before, after, key=lambda rss: abs(rss - told)), "told": told}


def read_once(root_pid, workload):
    """A reading of the server's processes; None while there is none."""
    tables, cpu_s = {}, 0
    for pid in memory.process_tree(root_pid):
        table = table_of(pid) if bench_bytes.is_measured(pid, workload) else None
        if table:
            tables[pid] = table
            cpu_s += bench_bytes.cpu_seconds(pid)
    return bench_bytes.Reading(time.monotonic(), cpu_s, tables) if tables else None


def shares(tables):
    """Over tables of processes: the mean share of RSS of each part, how far the sum is from RSS (median, mean), and the
    largest share that is `other`."""
    tables = list(tables)
    names = dict.fromkeys(name for table in tables for name in table if name not in ("rss", "told"))
    parts = {name: statistics.fmean(table.get(name, 0) / table["rss"] for table in tables) for name in names}
    off = [abs(table["told"] / table["rss"] - 1) for table in tables]
    return parts, statistics.median(off), statistics.fmean(off), max(table.get("other", 0) / table["rss"] for table in tables)


def row(name, tables):
    """Cells of the table of results, and whether it holds."""
    tables = list(tables)
    parts, median_off, mean_off, worst_other = shares(tables)
    largest = sorted(parts.items(), key=lambda part: -part[1])
    text = ", ".join(f"{part.replace('_', ' ')} {100 * share:.0f} %" for part, share in largest if share >= 0.01)
    rss = statistics.fmean(table["rss"] for table in tables)
    cells = [name, str(len(tables)), f"{rss / 1e6:.1f}", f"{100 * median_off:.2f} %", f"{100 * mean_off:.2f} %",
             f"{100 * parts.get('other', 0):.2f} %", f"{100 * worst_other:.2f} %", text]
    return cells, mean_off < LIMIT and parts.get("other", 0) < LIMIT


def main():
    workloads, quick = bench_bytes.parse_arguments("bench/where", __doc__)
    print(bench_bytes.line(["", "tables", "RSS, MB", "sum off by, median", "mean", "other, mean", "most", "parts from 1 % of RSS"]))
    print("|---|--:|--:|--:|--:|--:|--:|---|", flush=True)
    status = 0
    for workload in workloads:
        readings, code = bench_bytes.measure(workload, quick, read_once, INTERVAL_S, IDLE_S)
        idle = bench_bytes.idle_reading(readings)
        states = {"load": [reading for reading in readings if idle is None or reading.time_s < idle.time_s],
                  "idle": [idle] if idle else []}
        for state, chosen in states.items():
            tables = [table for reading in chosen for table in reading.processes.values()]
            if code != 0 or not tables:
                print(f"bench/where: {workload.name}, {state}: no tables; it ended with status {code}", file=sys.stderr)
                status = 1
                continue
            cells, holds = row(f"{workload.name}, {state}", tables)
            status = status if holds else 1
            print(bench_bytes.line(cells), flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
