"""What `snug report --json --baseline` says about each allocator, as the page needs it: its medians, and whether they
differ from snug's. Pure.

Nothing is estimated or judged here: `snug` does that, for this page as for the reports beside it.
"""

from dataclasses import dataclass, field

from ..workloads.harness.options import BY_HAND, HOOKS_VARIABLE
from . import shown

# Quantities of a row, in the order of the tables: name, heading, whether more is better, decimals.
QUANTITIES = (("memory_mb", "mean memory, MB", False, 1), ("throughput", "per s", True, 1),
              ("p99_ms", "p99, ms", False, 1), ("faults", "page faults, thousands", False, 1),
              ("cpu_percent", "CPU time for the allocator, %", False, 1), ("idle_mb", "idle, MB", False, 1),
              ("private_mb", "mean private (USS), MB", False, 1),
              ("worker_private_mb", "written by a worker for itself, MB", False, 1))


@dataclass(frozen=True)
class Estimate:
    """The median of the runs that went well, as `snug report` prints it and as it was before it was rounded, and its ratio to
    snug's, as `snug report` has it; None if there is none."""

    median: float
    exact: float
    ratio: dict | None = None

    def differs(self):
        """Whether the interval leaves 1 out. A single run has none, and where a value is 0 there is no ratio: then any
        difference counts."""
        if self.ratio is None:
            return True
        if self.ratio["interval"] is None:
            return self.ratio["value"] != 1
        low, high = self.ratio["interval"]
        return not low <= 1 <= high

    def may_be_chance(self):
        """Whether one such difference is to be expected among as many ratios as the report shows."""
        p_value = self.ratio and self.ratio["adjusted_p_value"]
        return p_value is not None and p_value >= 0.05


@dataclass
class Row:
    """One allocator on one workload, with the estimates of what was measured."""

    label: str
    name: str
    kind: str
    tuned: bool = False  # by settings in its environment
    hooks: bool = False  # the server had the hooks of bindings/, or what people do by hand instead
    good: int = 0  # runs
    failed: int = 0
    values: dict = field(default_factory=dict)

    def median(self, quantity):
        """As it is printed; None if it was not measured."""
        estimate = self.values.get(quantity)
        return estimate.median if estimate else None

    def exact(self, quantity):
        """The same before it was rounded: which of two rows that look alike is the better one."""
        estimate = self.values.get(quantity)
        return estimate.exact if estimate else None


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
        return self.snug_with(hooks=False)

    def snug_with(self, hooks):
        """The row of snug whose server had hooks, or had none; None if none of its runs went well."""
        return next((row for row in self.rows if row.kind == "snug" and row.hooks == hooks and row.values), None)

    def quantities(self):
        """Those of QUANTITIES that were measured under some allocator."""
        return [quantity for quantity in QUANTITIES if any(row.values.get(quantity[0]) for row in self.rows)]

    def peers(self, hooks=False):
        """Rows of the others that ran well at least once, of servers with hooks or of those without."""
        return [row for row in self.rows if row.kind != "snug" and row.hooks == hooks and row.values]


def display_name(allocator):
    """Kind, version and settings: "jemalloc 5.3.0, narenas:2"."""
    file = allocator["label"].partition(":")[0].rpartition("/")[2]
    kind = allocator["kind"]
    if kind == "other":
        kind = file.partition(".so")[0].removeprefix("lib")
    version = (allocator.get("version") or file.partition(".so.")[2]).removeprefix("library ")
    return ", ".join([f"{kind} {version}".strip(), *settings_of(allocator), *care(allocator)])


def care(allocator):
    """How the server was readied for forks beside its allocator, as ["with hooks"]; [] if it was not."""
    return [{BY_HAND: "by hand"}.get(allocator["environment"][HOOKS_VARIABLE], "with hooks")] if has_hooks(allocator) else []


def has_hooks(allocator):
    """Whether the server had the hooks of bindings/, or what people do by hand instead."""
    return allocator["environment"].get(HOOKS_VARIABLE, "0") != "0"


def settings_of(allocator):
    """What its environment sets, as ["narenas:2"]; hooks are the server's."""
    return [value if name == "MALLOC_CONF" else f"{name}={value}"
            for name, value in allocator["environment"].items() if name not in ("LD_PRELOAD", HOOKS_VARIABLE)]


def quantities_of(row, measure, throughput_name):
    """The estimates of a row of the summary, by our names."""
    measure = measure.lower()
    idle = next((name for name in (f"metric:idle_{measure}_mb", "metric:idle_rss_mb", "metric:idle_pss_mb")
                 if name in row["quantities"]), "")
    sources = {"memory_mb": (f"{measure}_mean_bytes", 1e-6), "throughput": (f"metric:{throughput_name}", 1),
               "p99_ms": ("metric:p99_ms", 1), "faults": ("page_faults", 1e-3), "cpu_percent": ("allocator_cpu_percent", 1),
               "idle_mb": (idle, 1),
               "worker_private_mb": ("metric:worker_private_mb", 1),
               "worker_private_outside_mb": ("metric:worker_private_outside_mb", 1)}
    if measure == "pss":
        sources["private_mb"] = ("uss_mean_bytes", 1e-6)
    found = {}
    for name, (source, factor) in sources.items():
        estimate = row["quantities"].get(source)
        if estimate is not None:
            median = estimate["median"]
            printed = shown.count(median) * factor if name == "faults" else shown.number(median * factor)
            found[name] = Estimate(printed, median * factor, estimate["ratio"])
    return found


def label_of_snug(comparison):
    """By which snug as it is goes, or None: the baseline to ask `snug report` for."""
    return next((allocator["label"] for allocator in comparison["allocators"]
                 if allocator["kind"] == "snug" and not has_hooks(allocator)), None)


def read(workload, comparison, against_snug):
    """The Result of what `snug report --json` wrote: as it is, and with snug as the baseline."""
    summary = comparison["summary"]
    measure = summary["memory_measure"].upper()
    names = [name for row in summary["allocators"] for name in row["quantities"] if name.endswith("_per_s")]
    throughput_name = names[0].removeprefix("metric:") if names else ""
    allocators = {allocator["label"]: allocator for allocator in comparison["allocators"]}
    rows = []
    for row in against_snug["summary"]["allocators"]:
        allocator = allocators[row["allocator"]]
        rows.append(Row(row["allocator"], display_name(allocator), allocator["kind"], bool(settings_of(allocator)),
                        has_hooks(allocator), row["runs"], row["failed_runs"], quantities_of(row, measure, throughput_name)))
    return Result(workload, measure, throughput_name, comparison, rows)
