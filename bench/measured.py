"""Writes the numbers of README.md and docs/explanation/measured.md between their marks, from the runs in bench/results.

    bench/update-measured            rewrites the tables
    bench/update-measured --check    only says whether they are up to date; exit status 1 if not
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

from .compare import TUNED, for_forks

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results/2026-11-27-full"
SMALL_RESULTS = ROOT / "bench/results/2026-11-25-small"
FORKS_RESULTS = ROOT / "bench/results/2026-11-29-forks"
# Columns of the tables, and the workloads that they show.
WORKLOADS = {"Ruby, 32 threads": "ruby_threads", "Rails on Puma": "rails_puma", "Puma, 3 workers": "rails_puma_cluster",
             "Sidekiq": "sidekiq", "Celery, 8 processes": "celery_prefork", "Celery, 20 threads": "celery_threads"}
# What rows call the allocators, by their names in compare.json; versions are those that ran.
ALLOCATORS = {"snug": "snug", TUNED: "jemalloc, tuned", "mimalloc": "mimalloc", "glibc:MALLOC_ARENA_MAX=2": "glibc, `MALLOC_ARENA_MAX=2`",
              "./build/peers/libjemalloc.so.5.3.1": "jemalloc", "jemalloc": "jemalloc", "glibc": "glibc"}
SMALL = ("ruby_script", "rails", "gunicorn", "celery", "sidekiq")
# Servers that fork, by the columns of their tables, and the rows: what compare.json calls the same in Python and in Ruby.
FORKING = {"Celery, 24 processes": "celery_heavy_24", "Celery, 8 processes": "celery_heavy", "gunicorn, 8 workers": "gunicorn_heavy",
           "Puma, 8 workers": "rails_puma_cluster_8", "Puma, 3 workers": "rails_puma_cluster"}
FORKING_ROWS = ("glibc", "jemalloc, tuned", "glibc, by hand", "jemalloc, tuned, by hand", "jemalloc, tuned, by hand, `PYTHONMALLOC=malloc`",
                "snug, no hooks", "snug")
FORKING_ALLOCATORS = {row: (label,) for row, label in zip(FORKING_ROWS, for_forks((), python=True), strict=True)}
FORKING_ALLOCATORS["snug"] += (for_forks((), python=False)[-1],)
# Of docs/decisions/0054: at most so many times the memory of these.
FORKING_GOALS = {
    ("tuned jemalloc", "Celery, 24 processes"): 0.25, ("tuned jemalloc", "Celery, 8 processes"): 0.40, ("tuned jemalloc", "gunicorn, 8 workers"): 0.60,
    ("tuned jemalloc", "Puma, 3 workers"): 0.85,
    **{("the best by hand", heading): 0.75 for heading in ("Celery, 24 processes", "Celery, 8 processes", "gunicorn, 8 workers")}}


# ---- values of one comparison ----

def load(workload, results=RESULTS):
    return json.loads((results / workload / "compare.json").read_text())


def medians(comparison, value):
    """{allocator: median over its runs that went well}"""
    values = {}
    for run in comparison["runs"]:
        if run["failure"] is None:
            values.setdefault(run["allocator"], []).append(value(run))
    return {allocator: statistics.median(several) for allocator, several in values.items()}


def mean_memory(comparison):
    """In MB, by the measure of the comparison: PSS where processes fork."""
    name = f"{comparison['summary']['memory_measure']}_mean_bytes"
    return medians(comparison, lambda run: run["memory"][name] / 1e6)


def page_faults(comparison):
    return medians(comparison, lambda run: run["minor_faults"] + run["major_faults"])


def cpu_time(comparison):
    return medians(comparison, lambda run: run["cpu_user_s"] + run["cpu_system_s"])


def wall_time(comparison):
    return medians(comparison, lambda run: run["wall_s"])


def allocator_percent(run):
    """The share of samples of CPU time that were in the allocator, its system calls, or page faults."""
    samples = run["cpu_samples"]
    return 100 * sum(samples[part] for part in ("allocator_code", "memory_calls", "page_faults")) / samples["total"]


def allocator_share(comparison):
    return medians(comparison, allocator_percent)


# ---- ratios over all of them ----

def ratios(values, other, allocator="snug"):
    """An allocator's ratio to another, or to what a function makes of all its peers, on each workload."""
    found = []
    for row in values:
        peers = {name: value for name, value in row.items() if name != allocator}
        found.append(row[allocator] / (other(peers) if callable(other) else row[other]))
    return found


def mean_and_range(found, digits=2):
    return f"{statistics.geometric_mean(found):.{digits}f} ({min(found):.{digits}f} to {max(found):.{digits}f})"


def change(low, high=None):
    """ "44 % less", "6 % more", "the same"; of a range "29 to 65 % less", "14 % less to 1 % more"."""
    percents = [round(100 * (ratio - 1)) for ratio in (low, low if high is None else high)]
    words = ["less" if percent < 0 else "more" for percent in percents]
    first, last = (abs(percent) for percent in percents)
    if high is None:
        return f"{first} % {words[0]}" if first else "the same"
    if words[0] != words[1]:
        return f"{first} % {words[0]} to {last} % {words[1]}"
    return f"{min(first, last)} to {max(first, last)} % {words[0]}"


def change_and_range(found):
    return f"**{change(statistics.geometric_mean(found))}** ({change(min(found), max(found))})"


def label_of(allocator, comparison, called=None):
    """What a row calls an allocator, with the version that ran."""
    one = next(one for one in comparison["allocators"] if one["label"] == allocator)
    name, _, settings = (called or ALLOCATORS[allocator]).partition(", ")
    return f"{name} {one['version'] or comparison['snug_version']}" + (f", {settings}" if settings else "")


def report(workload, baseline="glibc", results=RESULTS):
    """A comparison as `snug report` judges it."""
    command = [ROOT / "build/snug", "report", results / workload, "--baseline", baseline, "--json", "-"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def quantities(comparison, allocator):
    return next(row for row in comparison["summary"]["allocators"] if row["allocator"] == allocator)["quantities"]


def told_larger(workload):
    """Whether the interval of tuned jemalloc's memory is above snug's."""
    comparison = report(workload, "snug")
    low, _ = quantities(comparison, TUNED)[f"{comparison['summary']['memory_measure']}_mean_bytes"]["ratio"]["interval"]
    return low > 1


# ---- tables ----

def by_workload(heading, comparisons, value, digits, bold="snug"):
    """A table of medians, with the geometric mean of the ratios to glibc, least first."""
    values = [value(comparison) for comparison in comparisons.values()]
    rows = []
    for allocator in ALLOCATORS:
        ratio = statistics.geometric_mean(ratios(values, "glibc", allocator))
        cells = [label_of(allocator, next(iter(comparisons.values()))), *(f"{row[allocator]:.{digits}f}" for row in values), f"{ratio:.2f}"]
        rows.append((ratio, [f"**{cell}**" for cell in cells] if allocator == bold else cells))
    head = [heading, *comparisons, "× glibc"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *(cells for _, cells in sorted(rows))]
    return "\n".join("|" + "|".join(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def summary(comparisons):
    """README's few numbers of malloc alone."""
    of = comparisons.values()
    memory, share, faults = ([value(one) for one in of] for value in (mean_memory, allocator_share, page_faults))
    text = (f"On {len(comparisons)} servers with `malloc` alone, without hooks, memory is {change_and_range(ratios(memory, 'glibc'))} than under glibc, and "
            f"{change_and_range(ratios(memory, TUNED))} than under tuned jemalloc. The CPU time of the allocator, page faults included, is "
            f"{change(statistics.geometric_mean(ratios(share, 'glibc')))} and {change(statistics.geometric_mean(ratios(share, TUNED)))}, page faults are "
            f"{statistics.geometric_mean(ratios(faults, 'glibc')):.1f} and {statistics.geometric_mean(ratios(faults, TUNED)):.1f} times as many (3 runs each).")
    return textwrap.fill(text, 120)


def details(comparisons):
    """The ratios of measured.md: geometric mean, least and most."""
    of = list(comparisons.values())
    against = {"glibc": "glibc", "jemalloc": "jemalloc", "tuned jemalloc": TUNED,
               "the best peer": lambda peers: min(peers.values()), "the median peer": lambda peers: statistics.median(peers.values())}
    lines = [f"| snug, times that of | {' | '.join(against)} |", f"|---|{'--:|' * len(against)}"]
    for name, value in (("memory", mean_memory), ("CPU time of the allocator", allocator_share), ("CPU time in all", cpu_time),
                        ("page faults", page_faults)):
        values = [value(one) for one in of]
        lines.append(f"| {name} | {' | '.join(mean_and_range(ratios(values, other)) for other in against.values())} |")
    larger = [heading for heading, workload in WORKLOADS.items() if told_larger(workload)]
    return "\n".join([*lines, "", "Tuned jemalloc's memory is above snug's with 95 % confidence on:", f"{'; '.join(larger)}.", "", *dearer(of)])


def dearer(of):
    """What more CPU time than jemalloc's buys, on the servers where snug takes more."""
    def cpus_percent(one, allocator):
        return allocator_share(one)[allocator] * cpu_time(one)[allocator] / wall_time(one)[allocator]

    found = [(cpus_percent(one, "snug") - cpus_percent(one, "jemalloc"), mean_memory(one)["jemalloc"] - mean_memory(one)["snug"]) for one in of]
    found = [(percent, saved) for percent, saved in found if percent > 0]
    percents, saved = zip(*found, strict=True)
    yield f"Where snug costs more CPU time than jemalloc ({len(found)} of {len(of)} servers), it takes {min(percents):.1f} to"
    yield f"{max(percents):.1f} % of a CPU more and holds {min(saved):.0f} to {max(saved):.0f} MB less."


# ---- servers that fork ----

def metric(comparison, name):
    """{row of FORKING_ALLOCATORS: median of what the driver printed as NAME, or of the first of several names}; without those that did not run"""
    names = (name,) if isinstance(name, str) else name
    found = medians(comparison, lambda run: next(run["metrics"][one] for one in names if one in run["metrics"]))
    return {row: found[label] for row, labels in FORKING_ALLOCATORS.items() for label in labels if label in found}


def forking_rows(comparisons):
    """{row: what tables call it}, by the first comparison that has it"""
    labels = {}
    for comparison in comparisons.values():
        ran = {one["label"] for one in comparison["allocators"]}
        for row, several in FORKING_ALLOCATORS.items():
            for label in ran.intersection(several):
                labels.setdefault(row, label_of(label, comparison, row))
    return {row: labels[row] for row in FORKING_ALLOCATORS}


def forking_table(heading, comparisons, names, digits=0):
    """A table of medians; a cell is empty where that did not run."""
    columns = [metric(one, names) for one in comparisons.values()]
    lines = [f"| {heading} | {' | '.join(comparisons)} |", f"|---|{'--:|' * len(comparisons)}"]
    for row, label in forking_rows(comparisons).items():
        cells = [label, *(f"{column[row]:,.{digits}f}" if row in column else "" for column in columns)]
        lines.append(f"| {' | '.join(f'**{cell}**' if row == 'snug' else cell for cell in cells)} |")
    return "\n".join(lines)


def forking_summary(comparisons):
    """README's: each server under glibc as it is, under jemalloc as the field tunes it, under snug as it comes."""
    shown = {row: label for row, label in forking_rows(comparisons).items() if row in ("glibc", "jemalloc, tuned", "snug")}
    lines = [f"| MB in all processes, {rounds_of(comparisons)} each | {' | '.join(shown.values())} | snug / jemalloc |", f"|---|{'--:|' * (len(shown) + 1)}"]
    for heading, comparison in comparisons.items():
        values = metric(comparison, "anonymous_pss_mb")
        cells = [f"**{values[row]:,.0f}**" if row == "snug" else f"{values[row]:,.0f}" for row in shown]
        lines.append(f"| {heading} | {' | '.join(cells)} | {values['snug'] / values['jemalloc, tuned']:.2f} |")
    return "\n".join(lines)


def forking_ratios(comparisons):
    """What snug holds, times what others do, beside the goals of docs/decisions/0054."""
    lines = [f"| snug's memory under load, times that of | {' | '.join(comparisons)} |", f"|---|{'--:|' * len(comparisons)}"]
    against = {"glibc": ("glibc",), "tuned jemalloc": ("jemalloc, tuned",), "the best by hand": [row for row in FORKING_ALLOCATORS if "by hand" in row]}
    for name, rows in against.items():
        cells = []
        for heading, comparison in comparisons.items():
            values = metric(comparison, "anonymous_pss_mb")
            goal = FORKING_GOALS.get((name, heading))
            cells.append(f"{values['snug'] / min(values[row] for row in rows if row in values):.2f}" + (f" (goal {goal:.2f})" if goal else ""))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    speeds = (forking_speed(FORKING[heading]) for heading in comparisons)
    lines.append(f"| throughput, times tuned jemalloc's | {' | '.join(f'{ratio:.2f} ({low:.2f} to {high:.2f})' for ratio, low, high in speeds)} |")
    return "\n".join(lines)


def forking_speed(workload, quantities_named=("metric:requests_per_s", "metric:tasks_per_s")):
    """(ratio, least, most) of snug's throughput to tuned jemalloc's, or of another quantity."""
    judged = report(workload, TUNED, FORKS_RESULTS)
    label = next(label for label in FORKING_ALLOCATORS["snug"] if any(one["label"] == label for one in judged["allocators"]))
    of = quantities(judged, label)
    ratio = next(of[name] for name in quantities_named if name in of)["ratio"]
    return ratio["value"], *ratio["interval"]


def rounds_of(comparisons):
    rounds = sorted({one["settings"]["rounds"] for one in comparisons.values()})
    return ("1 run" if rounds == [1] else f"{rounds[0]} runs") if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]} runs"


def forking_details(comparisons):
    """The tables of hooks.md: memory under load, when idle, what a worker has for itself, and speed."""
    failed = sum(run["failure"] is not None for one in comparisons.values() for run in one["runs"])
    return "\n\n".join([
        f"Medians of {rounds_of(comparisons)} each; {failed or 'none'} failed.",
        forking_ratios(comparisons),
        forking_table("memory under load, MB", comparisons, "anonymous_pss_mb"),
        forking_table("idle, 6 s after it", comparisons, "idle_anonymous_pss_mb"),
        forking_table("a worker's own", comparisons, "worker_private_mb"),
        forking_table("requests or tasks per second", comparisons, ("requests_per_s", "tasks_per_s"), 1)])


def small_programs():
    comparisons = [load(program, SMALL_RESULTS) for program in SMALL]
    memory, faults = ([value(one) for one in comparisons] for value in (mean_memory, page_faults))
    return "\n".join(["| five small programs | snug, times that of glibc |", "|---|--:|",
                      f"| memory (glibc's: at most {max(row['glibc'] for row in memory):.0f} MB) | {mean_and_range(ratios(memory, 'glibc'))} |",
                      f"| page faults | {mean_and_range(ratios(faults, 'glibc'))} |"])


def blocks():
    """(page, mark, what belongs between the marks)"""
    comparisons = {heading: load(workload) for heading, workload in WORKLOADS.items()}
    yield "README.md", "memory", summary(comparisons)
    yield "docs/explanation/measured.md", "ratios", details(comparisons)
    yield "docs/explanation/measured.md", "memory", by_workload("mean memory, MB", comparisons, mean_memory, 0)
    yield "docs/explanation/measured.md", "cpu", by_workload("CPU time for the allocator, %", comparisons, allocator_share, 2)
    yield "docs/explanation/measured.md", "small", small_programs()
    forking = {heading: load(workload, FORKS_RESULTS) for heading, workload in FORKING.items()}
    yield "README.md", "forks", forking_summary(forking)
    yield "docs/how-to/hooks.md", "forks", forking_details(forking)


def with_block(text, name, mark, block):
    whole = re.compile(rf"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
    if len(whole.findall(text)) != 1:
        raise SystemExit(f"bench/update-measured: {name} needs the marks {mark}:begin and {mark}:end, once")
    return whole.sub(lambda found: f"{found[1]}{block}\n{found[2]}", text)


def main():
    parser = argparse.ArgumentParser(prog="bench/update-measured", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, say what is out of date")
    only_check = parser.parse_args().check
    stale = []
    for name, mark, block in blocks():
        path = ROOT / name
        old = path.read_text()
        new = with_block(old, name, mark, block)
        if new != old:
            stale.append(f"{name}: {mark}")
            if not only_check:
                path.write_text(new)
    if stale and only_check:
        print(f"{', '.join(stale)}: differs from the runs in bench/results; run bench/update-measured", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
