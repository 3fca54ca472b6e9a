"""What a compare.json of `snug compare` says about each allocator, as the summary needs it. Pure."""

import math
import statistics
from dataclasses import dataclass, field

# Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1; above them the normal distribution's.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
               2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048)
NORMAL_QUANTILE = 1.960
# Quantities of a row, in the order of the tables: name, heading, whether more is better, decimals.
QUANTITIES = (("memory_mb", "mean memory, MB", False, 1), ("throughput", "per s", True, 1),
              ("p99_ms", "p99, ms", False, 1), ("faults", "page faults, thousands", False, 1),
              ("idle_mb", "idle, MB", False, 1), ("private_mb", "mean private (USS), MB", False, 1),
              ("worker_private_mb", "written by a worker for itself, MB", False, 1))


@dataclass
class Row:
    """One allocator on one workload. Each quantity is a list with one value for each run that went well."""

    label: str
    name: str
    kind: str
    tuned: bool = False  # by settings in its environment
    failed: int = 0
    values: dict = field(default_factory=dict)

    def mean(self, quantity):
        """The mean of the runs, or None if it was not measured."""
        values = self.values.get(quantity)
        return statistics.fmean(values) if values else None


@dataclass
class Result:
    """One workload: what was run, where, and a row for each allocator."""

    workload: str
    measure: str  # "RSS", or "PSS" where several processes share pages
    throughput_name: str
    comparison: dict
    rows: list

    def snug(self):
        """The row of snug as it is, or None if none of its runs went well."""
        return next((row for row in self.rows if row.kind == "snug" and row.values), None)

    def quantities(self):
        """Those of QUANTITIES that were measured under some allocator."""
        return [quantity for quantity in QUANTITIES if any(row.values.get(quantity[0]) for row in self.rows)]

    def peers(self):
        """Rows of the others that ran well at least once."""
        return [row for row in self.rows if row.kind != "snug" and row.values]


def display_name(allocator):
    """Kind, version and settings: "jemalloc 5.3.0, narenas:2"."""
    file = allocator["label"].partition(":")[0].rpartition("/")[2]
    kind = allocator["kind"]
    if kind == "other":
        kind = file.partition(".so")[0].removeprefix("lib")
    version = (allocator.get("version") or file.partition(".so.")[2]).removeprefix("library ")
    return ", ".join([f"{kind} {version}".strip(), *settings_of(allocator)])


def settings_of(allocator):
    """What its environment sets, as ["narenas:2"]."""
    return [value if name == "MALLOC_CONF" else f"{name}={value}"
            for name, value in allocator["environment"].items() if name != "LD_PRELOAD"]


def quantities_of(run, measure, throughput_name):
    """The quantities of one run that were measured."""
    metrics = run["metrics"]
    memory = run["memory"].get(f"{measure.lower()}_mean_bytes")
    found = {"memory_mb": memory and memory / 1e6, "throughput": metrics.get(throughput_name),
             "p99_ms": metrics.get("p99_ms"), "faults": (run["minor_faults"] + run["major_faults"]) / 1e3,
             "idle_mb": metrics.get(f"idle_{measure.lower()}_mb", metrics.get("idle_rss_mb", metrics.get("idle_pss_mb")))}
    if measure == "PSS" and "uss_mean_bytes" in run["memory"]:
        found["private_mb"] = run["memory"]["uss_mean_bytes"] / 1e6
    for name in ("worker_private_mb", "worker_private_outside_mb"):
        found[name] = metrics.get(name)
    return {name: value for name, value in found.items() if value is not None}


def read(workload, comparison):
    """The Result of a parsed compare.json."""
    measure = comparison["summary"]["memory_measure"].upper()
    names = [name for run in comparison["runs"] for name in run["metrics"] if name.endswith("_per_s")]
    throughput_name = names[0] if names else ""
    rows = []
    for allocator in comparison["allocators"]:
        row = Row(allocator["label"], display_name(allocator), allocator["kind"], bool(settings_of(allocator)))
        for run in (run for run in comparison["runs"] if run["allocator"] == allocator["label"]):
            if run["failure"] is not None:
                row.failed += 1
                continue
            for name, value in quantities_of(run, measure, throughput_name).items():
                row.values.setdefault(name, []).append(value)
        rows.append(row)
    return Result(workload, measure, throughput_name, comparison, rows)


def differs(left, right):
    """Whether the means of two lists differ by more than the runs scatter: Welch's t-test at 5 %.

    With fewer than two values on a side there is no scatter to judge by: any difference counts.
    """
    difference = statistics.fmean(left) - statistics.fmean(right)
    if len(left) < 2 or len(right) < 2:
        return difference != 0
    parts = [statistics.variance(values) / len(values) for values in (left, right)]
    if sum(parts) == 0:
        return difference != 0
    freedom = sum(parts) ** 2 / sum(part ** 2 / (len(values) - 1) for part, values in zip(parts, (left, right)))
    place = max(1, math.floor(freedom)) - 1
    quantile = T_QUANTILES[place] if place < len(T_QUANTILES) else NORMAL_QUANTILE
    return abs(difference) > quantile * math.sqrt(sum(parts))
