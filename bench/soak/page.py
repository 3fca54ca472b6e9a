"""The page about a soak: what ran, each trend with its bound, the verdict."""

import platform

from . import services, trend

MB = 1_000_000
WARM_UP_SHARE = 0.25  # of the samples: caches fill, interpreters settle
FULL_MINUTES = 720  # what a soak is meant to take

# Column, its name, what to divide by, unit.
MEMORY = (("live_bytes", "live", MB, "MB"), ("resident_bytes", "resident", MB, "MB"))
# Column, its name, what to divide by, unit, least bound: less growth means nothing for a server.
COUNTS = (("maps_but_ruby", "mappings but for Ruby's heap", 1, "", 20), ("threads", "threads", 1, "", 2),
          ("descriptors", "descriptors", 1, "", 3))
# The same, without a bound: the interpreter's own, which wander under every allocator.
WANDERING = (("maps_ruby", "mappings of Ruby's heap", 1, ""),)
LIMITS = {"podman": "podman containers with memory limits", "control group": "control groups with memory limits",
          "none": "no containers and **no memory limits**, as neither could be made on this machine"}


def trends(rows):
    """[(service, measure, Trend)] of the samples after the warm-up."""
    found = []
    for kind in services.ALL:
        own = [row for row in rows if row["service"] == kind.name]
        settled = own[int(len(own) * WARM_UP_SHARE):]
        for measure in MEMORY:
            found.append((kind.name, measure, trend.of_memory([row[measure[0]] for row in settled], services.RENEW_EVERY)))
        for measure in COUNTS:
            found.append((kind.name, measure, trend.of_counts([row[measure[0]] for row in settled], measure[4])))
        for measure in WANDERING:
            values = [row[measure[0]] for row in settled]
            if any(values):
                found.append((kind.name, measure, trend.not_judged(values)))
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
    return "flat: nothing grew, nothing failed, no process of a service was killed", 0


def _number(value, measure):
    return f"{value / measure[2]:,.1f}".rstrip("0").rstrip(".") + (f" {measure[3]}" if measure[3] else "")


def _row(service, measure, result):
    interval = " to ".join(_number(end, measure) for end in result.interval or ())
    bound = "" if result.bound is None else _number(result.bound, measure)
    return (f"| {service} | {measure[1]} | {_number(result.level, measure)} | {_number(result.growth, measure)} | {interval} | "
            f"{bound} | {result.verdict} |")


def _killed(soak):
    """Whom the kernel killed for memory, in a sentence."""
    if soak.kind.kind == "none":
        return "Without limits memory was never made short, and nobody counted who was killed."
    counted = soak.kills.values()
    return (f"Memory was made short {sum(kills.pressures for kills in counted)} times, by a process in the service's container "
            "that the kernel kills first. It killed that process "
            f"{sum(kills.of_pressure for kills in counted)} times, and of the services {sum(kills.of_service for kills in counted)} processes.")


def _watched(watched):
    """What snug leak said of each service, in a sentence."""
    def word(direction):
        return direction if isinstance(direction, str) else "undecided"
    said = [f"{name} {word(answer['judgement']['used']['direction'])} and {word(answer['judgement']['memory']['direction'])}"
            for name, answer in watched.items() if answer["judgement"]["used"] and answer["judgement"]["memory"]]
    return ["`snug leak`, which watched each service after the warm-up, work and renewals included, calls what is in use and PSS: "
            f"{', '.join(said)}.", ""] if said else []


def _shorter(minutes):
    """Says so if it was not the whole soak."""
    if minutes > FULL_MINUTES - 2:  # the last sample is of a moment before the end
        return []
    return [f"**Not the {FULL_MINUTES // 60} hours that a soak is meant to take**: what grows slower than the intervals say has not been looked for.", ""]


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
        f"{minutes:.0f} of {arguments.minutes} minutes, {soak.rounds} rounds of work, sources at {soak.commit}, Linux {platform.release()}, in {LIMITS[soak.kind.kind]}; "
        f"work in {arguments.busy_share:.0%} of each round. Load of the machine: median {loads[len(loads) // 2]}, "
        f"highest {loads[-1]}. {arguments.note}".rstrip(), "",
        *_shorter(minutes),
        f"Work done: {work}. Celery renews its workers itself after {services.Celery.TASKS_PER_CHILD} tasks.", "",
        _killed(soak), "",
        f"Samples are taken in quiet moments. For them each service does the same work every time, Celery by renewed workers, and Ruby collects its garbage. The first {WARM_UP_SHARE:.0%} are warm-up; growth is over the rest. Of memory, live bytes and PSS (resident), it is that of a straight line through the samples, "
        f"with a 95 % interval, and the bound is {trend.BOUND_SHARE:.0%} of the level; workers are renewed every {services.RENEW_EVERY} rounds, and what comes back with that "
        "is left out (bench/soak/trend.py). Of counts it is the median of the last third less that of the first, and the bound is "
        f"{trend.BOUND_SHARE:.0%} or a number that matters, whichever is more. Mappings: the most that one process has; threads and descriptors: "
        "sums over the processes of a service. Ruby maps and unmaps pages of its own heap, and how many mappings that makes wanders under every "
        "allocator (docs/decisions/0042-whose-mappings-wander.md): those are shown, not judged. All others are: snug's heap and "
        "large blocks, stacks, files, and what nobody knows.", "",
        "| service | of | level | growth | interval | bound | verdict |", "|---|---|--:|--:|--:|--:|---|",
        *(_row(*entry) for entry in found), "", *_watched(soak.watched), "Every round's numbers are in samples.csv.", "",
        "Again: `make soak HOURS=12`, or `make soak MINUTES=40`."]
    return "\n".join(lines) + "\n", status
