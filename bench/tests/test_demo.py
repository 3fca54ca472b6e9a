"""bench/demo: its sentence says what the table above it says."""

import json
import os
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path

from bench import demo

sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parents[2]
SNUG, RESULTS = ROOT / "build/snug", ROOT / "bench/results"
SENTENCE = re.compile(r"used (\S+) MB .* snug, (\S+) MB .* glibc and (\S+) MB .* jemalloc: "
                      r"(\S+) times glibc's memory and (\S+) times jemalloc's, in (\S+) times")


class Sentence(unittest.TestCase):
    def numbers(self, comparison):
        return SENTENCE.search(demo.sentence(comparison)).groups()

    def test_its_ratios_are_those_of_its_numbers(self):
        rng = random.Random(1)
        for _ in range(2000):
            rows = [{"allocator": name, "quantities": {"rss_mean_bytes": {"median": rng.uniform(5e6, 300e6), "mean": 1.0},
                                                       "wall_s": {"median": rng.uniform(0.5, 200), "mean": 1.0}}}
                    for name in ("glibc", "jemalloc", "snug")]
            snug, glibc, jemalloc, of_glibc, of_jemalloc, _ = map(float, self.numbers({"summary": {"allocators": rows}}))
            self.assertEqual((f"{snug / glibc:.2f}", f"{snug / jemalloc:.2f}"), (f"{of_glibc:.2f}", f"{of_jemalloc:.2f}"))

    def test_the_tool_shows_the_same(self):
        seen = 0
        for path in RESULTS.glob("*/*/compare.json"):
            comparison = json.loads(path.read_text())
            labels = {row["allocator"] for row in comparison["summary"]["allocators"]}
            if comparison["summary"]["memory_measure"] != "rss" or not {"glibc", "jemalloc", "snug"} <= labels:
                continue
            seen += 1
            table = subprocess.run([SNUG, "report", path], check=True, capture_output=True, text=True,
                                   env={**os.environ, "COLUMNS": "250"}).stdout
            # mean RSS, times glibc's, peak ...; in a table below, for want of room: final, wall time, times glibc's
            rows = {}
            for cells in ([cell for cell in line.split() if cell not in "~?="] for line in table.splitlines()):
                if cells[1:] and cells[1][0].isdigit():
                    rows[cells[0]] = rows.get(cells[0], []) + cells[1:]
            snug, glibc, jemalloc, of_glibc, _, time = self.numbers(comparison)
            with self.subTest(path=path.parent.name):
                self.assertEqual((snug, glibc, jemalloc), (rows["snug"][0], rows["glibc"][0], rows["jemalloc"][0]))
                self.assertEqual((of_glibc, time), (rows["snug"][1], rows["snug"][6]))
        self.assertGreater(seen, 3)
