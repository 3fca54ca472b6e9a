"""bench/scaling: the model against what is known of queues, and that the program runs."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from bench import scaling
from bench.scaling import Lock

ROOT = Path(__file__).resolve().parents[2]


class Model(unittest.TestCase):
    def test_a_thread_alone_waits_for_nobody(self):
        self.assertAlmostEqual(scaling.throughput(90, [(1, 10)], 1), 1 / 100)

    def test_one_lock_bounds_the_throughput_of_many(self):
        self.assertAlmostEqual(scaling.throughput(90, [(0.5, 10)], 500), 1 / 5, places=4)

    def test_two_threads_at_one_lock_are_as_the_machine_repair_model_says(self):
        # Think 1, service 1, both exponential: the repairman is idle with probability 1/(1 + 2 + 2).
        self.assertAlmostEqual(scaling.throughput(1, [(1, 1)], 2), 1 - 1 / 5)

    def test_locks_of_classes_are_spread_over_arenas_and_global_ones_are_not(self):
        locks = {"class": Lock(0.4, 50, 100), "pages": Lock(0.01, 50, 100)}
        one, many = (scaling.speedups(60, locks, lambda cpus, most=most: min(cpus, most), 1) for most in (1, 64))
        self.assertAlmostEqual(one[1], 1)
        self.assertLess(one[64], many[64])
        self.assertLess(many[64], (60 / (0.01 * 150)) * 1.2, "the lock of the pages is one")

    def test_without_locks_all_cpus_are_used(self):
        self.assertAlmostEqual(scaling.speedups(20, {"class": Lock(1e-9, 20, 60)}, lambda cpus: cpus, 3)[64], 64, places=3)

    def test_costs_of_several_measurements_are_the_least(self):
        row = {"work_ns": 0, "lines": 0, "alone_ns": 12.0, "of_two_ns": 90.0}
        first = {"pair_ns": 12.0, "line_ns": 70.0, "ticks_per_ns": 2.6, "taken": [row]}
        second = {"pair_ns": 14.0, "line_ns": 60.0, "ticks_per_ns": 2.6, "taken": [row | {"of_two_ns": 80.0}]}
        costs = scaling.least_costs([first, second])
        self.assertEqual((costs["pair_ns"], costs["line_ns"], costs["taken"][0]["of_two_ns"]), (12.0, 60.0, 80.0))


class Program(unittest.TestCase):
    def test_all_patterns_are_counted_and_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [str(ROOT / "bench/scaling"), "glibc", "snug", "--quick", "--out", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            self.assertEqual(done.returncode, 0, done.stderr)
            results = json.loads((Path(folder) / "scaling.json").read_text())
            page = (Path(folder) / "README.md").read_text()
        self.assertEqual(len(results["peers"]), 2 * 3 * 3)
        self.assertNotIn(None, results["peers"].values())
        for name, counts in results["counts"].items():
            taken, contended = counts["locks"]["class"][:2]
            self.assertTrue(0 <= contended <= taken > 0, name)
        self.assertEqual(results["counts"]["handed 8 1"]["arenas"], 1)
        self.assertGreater(results["costs"]["line_ns"], 0)
        self.assertIn("| batches | as many as CPUs | 3 |", page)


if __name__ == "__main__":
    sys.exit(unittest.main())
