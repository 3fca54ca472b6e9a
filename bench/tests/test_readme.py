"""Tests that README.md and docs/explanation/measured.md have the numbers that bench/update-measured works out of the runs in
bench/results, and that it works them out right. Run: tools/run_unittests.py bench/tests (standard library only)."""

import re
import statistics
import unittest

from bench import measured

README = (measured.ROOT / "README.md").read_text()
KEPT = (measured.RESULTS / "README.md").read_text()
COMPARISONS = {heading: measured.load(workload) for heading, workload in measured.WORKLOADS.items()}


def table_of(text):
    """Rows of cells below the headings, without bold."""
    return [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in text.strip().splitlines()[2:]]


def run(allocator, megabytes, failure=None):
    return {"allocator": allocator, "failure": failure, "memory": {"rss_mean_bytes": megabytes * 1e6, "pss_mean_bytes": 1}}


class Pages(unittest.TestCase):
    def test_each_block_is_what_the_runs_say(self):
        seen = []
        for name, mark, block in measured.blocks():
            with self.subTest(page=name, mark=mark):
                text = (measured.ROOT / name).read_text()
                self.assertEqual(measured.with_block(text, name, mark, block), text, "run bench/update-measured")
            seen.append(name)
        self.assertEqual({"README.md", "docs/explanation/measured.md", "docs/how-to/hooks.md"}, set(seen))

    def test_readme_has_no_other_decimals(self):
        """A number that nothing works out does not belong into README: versions do, and the example of an answer."""
        prose = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->|```.*?```|`[^`]*`|\]\([^)]*\)|(Python|Ruby|Rails) [\d.]+", "", README, flags=re.DOTALL)
        version = (measured.ROOT / "VERSION").read_text().strip()
        self.assertEqual(set(re.findall(r"\d+\.\d+(?:\.\d+)*|\d+ %", prose)), {version})

    def test_a_page_without_its_marks_is_refused(self):
        for text in ("", "<!-- a:begin -->\n<!-- a:end -->\n" * 2):
            with self.assertRaises(SystemExit):
                measured.with_block(text, "page.md", "a", "1")


class Numbers(unittest.TestCase):
    def test_failed_runs_do_not_count(self):
        comparison = {"summary": {"memory_measure": "rss"}, "runs": [run("a", 1), run("a", 3), run("a", 5), run("a", 90, "crashed"), run("b", 7)]}
        self.assertEqual(measured.mean_memory(comparison), {"a": 3, "b": 7})

    def test_ratios_are_to_one_peer_or_to_a_choice_of_them(self):
        values = [{"snug": 2, "x": 4, "y": 8}, {"snug": 9, "x": 3, "y": 1}]
        self.assertEqual(measured.ratios(values, "x"), [0.5, 3])
        self.assertEqual(measured.ratios(values, lambda peers: min(peers.values())), [0.5, 9])
        self.assertEqual(measured.ratios(values, "snug", "y"), [4, 1 / 9])

    def test_how_changes_are_written(self):
        self.assertEqual([measured.change(ratio) for ratio in (0.56, 1.2, 1.004)], ["44 % less", "20 % more", "the same"])
        self.assertEqual(measured.change(0.35, 0.71), "29 to 65 % less")
        self.assertEqual(measured.change(1.1, 1.3), "10 to 30 % more")
        self.assertEqual(measured.change(0.86, 1.01), "14 % less to 1 % more")

    def test_the_kept_page_has_the_same_medians(self):
        """bench/summarise made it by `snug report`, of the same runs."""
        kept = table_of(re.search(r"^\| mean memory, MB .*?\n\n", KEPT, re.M | re.S)[0])
        ours = table_of(measured.by_workload("mean memory, MB", COMPARISONS, measured.mean_memory, 0))
        self.assertEqual(sorted(row[1:] for row in kept), sorted(row[1:] for row in ours))
        self.assertEqual(len(ours), len(measured.ALLOCATORS))

    def test_three_runs_each(self):
        for comparison in COMPARISONS.values():
            self.assertEqual(comparison["settings"]["rounds"], 3)
            self.assertEqual(sorted(one["label"] for one in comparison["allocators"]), sorted(measured.ALLOCATORS))


class Facts(unittest.TestCase):
    """What the pages conclude, asked of the runs."""

    def test_no_difference_in_speed_is_shown(self):
        """README says so of all six; `snug report` decides."""
        for workload in measured.WORKLOADS.values():
            snug = measured.quantities(measured.report(workload), "snug")
            speeds = [name for name in snug if name == "wall_s" or name.endswith("_per_s")]
            self.assertGreaterEqual(len(speeds), 2, workload)
            for name in speeds:
                low, high = snug[name]["ratio"]["interval"]
                self.assertTrue(low <= 1 <= high, f"{workload}: {name}: {low} to {high}")

    def test_servers_that_fork_are_not_shown_to_be_slower(self):
        for heading, workload in measured.FORKING.items():
            for names in (("metric:requests_per_s", "metric:tasks_per_s"), ("metric:p99_ms",)):
                _, low, high = measured.forking_speed(workload, names)
                self.assertTrue(low <= 1 if names[0] == "metric:p99_ms" else high >= 1, f"{heading}: {names[0]}: {low} to {high}")

    def test_which_goals_of_servers_that_fork_are_missed(self):
        """hooks.md says by how much, of what is printed."""
        printed = measured.forking_ratios({heading: measured.load(workload, measured.FORKS_RESULTS) for heading, workload in measured.FORKING.items()})
        goals = [(float(value), float(goal)) for value, goal in re.findall(r"([\d.]+) \(goal ([\d.]+)\)", printed)]
        self.assertEqual(len(goals), len(measured.FORKING_GOALS))
        self.assertEqual([round(value - goal, 2) for value, goal in goals if value > goal], [0.01, 0.07])

    def test_tuned_jemalloc_is_always_the_next_best_and_less_only_once(self):
        memory = {workload: measured.mean_memory(measured.load(workload)) for workload in measured.WORKLOADS.values()}
        self.assertEqual([workload for workload, row in memory.items() if min(row, key=row.get) != "snug"], ["celery_threads"])
        for row in memory.values():
            self.assertEqual(min((value, name) for name, value in row.items() if name != "snug")[1], measured.TUNED)

    def test_tuned_jemallocs_cpu_time_is_about_ours(self):
        """README: "a few percent less memory for about the same CPU time"."""
        of = COMPARISONS.values()
        for value, low, high in ((measured.mean_memory, 0.90, 0.99), (measured.cpu_time, 0.97, 1.03), (measured.allocator_share, 0.95, 1.05)):
            ratio = statistics.geometric_mean(measured.ratios([value(one) for one in of], measured.TUNED))
            self.assertTrue(low < ratio < high, f"{value.__name__}: {ratio}")


if __name__ == "__main__":
    unittest.main()
