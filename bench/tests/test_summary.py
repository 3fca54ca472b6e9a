"""Tests of the page about measured workloads. Run: tools/run_unittests.py bench/tests (standard library only)."""

import re
import shutil
import statistics
import subprocess
import tempfile
import unittest
from pathlib import Path

from bench.summary import goals, hooks, keep, page, results, shown

BENCH = Path(__file__).resolve().parent.parent

KEPT = BENCH / "results/2026-11-27-full/rails_puma_cluster"
MACHINE = {"cpu": "CPU", "cpus": 2, "memory_bytes": 8 << 30, "system": "Debian", "kernel": "6.1",
           "architecture": "x86_64", "transparent_huge_pages": "madvise"}


def run(allocator, memory_mb, per_s, p99_ms, faults, failure=None, **metrics):
    """What was measured in one run."""
    return {"allocator": allocator, "failure": failure,
            "quantities": {"rss_mean_bytes": memory_mb * 1e6, "pss_mean_bytes": memory_mb * 0.9e6, "uss_mean_bytes": memory_mb * 0.8e6,
                           "metric:requests_per_s": per_s, "metric:p99_ms": p99_ms, "metric:idle_rss_mb": memory_mb / 2,
                           "page_faults": faults, **{f"metric:{name}": value for name, value in metrics.items()}}}


def estimates(runs, baseline):
    """As `snug report --json` has them with snug as the baseline; the interval of a ratio is from the least to the most."""
    found = {}
    for name in runs[0]["quantities"] if runs else ():
        values = [one["quantities"][name] for one in runs]
        is_snug = runs[0]["allocator"] == "snug"
        others = [one["quantities"][name] for one in baseline if name in one["quantities"] and not is_snug]
        ratios = [value / other for value in values for other in others if other]
        interval = [min(ratios), max(ratios)] if len(ratios) > 1 else None
        found[name] = {"median": statistics.median(values), "ratio": {"value": statistics.median(ratios), "interval": interval,
                                                                      "adjusted_p_value": None} if ratios else None}
    return found


def comparison(runs, measure="rss"):
    allocators = {
        "glibc": ("glibc", "2.36", {}),
        "glibc:MALLOC_ARENA_MAX=2": ("glibc", "2.36", {"MALLOC_ARENA_MAX": "2"}),
        "jemalloc:MALLOC_CONF=narenas:2": ("jemalloc", "5.3.0", {"MALLOC_CONF": "narenas:2", "LD_PRELOAD": "/l/j.so"}),
        "./build/peers/libsnmalloc.so.0.7.6": ("snmalloc", "library 0.7.6", {"LD_PRELOAD": "/l/s.so"}),
        "./build/peers/librpmalloc.so.b097fd0": ("other", None, {"LD_PRELOAD": "/l/r.so"}),
        "snug": ("snug", "0.1.0", {"LD_PRELOAD": "/home/me/snug/build/libsnug.so"}),
        "glibc:BENCH_HOOKS=1": ("glibc", "2.36", {"BENCH_HOOKS": "1"}),
        "glibc:BENCH_HOOKS=by_hand": ("glibc", "2.36", {"BENCH_HOOKS": "by_hand"}),
        "snug:BENCH_HOOKS=1": ("snug", "0.1.0", {"BENCH_HOOKS": "1", "LD_PRELOAD": "/home/me/snug/build/libsnug.so"}),
    }
    rows = []
    snug = [one for one in runs if one["allocator"] == "snug" and one["failure"] is None]
    for label in (label for label in allocators if any(one["allocator"] == label for one in runs)):
        own = [one for one in runs if one["allocator"] == label]
        good = [one for one in own if one["failure"] is None]
        rows.append({"allocator": label, "runs": len(good), "failed_runs": len(own) - len(good), "quantities": estimates(good, snug)})
    return {"snug_version": "0.1.0", "started_at": "2026-11-21T02:03:04Z", "machine": MACHINE,
            "invocation": ["build/snug", "compare", "--with", "jemalloc:MALLOC_CONF=a:1,b:2", "--only", "a|b"],
            "settings": {"rounds": 2},
            "summary": {"memory_measure": measure, "warnings": ["the machine was busy"], "conclusion": "snug is small.", "allocators": rows},
            "allocators": [{"label": row["allocator"], "kind": allocators[row["allocator"]][0], "version": allocators[row["allocator"]][1],
                            "environment": allocators[row["allocator"]][2]} for row in rows]}


def read(runs, measure="rss"):
    found = comparison(runs, measure)
    return results.read("rails_puma", found, found)


def by_goal(result):
    return {verdict.goal.split()[0]: verdict for verdict in goals.verdicts(result)}


class ReadTest(unittest.TestCase):
    def test_names_hold_version_and_settings(self):
        names = [row.name for row in read([run(label, 1, 1, 1, 1) for label in (
            "glibc", "glibc:MALLOC_ARENA_MAX=2", "jemalloc:MALLOC_CONF=narenas:2", "./build/peers/libsnmalloc.so.0.7.6",
            "./build/peers/librpmalloc.so.b097fd0", "snug")]).rows]
        self.assertEqual(names, ["glibc 2.36", "glibc 2.36, MALLOC_ARENA_MAX=2", "jemalloc 5.3.0, narenas:2",
                                 "snmalloc 0.7.6", "rpmalloc b097fd0", "snug 0.1.0"])

    def test_failed_runs_count_for_nothing_but_are_counted(self):
        result = read([run("glibc", 100, 10, 5, 1000), run("glibc", 900, 1, 5, 1000, "it crashed"),
                       run("snug", 50, 10, 5, 1000)])
        self.assertEqual((result.rows[0].median("memory_mb"), result.rows[0].failed), (100, 1))

    def test_memory_of_a_family_is_pss(self):
        self.assertAlmostEqual(read([run("snug", 100, 1, 1, 1)], "pss").rows[0].median("memory_mb"), 90)

    def test_the_tool_says_whether_there_is_a_difference(self):
        def shown(interval, adjusted_p_value=None, value=1.2):
            estimate = results.Estimate(5, 5, {"value": value, "interval": interval, "adjusted_p_value": adjusted_p_value})
            return estimate.differs(), estimate.may_be_chance()

        self.assertEqual([shown((1.1, 1.3)), shown((1.1, 1.3), 0.01), shown((1.1, 1.3), 0.2)], [(True, False), (True, False), (True, True)])
        self.assertEqual([shown((0.9, 1.3))[0], shown(None)[0], shown(None, value=1)[0]], [False, True, False])

    def test_what_was_zero_has_no_ratio(self):
        estimates = read([run("glibc", 60, 20, 0, 1000), run("snug", 50, 10, 5, 500)])
        estimates.peers()[0].values["p99_ms"] = results.Estimate(0, 0)
        self.assertIn(("p99, ms", [("glibc 2.36", 0, False)]), goals.better_peers(estimates))


class GoalsTest(unittest.TestCase):
    def test_all_met(self):
        verdicts = by_goal(read([run("glibc", 100, 10, 50, 3000), run("jemalloc:MALLOC_CONF=narenas:2", 80, 12, 40, 2000),
                                 run("snug", 60, 13, 39, 2500)]))
        self.assertEqual([verdict.met for verdict in verdicts.values()], [True] * 4)
        self.assertEqual(verdicts["memory"].text(), "met: 0.75 of jemalloc 5.3.0, narenas:2")
        self.assertAlmostEqual(verdicts["page"].ratio, 1.0)

    def test_each_missed(self):
        verdicts = by_goal(read([run("glibc", 100, 10, 50, 3000), run("jemalloc:MALLOC_CONF=narenas:2", 60, 12, 40, 2000),
                                 run("snug", 54, 11, 44, 2600)]))
        self.assertEqual([verdict.met for verdict in verdicts.values()], [False] * 4)
        self.assertEqual(verdicts["memory"].text(), "missed by 0.05: 0.90 of jemalloc 5.3.0, narenas:2")
        self.assertEqual(verdicts["throughput"].text(), "missed by 0.08: 0.92 of jemalloc 5.3.0, narenas:2")
        self.assertEqual(verdicts["p99"].text(), "missed by 0.10: 1.10 of jemalloc 5.3.0, narenas:2")
        self.assertEqual(verdicts["page"].text(), "missed by 0.04: 1.04 of the median peer's")

    def test_scatter_is_no_difference(self):
        runs = [run("glibc", 100, per_s, 50, 1) for per_s in (10, 12, 11)] + [run("snug", 50, per_s, 50, 1)
                                                                              for per_s in (9.5, 11.5, 10.5)]
        verdict = by_goal(read(runs))["throughput"]
        self.assertTrue(verdict.met and verdict.scattered)
        self.assertIn("no difference", verdict.text())

    def test_families_have_to_be_the_smallest(self):
        runs = [run("glibc", 100, 10, 5, 1), run("snug", 101, 10, 5, 1)]
        self.assertNotIn("PSS", by_goal(read(runs)))
        self.assertFalse(by_goal(read(runs, "pss"))["PSS"].met)

    def test_private_pages_of_workers(self):
        def worker(allocator, private_mb, **more):
            return run(allocator, 100, 10, 5, 1, worker_private_mb=private_mb, **more)

        runs = [worker("glibc", 120), worker("jemalloc:MALLOC_CONF=narenas:2", 60),
                worker("snug", 70, worker_private_outside_mb=20)]
        verdicts = goals.private(read(runs, "pss").snug(), read(runs, "pss").peers())
        self.assertEqual([verdict.text() for verdict in verdicts],
                         ["missed by 0.25: 1.25 of jemalloc 5.3.0, narenas:2", "met: 0.50 of glibc 2.36"])
        unknown = read([*runs[:2], run("snug", 100, 10, 5, 1)], "pss")
        self.assertEqual(goals.private(unknown.snug(), unknown.peers()), [])

    def test_without_snug_nothing_is_decided(self):
        self.assertEqual(goals.verdicts(read([run("glibc", 1, 1, 1, 1), run("snug", 1, 1, 1, 1, "crashed")])), [])

    def test_better_peers_are_named(self):
        runs = [run("glibc", 40, 20, 5, 1000), run("snug", 50, 10, 5, 500)]
        self.assertEqual(goals.better_peers(read(runs)), [("mean memory, MB", [("glibc 2.36", 0.8, False)]),
                                                          ("per s", [("glibc 2.36", 2.0, False)]),
                                                          ("idle, MB", [("glibc 2.36", 0.8, False)])])


class Shown(unittest.TestCase):
    """Ratios of a page are those of the numbers on it (docs/decisions/0021)."""

    def test_numbers_are_printed_as_the_tool_prints_them(self):
        texts = {0: "0.00", 0.00012345: "0.000123", 0.0995: "0.0995", 0.9996: "1.00", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 1234.4: "1234"}
        self.assertEqual({value: shown.text(value) for value in texts}, texts)
        self.assertEqual([round(shown.count(value), 1) for value in (12.5, 9999, 12_345, 999_400, 1_234_567)],
                         [12.5, 9999, 12_300, 999_000, 1_230_000])

    def test_goals_and_hooks_compare_what_is_printed(self):
        # Printed as 169 and 195, which is 0.87; divided before they are rounded, 0.86.
        runs = [run("glibc", 195.4, 10, 5, 12_349), run("snug", 168.6, 10, 5, 12_251), run("glibc:BENCH_HOOKS=1", 195.4, 1, 1, 1),
                run("snug:BENCH_HOOKS=1", 168.6, 1, 1, 1)]
        verdicts = by_goal(read(runs))
        self.assertEqual(verdicts["memory"].text(), "missed by 0.02: 0.87 of glibc 2.36")
        self.assertEqual(verdicts["page"].ratio, 12_300 / 12_300)
        self.assertEqual(hooks.compared(read(runs), "memory_mb")[1:4], (169 / 195, 169 / 195, 1))

    def test_what_looks_alike_is_not_better(self):
        runs = [run("glibc", 149.6, 10, 5, 1), run("snug", 150.4, 10, 5, 1)]
        self.assertNotIn("mean memory, MB", dict(goals.better_peers(read(runs))))

    def test_a_goal_that_is_missed_by_little_is_not_missed_by_nothing(self):
        self.assertEqual(goals.Verdict("", False, 0.853, 0.85, "glibc").text(), "missed by less than 0.01: 0.85 of glibc")

    def test_the_goals_of_kept_pages_have_the_ratios_of_their_tables(self):
        seen = 0
        for path in sorted((BENCH / "results").glob("*/README.md")):
            text = path.read_text().replace("**", "").replace("\\", "")
            table = re.search(r"^\| mean memory, MB .*?\n\n", text, re.M | re.S)
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].strip().splitlines()] if table else [[]]
            memory = {row[0].split("`")[1]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}
            for workload, ratio in re.findall(r"^\| (\w+) \| memory <= [^|]*\|[^|]*: ([\d.]+) of ", text, re.M):
                peers = [float(row[workload]) for name, row in memory.items()
                         if name.partition(":")[0] != "snug" and "BENCH_HOOKS" not in name and row[workload] != "–"]
                with self.subTest(page=path.parent.name, workload=workload):
                    self.assertEqual(f"{float(memory['snug'][workload]) / min(peers):.2f}", ratio)
                seen += 1
        self.assertGreater(seen, 10)


class PageTest(unittest.TestCase):
    def test_the_page(self):
        runs = [run("glibc", 100, 10, 50, 3000), run("glibc", 102, 10, 50, 3000), run("snug", 60, 13, 39, 2500),
                run("snug", 60, 13, 39, 2500, "crashed")]
        text = page.page([read(runs)], {"rails_puma": ["frontier.svg"]}, "| mean memory, MB |\n")
        for expected in ("# Measured 2026-11-21", "CPU, 2 CPUs, 8 GiB", "4 of 4 goals met", "- 1 run failed under snug 0.1.0",
                         "\n| mean memory, MB |\n\n## Goals", "snug is small. ([report](rails_puma/report.md))", "![rails_puma: frontier](rails_puma/frontier.svg)",
                         "the machine was busy", "No peer is better", "jemalloc:MALLOC_CONF=a:1,b:2 --only 'a|b'"):
            self.assertIn(expected, text)

    def test_missed_goals_stand_out(self):
        text = page.page([read([run("glibc", 50, 10, 50, 1), run("snug", 60, 10, 50, 1)])], {}, "")
        self.assertIn("**missed by 0.35: 1.20 of glibc 2.36**", text)


class KeepTest(unittest.TestCase):
    def test_thinned_series_keep_their_end(self):
        thin = keep.thinned({"time_s": list(range(250)), "rss": list(range(250)), "none": []}, 100)
        self.assertEqual(len(thin["time_s"]), 84)
        self.assertEqual((thin["time_s"][-1], thin["time_s"]), (249, thin["rss"]))
        self.assertEqual(thin["none"], [])
        self.assertEqual(keep.thinned({"time_s": []}), {"time_s": []})
        self.assertEqual(keep.thinned({"time_s": [1, 2]}), {"time_s": [1, 2]})

    def test_from_comparison_to_page(self):
        """A real comparison, of which a directory is kept and a page made."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            work, kept = root / "work", root / "2026-11-22/rails_puma"
            work.mkdir()
            (root / "build").mkdir()
            (root / "build/snug").symlink_to(BENCH.parent / "build/snug")
            shutil.copy(KEPT / "compare.json", work)
            (work / "table.txt").write_text(f"see {work}/logs and {root}/build")
            keep.keep(work, kept, root)
            self.assertEqual(sorted(path.name for path in kept.iterdir()),
                             ["compare.json", "frontier.svg", "memory.svg", "report.md", "runs.csv", "table.txt"])
            self.assertEqual((kept / "table.txt").read_text(), "see OUT/logs and build")
            self.assertNotIn(str(root), (kept / "compare.json").read_text() + (kept / "report.md").read_text())
            self.assertEqual(subprocess.run([BENCH / "summarise", kept.parent], stdout=subprocess.DEVNULL).returncode, 0)
            text = (kept.parent / "README.md").read_text()
            self.assertIn("rails_puma/frontier.svg", text)
            # One reporter: the page and the report beside it say the same of the same numbers.
            row = re.search(r"^\| \*\*`snug`\*\*[^|]*\| \*\*([\d.]+)\*\* \|", text, re.M)
            self.assertIn(f"**{row[1]}**", (kept / "report.md").read_text())

    def test_a_directory_without_results_is_an_error(self):
        with tempfile.TemporaryDirectory() as directory:
            result = subprocess.run([BENCH / "summarise", directory], capture_output=True, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertIn("holds no */compare.json", result.stderr)


class Hooks(unittest.TestCase):
    RUNS = (run("glibc", 200, 5, 9, 1), run("snug", 160, 5, 9, 1), run("glibc:BENCH_HOOKS=1", 120, 5, 9, 1), run("snug:BENCH_HOOKS=1", 80, 5, 9, 1))

    def test_the_ratio_is_the_allocators_times_the_hooks(self):
        peer, ratio, allocator, of_hooks, peer_hooked, ratio_hooked = hooks.compared(read(self.RUNS), "memory_mb")
        self.assertEqual((peer, peer_hooked), ("glibc 2.36: 200 MB", "glibc 2.36, with hooks: 120 MB"))
        self.assertEqual([round(value, 3) for value in (ratio, allocator, of_hooks, ratio_hooked)], [0.4, 0.8, 0.5, 0.667])
        text = "\n".join(hooks.section([read(self.RUNS)]))
        self.assertIn("At most 0.85 of the best peer without hooks on 1 of 1; below every peer with hooks or by hand on 1.", text)

    def test_what_is_done_by_hand_is_called_so(self):
        peer = hooks.compared(read((*self.RUNS, run("glibc:BENCH_HOOKS=by_hand", 100, 5, 9, 1))), "memory_mb")[4]
        self.assertEqual(peer, "glibc 2.36, by hand: 100 MB")

    def test_goals_compare_what_has_no_hooks(self):
        memory = goals.verdicts(read(self.RUNS))[0]
        self.assertEqual((memory.peer, memory.ratio), ("glibc 2.36", 0.8))

    def test_without_hooks_there_is_no_section(self):
        self.assertEqual(hooks.section([read(self.RUNS[:2])]), [])


if __name__ == "__main__":
    unittest.main()
