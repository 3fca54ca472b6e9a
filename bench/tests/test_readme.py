"""Tests that README.md and docs/guide/measured.md say what was measured: each number is worked out anew from the runs
in bench/results. Run: tools/run_unittests.py bench/tests (standard library only)."""

import json
import math
import re
import statistics
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results/2026-11-27-full"
SMALL_RESULTS = ROOT / "bench/results/2026-11-25-small"
README = (ROOT / "README.md").read_text()
MEASURED = (ROOT / "docs/guide/measured.md").read_text()
# Columns of README's table, and the workloads that they show.
WORKLOADS = {"Ruby, 32 threads": "ruby_threads", "Rails on Puma": "rails_puma", "Puma, 3 workers": "rails_puma_cluster",
             "Sidekiq": "sidekiq", "Celery, 8 processes": "celery_prefork", "Celery, 20 threads": "celery_threads"}
TUNED = "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0"
# Rows of the table, and the allocators' names in compare.json.
ALLOCATORS = {"snug 0.2.0": "snug", "jemalloc 5.3.0, tuned": TUNED, "mimalloc 2.0.9": "mimalloc", "jemalloc 5.3.0": "jemalloc",
              "glibc 2.36, `MALLOC_ARENA_MAX=2`": "glibc:MALLOC_ARENA_MAX=2", "glibc 2.36": "glibc"}
SMALL = ("ruby_script", "rails", "gunicorn", "celery", "sidekiq")


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


COMPARISONS = {workload: load(workload) for workload in WORKLOADS.values()}
MEMORY = {workload: mean_memory(comparison) for workload, comparison in COMPARISONS.items()}
FAULTS = {workload: medians(comparison, lambda run: run["minor_faults"] + run["major_faults"])
          for workload, comparison in COMPARISONS.items()}
CPU = {workload: medians(comparison, lambda run: run["cpu_user_s"] + run["cpu_system_s"])
       for workload, comparison in COMPARISONS.items()}
WALL = {workload: medians(comparison, lambda run: run["wall_s"]) for workload, comparison in COMPARISONS.items()}


def allocator_percent(run):
    """The share of samples of CPU time that were in the allocator, its system calls, or page faults."""
    samples = run["cpu_samples"]
    return 100 * sum(samples[part] for part in ("allocator_code", "memory_calls", "page_faults")) / samples["total"]


SHARES = {workload: medians(comparison, allocator_percent) for workload, comparison in COMPARISONS.items()}


def geometric_mean(allocator, baseline="glibc", values=MEMORY):
    return statistics.geometric_mean(row[allocator] / row[baseline] for row in values.values())


def ratios(values, other):
    """snug's ratio to another allocator, or to what a function makes of all peers, on each workload."""
    peers = [{name: value for name, value in row.items() if name != "snug"} for row in values.values()]
    against = [other(row) if callable(other) else row[other] for row in peers]
    return [row["snug"] / one for row, one in zip(values.values(), against, strict=True)]


def quantities(comparison, allocator):
    """What `snug report` says of an allocator."""
    return next(row for row in comparison["summary"]["allocators"] if row["allocator"] == allocator)["quantities"]


def text_of(page):
    return " ".join(page.split())


def table_of(page, mark):
    """(headings, rows) of the table between two marks of a page."""
    block = re.search(rf"<!-- {mark}:begin -->\n(.*?)<!-- {mark}:end -->", page, re.DOTALL)[1]
    lines = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return lines[0], lines[2:]


class Table(unittest.TestCase):
    def setUp(self):
        self.headings, self.rows = table_of(README, "memory")

    def test_each_cell_is_the_median_of_its_runs(self):
        self.assertEqual(self.headings[1:-1], list(WORKLOADS))
        self.assertEqual([row[0] for row in self.rows], sorted(ALLOCATORS, key=lambda name: geometric_mean(ALLOCATORS[name])))
        for name, *cells in self.rows:
            for heading, cell in zip(self.headings[1:-1], cells[:-1], strict=True):
                measured = MEMORY[WORKLOADS[heading]][ALLOCATORS[name]]
                self.assertLessEqual(abs(float(cell) - measured), 0.5, f"{name}, {heading}: {measured}")

    def test_the_allocators_shares_of_cpu_time(self):
        headings, rows = table_of(MEASURED, "cpu")
        allocators = ALLOCATORS | {"jemalloc 5.3.1": "./build/peers/libjemalloc.so.5.3.1"}
        self.assertEqual(headings[1:-1], list(WORKLOADS))
        self.assertEqual(sorted(row[0] for row in rows), sorted(allocators))
        for name, *cells in rows:
            measured = [SHARES[workload][allocators[name]] for workload in WORKLOADS.values()]
            self.assertEqual(cells[:-1], [f"{percent:.2f}" for percent in measured], name)
            self.assertEqual(cells[-1], f"{geometric_mean(allocators[name], values=SHARES):.2f}", name)

    def test_the_last_column_is_the_geometric_mean(self):
        self.assertEqual([row[-1] for row in self.rows], [f"{geometric_mean(ALLOCATORS[row[0]]):.2f}" for row in self.rows])

    def test_names_say_the_versions_that_ran(self):
        for name, label in ALLOCATORS.items():
            for comparison in COMPARISONS.values():
                allocator = next(one for one in comparison["allocators"] if one["label"] == label)
                version = allocator["version"] or comparison["snug_version"]
                self.assertTrue(name.startswith(f"{allocator['kind']} {version}"), f"{name}: {version}")

    def test_three_runs_each(self):
        for workload, comparison in COMPARISONS.items():
            self.assertEqual(comparison["settings"]["rounds"], 3, workload)
            self.assertEqual(len(comparison["allocators"]), 7, workload)


class Sentences(unittest.TestCase):
    def assert_range(self, page, pattern, values):
        found = re.search(pattern.replace("RANGE", r"(\d\.\d\d) to (\d\.\d\d)"), text_of(page))
        self.assertIsNotNone(found, pattern)
        self.assertEqual(found.groups(), (f"{min(values):.2f}", f"{max(values):.2f}"), pattern)

    def test_page_faults(self):
        against_median = ratios(FAULTS, lambda peers: statistics.median(peers.values()))
        self.assert_range(README, "RANGE times glibc's on the servers above", ratios(FAULTS, "glibc"))
        self.assert_range(MEASURED, "RANGE times as many page faults as the median peer", against_median)
        self.assert_range(MEASURED, "RANGE times as many as glibc", ratios(FAULTS, "glibc"))

    def test_cpu_time(self):
        self.assert_range(MEASURED, "CPU time in all was RANGE times glibc's", ratios(CPU, "glibc"))
        self.assert_range(MEASURED, "and RANGE times jemalloc's", ratios(CPU, "jemalloc"))

    def test_share_of_cpu_time(self):
        self.assert_range(MEASURED, "That is RANGE times glibc's share", ratios(SHARES, "glibc"))
        self.assert_range(MEASURED, "RANGE times jemalloc's, and", ratios(SHARES, "jemalloc"))
        self.assert_range(MEASURED, "and RANGE times tuned jemalloc's", ratios(SHARES, TUNED))
        text, mean = text_of(README), {peer: geometric_mean("snug", peer, SHARES) for peer in ("glibc", "jemalloc")}
        self.assertIn(f"share of the CPU time, page faults included, was {mean['glibc']:.2f} times that of glibc and "
                      f"{mean['jemalloc']:.2f} times that of jemalloc", text)

    def test_what_more_cpu_time_than_jemallocs_buys(self):
        def cpus_percent(workload, allocator):
            return SHARES[workload][allocator] * CPU[workload][allocator] / WALL[workload][allocator]

        more = {workload: cpus_percent(workload, "snug") - cpus_percent(workload, "jemalloc") for workload in MEMORY}
        dearer = [workload for workload, percent in more.items() if percent > 0]
        saved = [MEMORY[workload]["jemalloc"] - MEMORY[workload]["snug"] for workload in dearer]
        self.assertIn(f"takes {min(more[w] for w in dearer):.1f} to {max(more.values()):.1f} % of a CPU more and holds "
                      f"{min(saved):.0f} to {max(saved):.0f} MB less", text_of(MEASURED))

    def test_memory(self):
        text = text_of(MEASURED)
        larger = [workload for workload, row in MEMORY.items() if min(row, key=row.get) != "snug"]
        self.assertEqual(larger, ["celery_threads"])
        next_best = ratios(MEMORY, lambda peers: min(peers.values()))
        self.assertEqual(next_best, ratios(MEMORY, TUNED))
        self.assert_range(MEASURED, "RANGE times that of the next best", next_best)
        others = [row["snug"] / value for row in MEMORY.values() for name, value in row.items() if name not in ("snug", TUNED)]
        self.assertIn(f"{math.ceil(max(others) * 100) / 100:.2f} times or less that of every other", text)
        self.assertIn(f"{geometric_mean('snug'):.2f} times the memory of glibc and {geometric_mean('snug', TUNED):.2f} times "
                      "that of tuned jemalloc", text)

    def test_small_programs(self):
        """What they gain is said where people decide, and not only what large ones do."""
        comparisons = {program: load(program, SMALL_RESULTS) for program in SMALL}
        memory = {program: mean_memory(comparison) for program, comparison in comparisons.items()}
        faults = {program: medians(comparison, lambda run: run["minor_faults"] + run["major_faults"])
                  for program, comparison in comparisons.items()}
        self.assertTrue(all(comparison["settings"]["rounds"] == 3 for comparison in comparisons.values()))
        self.assert_range(MEASURED, "Five of them used RANGE times the memory of glibc", ratios(memory, "glibc"))
        self.assert_range(MEASURED, "and took RANGE times as many page faults", ratios(faults, "glibc"))
        largest = max(row["glibc"] for row in memory.values())
        saved = 1 - min(ratios(memory, "glibc"))
        self.assertIn(f"five programs of at most {math.ceil(largest / 10) * 10} MB each it saved {saved:.0%} or less".replace("%", " %"),
                      text_of(README))

    def test_no_difference_in_speed_is_shown(self):
        """README says so of all six; `snug report` decides."""
        for workload in WORKLOADS.values():
            report = [ROOT / "build/snug", "report", RESULTS / workload, "--json", "-"]
            ended = subprocess.run(report, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            snug = quantities(json.loads(ended.stdout), "snug")
            speeds = [name for name in snug if name == "wall_s" or name.endswith("_per_s")]
            self.assertGreaterEqual(len(speeds), 2, workload)
            for name in speeds:
                low, high = snug[name]["ratio"]["interval"]
                self.assertTrue(low <= 1 <= high, f"{workload}: {name}: {low} to {high}")

    def test_on_which_server_tuned_jemalloc_is_measurably_larger(self):
        told = []
        for heading, workload in WORKLOADS.items():
            report = [ROOT / "build/snug", "report", RESULTS / workload, "--baseline", "snug", "--json", "-"]
            ended = subprocess.run(report, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            comparison = json.loads(ended.stdout)
            name = f"{comparison['summary']['memory_measure']}_mean_bytes"
            low, _ = quantities(comparison, TUNED)[name]["ratio"]["interval"]
            told += [heading] if low > 1 else []
        self.assertEqual(told, ["Ruby, 32 threads", "Rails on Puma", "Sidekiq", "Celery, 8 processes"])
        self.assertIn("snug used less than tuned jemalloc on five of the six servers. Three runs prove little about each: taken "
                      "alone, the 95 % intervals of four of the five exclude chance.", text_of(README))
        self.assertIn("intervals of the ratio to tuned jemalloc exclude chance on Ruby's threads, Rails on Puma, Sidekiq and "
                      "Celery's processes", text_of(MEASURED))

    def test_readme_has_no_other_decimals(self):
        """A number that nothing here checks does not belong into README: versions and those of tables and sentences do."""
        prose = re.sub(r"<!-- memory:begin -->.*?<!-- memory:end -->|`[^`]*`|\]\([^)]*\)", "", README, flags=re.DOTALL)
        self.assertEqual(re.findall(r"\d+\.\d+(?:\.\d+)*", prose), ["0.71", "1.18", "0.2.0", "1.26", "2.36"])


if __name__ == "__main__":
    unittest.main()
