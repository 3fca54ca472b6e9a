"""The page about a soak: what ran, each trend with its bound, the verdict."""

import statistics

from . import peaks, services, trend

MB = 1_000_000
WARM_UP_SHARE = 0.25  # of a slice's samples: caches fill, interpreters settle
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


def _settled(rows, service):
    """The samples of a service after the warm-up, a list for each slice."""
    by_slice = {}
    for row in rows:
        if row["service"] == service:
            by_slice.setdefault(row["slice"], []).append(row)
    return [own[int(len(own) * WARM_UP_SHARE):] for own in by_slice.values()]


def trends(rows):
    """[(service, measure, Trend)] of the samples after the warm-up of each slice."""
    found = []
    for kind in services.ALL:
        settled = _settled(rows, kind.name)

        def values(measure, settled=settled):
            return [[row[measure[0]] for row in own] for own in settled]

        found += [(kind.name, measure, trend.of_memory(values(measure), services.RENEW_EVERY)) for measure in MEMORY]
        found += [(kind.name, measure, trend.of_counts(values(measure), measure[4])) for measure in COUNTS]
        found += [(kind.name, measure, trend.not_judged(values(measure))) for measure in WANDERING
                  if any(map(any, values(measure)))]
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


def _killed(slices):
    """How often memory was made short, and whom the kernel killed for it, in a sentence."""
    limited = [ran for ran in slices if ran["container"] != "none"]
    if not limited:
        return "Without limits memory was never made short, and nobody counted who was killed."
    pressures, of_pressure, of_service = (sum(ran.get(name, 0) for ran in limited)
                                          for name in ("pressures", "pressure_kills", "service_kills"))
    return (f"Memory was made short {pressures} times, by a process in the service's container that the kernel kills first. "
            f"It killed that process {of_pressure} times, and of the services {of_service} processes.")


def watched(answer):
    """What `snug leak --json` said of what is in use and of memory: two words."""
    def word(judged):
        direction = judged["direction"] if judged else None
        return direction if isinstance(direction, str) else "undecided"
    return [word(answer["judgement"]["used"]), word(answer["judgement"]["memory"])]


def _watched(slices):
    """What snug leak said of each service in each slice, in a sentence."""
    said = {}
    for ran in slices:
        for name, (used, memory) in ran["watched"].items():
            said.setdefault(name, []).append(f"{used} and {memory}")
    return ["`snug leak`, which watched each service after the warm-up, work and renewals included, calls what is in use and PSS, "
            f"slice by slice: {'; '.join(f'{name} ' + ', '.join(words) for name, words in said.items())}.", ""] if said else []


def _shorter(minutes, longest):
    """Says so if it was not a whole soak, or not one without a new start."""
    hours = f"{FULL_MINUTES // 60} hours"
    if longest > FULL_MINUTES - 2:  # the last sample is of a moment before the end
        return []
    if minutes > FULL_MINUTES - 2:
        return [f"**No service ran longer than {longest:.0f} minutes**: between slices all started again, so that what grows slower "
                "than the intervals say in that time has not been looked for.", ""]
    return [f"**Not the {hours} that a soak is meant to take**: what grows slower than the intervals say has not been looked for.", ""]


def _slice_rows(slices, rows):
    """A table of the slices: when, what of, how long, what happened, how busy the machine was, how much memory each service had."""
    lines = ["| slice | began | sources | uptime | minutes | rounds | units of work | workers renewed | load, median and highest | "
             + " | ".join(f"{kind.name}, MB" for kind in services.ALL) + " | ended |", "|--:|---|---|--:|--:|--:|--:|--:|--:|" + "--:|" * len(services.ALL) + "---|"]
    for ran in slices:
        own = [row for row in rows if row["slice"] == ran["slice"]]
        loads = sorted(row["load"] for row in own) or [0.0]
        levels = [[row["resident_bytes"] for row in own if row["service"] == kind.name] for kind in services.ALL]
        work = ran["work"].values()
        lines.append(
            f"| {ran['slice']} | {ran['began']} | {ran['commit']} | {ran['uptime_hours']:,} h | {ran['minutes']:.0f} | {ran['rounds']} | "
            f"{sum(done['units'] for done in work):,} | {sum(done['renewed'] for done in work):,} | "
            f"{loads[len(loads) // 2]}, {loads[-1]} | "
            + " | ".join(f"{statistics.median(level) / MB:.1f}" if level else "" for level in levels)
            + f" | {'failed' if ran['failures'] else ran['state']} |")
    return lines


def _conditions(slices):
    """Where the slices ran, in a sentence."""
    kernels = ", ".join(sorted({ran["linux"] for ran in slices}))
    places = ", ".join(sorted({LIMITS[ran["container"]] for ran in slices}))
    notes = " ".join(f"Slice {ran['slice']}: {ran['note']}" for ran in slices if ran["note"])
    nice = ", ".join(map(str, sorted({ran["niceness"] for ran in slices})))
    shares = ", ".join(sorted({f"{ran['busy_share']:.0%}" for ran in slices}))
    return f"Linux {kernels}, in {places}; work in {shares} of each round; niceness {nice}. {notes}".rstrip()


def write(slices):
    """(text of the page, exit status)"""
    ran, rows = slices.all, slices.rows
    found = trends(rows) if rows else []
    outcome, status = verdict(found, [f"slice {one['slice']}: {failure}" for one in ran for failure in one["failures"]])
    minutes, longest = sum(one["minutes"] for one in ran), max(one["minutes"] for one in ran)
    phases = {}
    for one in ran:
        for name, times in one["phases"].items():
            phases[name] = phases.get(name, 0) + times
    errors = sum(done["errors"] for one in ran for done in one["work"].values())
    lines = [
        "# Soak", "", f"**{outcome[0].upper() + outcome[1:]}.**", "",
        f"{minutes:.0f} minutes in {len(ran)} slice{'s' if len(ran) > 1 else ''}, {sum(one['rounds'] for one in ran)} rounds, {errors} errors. {_conditions(ran)}", "",
        *_shorter(minutes, longest), *_slice_rows(ran, rows), "",
        "Sources: the commit of the library and of the tool. Uptime: the time since boot that the services saw. MB: the median of "
        f"PSS. Celery renews its workers itself after {services.Celery.TASKS_PER_CHILD} tasks, too.", "",
        "Rounds by phase: " + ", ".join(f"{name} {times}" for name, times in sorted(phases.items(), key=lambda entry: -entry[1]))
        + ". At day work comes as it does, at night none; a burst asks for four times as much at once; a deploy renews all workers; "
        "under pressure the container is full to the brim.", "",
        _killed(ran), "",
        f"Samples are taken in quiet moments. For them each service does the same work every time, Celery by renewed workers, and Ruby "
        f"collects its garbage. The first {WARM_UP_SHARE:.0%} of each slice are warm-up; growth is over the rest of the longest slice, "
        "judged by all. Of memory, live bytes and PSS (resident), it is that of straight lines of one slope through the samples of each "
        f"slice, with a 95 % interval, and the bound is {trend.BOUND_SHARE:.0%} of the level; workers are renewed every {services.RENEW_EVERY} rounds, and what comes back with that "
        "is left out (bench/soak/trend.py). Of counts it is the median of the last thirds less that of the first, and the bound is "
        f"{trend.BOUND_SHARE:.0%} or a number that matters, whichever is more. Mappings: the most that one process has; threads and descriptors: "
        "sums over the processes of a service. Ruby maps and unmaps pages of its own heap, and how many mappings that makes wanders under every "
        "allocator (docs/decisions/0042-whose-mappings-wander.md): those are shown, not judged. All others are: snug's heap and "
        "large blocks, stacks, files, and what nobody knows.", "",
        "| service | of | level | growth | interval | bound | verdict |", "|---|---|--:|--:|--:|--:|---|",
        *(_row(*entry) for entry in found), "",
        *peaks.table(ran, {kind.name: kind.limit_mb for kind in services.ALL}), *_watched(ran), "Every round's numbers are in samples.csv.", "",
        "Again: `make soak HOURS=12`, or in slices: `make soak MINUTES=100 RESULTS=build/soak/mine`, then "
        "`make soak MINUTES=100 RESUME=build/soak/mine`."]
    return "\n".join(lines) + "\n", status
