"""The page about a soak: what ran, each trend with its bound, the verdict."""

import platform

from . import services, trend

MB = 1_000_000
WARM_UP_SHARE = 0.25  # of the samples: caches fill, interpreters settle

# Column, its name, least bound, what to divide by, unit. Less growth than the least bound means nothing for a server.
MEASURES = (("live_bytes", "live", 4 * MB, MB, "MB"), ("resident_bytes", "resident", 8 * MB, MB, "MB"),
            ("maps", "mappings", 20, 1, ""), ("threads", "threads", 2, 1, ""), ("descriptors", "descriptors", 3, 1, ""))
LIMITS = {"podman": "podman containers with memory limits", "control group": "control groups with memory limits",
          "none": "no containers and **no memory limits**, as neither could be made on this machine"}


def trends(rows):
    """[(service, measure, Trend)] of the samples after the warm-up."""
    found = []
    for kind in services.ALL:
        own = [row for row in rows if row["service"] == kind.name]
        settled = own[int(len(own) * WARM_UP_SHARE):]
        for measure in MEASURES:
            found.append((kind.name, measure, trend.judge([row[measure[0]] for row in settled], measure[2])))
    return found


def verdict(found, failures):
    """(what it comes to, exit status)"""
    growing = [f"{measure[1]} of {service}" for service, measure, result in found if result.verdict == "growing"]
    undecided = [f"{measure[1]} of {service}" for service, measure, result in found if result.verdict == "undecided"]
    if failures:
        return "failed: " + "; ".join(failures), 1
    if not found:
        return "failed: there is no sample", 1
    if growing:
        return "not flat: " + ", ".join(growing), 1
    if undecided:
        return "undecided, a longer run is needed: " + ", ".join(undecided), 3
    return "flat: nothing grew, nothing failed, nothing was killed", 0


def _number(value, measure):
    return f"{value / measure[3]:,.1f}".rstrip("0").rstrip(".") + (f" {measure[4]}" if measure[4] else "")


def _row(service, measure, result):
    interval = f"{_number(result.low, measure)} to {_number(result.high, measure)}"
    return (f"| {service} | {measure[1]} | {_number(result.median, measure)} | {_number(result.growth, measure)} | {interval} | "
            f"{_number(result.bound, measure)} | {result.verdict} |")


def write(soak, arguments):
    """(text of the page, exit status)"""
    found = trends(soak.rows) if soak.rows else []
    outcome, status = verdict(found, soak.failures)
    minutes = max((row["minute"] for row in soak.rows), default=0)
    loads = sorted(row["load"] for row in soak.rows) or [0.0]
    work = ", ".join(f"{service.name} {service.units} units, {service.renewed} workers renewed by us, {service.errors} errors"
                     for service in soak.services)
    lines = [
        "# Soak", "", f"**{outcome[0].upper() + outcome[1:]}.**", "",
        f"{minutes} of {arguments.minutes} minutes, sources at {soak.commit}, Linux {platform.release()}, in {LIMITS[soak.kind.kind]}; "
        f"work in {arguments.busy_share:.0%} of each minute. Load of the machine: median {loads[len(loads) // 2]}, "
        f"highest {loads[-1]}. {arguments.note}".rstrip(), "",
        f"Work done: {work}. Celery renews its workers itself after {services.Celery.TASKS_PER_CHILD} tasks.", "",
        f"Of each series the first {WARM_UP_SHARE:.0%} are warm-up. Growth is over the rest of the time, by Sen's slope of the medians of "
        f"up to {trend.BLOCKS} stretches, with its 98 % interval; flat means that the upper end is below the bound, which is "
        f"{trend.BOUND_SHARE:.0%} of the median or a number that matters, whichever is more; growing, that the lower end is above it. Mappings: the most that one process has; "
        "else sums over the processes of a service (live: what a worker inherited counts again there). Resident is PSS.", "",
        "| service | of | median | growth | interval | bound | verdict |", "|---|---|--:|--:|--:|--:|---|",
        *(_row(*entry) for entry in found), "", "Every minute's numbers are in samples.csv.", "",
        "Again: `make soak HOURS=12`, or `make soak MINUTES=40`."]
    return "\n".join(lines) + "\n", status
