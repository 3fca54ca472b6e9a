"""bench/soak: what it calls flat, growing and undecided."""

import json
import random
import subprocess
import sys
import unittest
from pathlib import Path

from bench.soak import page, trend

sys.dont_write_bytecode = True

SNUG = Path(__file__).resolve().parents[2] / "build/snug"


class Counts(unittest.TestCase):
    def verdict(self, values):
        return trend.of_counts(values, 3).verdict

    def test_what_stays_is_flat(self):
        rng = random.Random(1)
        self.assertEqual(self.verdict([40 + rng.choice((-1, 0, 1)) for _ in range(720)]), "flat")
        self.assertEqual(self.verdict([20 + minute % 7 for minute in range(90)]), "flat", "a saw of renewed workers")
        self.assertEqual(self.verdict([100 + minute / 720 for minute in range(720)]), "flat", "less than the bound")

    def test_what_grows_is_found(self):
        self.assertEqual(self.verdict([20 + minute // 20 for minute in range(720)]), "growing")

    def test_a_short_time_decides_nothing(self):
        self.assertEqual((self.verdict([1, 2, 3]), self.verdict([])), ("undecided", "undecided"))


class Memory(unittest.TestCase):
    def watched(self, program):
        ended = subprocess.run([SNUG, "leak", "--for", "4s", "--no-lines", "--json", "--", sys.executable, "-c", program],
                               capture_output=True, text=True)
        return json.loads(ended.stdout)

    def test_the_tool_judges_it(self):
        """Its JSON has what the page needs, whatever it says of so short a time."""
        said = self.watched("import time\nkept = []\nfor _ in range(600):\n    kept.append(bytes(200_000))\n    time.sleep(0.01)")
        for measure in page.MEMORY:
            found = trend.of_memory(said, measure[0])
            self.assertIn(found.verdict, ("flat", "growing", "undecided"))
            self.assertTrue(found.interval is None or found.interval[0] <= found.interval[1], found)

    def test_its_words_are_ours(self):
        def said(direction):
            judged = {"direction": direction, "level": 5.0, "growth": 1.0, "interval": [0.5, 1.5], "margin": 2.0}
            return trend.of_memory({"judgement": {"used": judged}}, "used").verdict

        self.assertEqual([said("steady"), said("growing"), said({"unclear": "short"})], ["flat", "growing", "undecided"])
        self.assertEqual(trend.of_memory(None, "used").verdict, "undecided")


class Page(unittest.TestCase):
    def test_every_service_has_each_of_its_rows(self):
        rows = [{"service": kind.name, "maps": 9, "threads": 3, "descriptors": 5} for kind in page.services.ALL for _ in range(40)]
        found = page.trends(rows, {})
        self.assertEqual(len(found), len(page.services.ALL) * (len(page.MEMORY) + len(page.COUNTS)))
        self.assertEqual(page.verdict(found, [])[1], 3, "nobody watched the memory")
        self.assertTrue(all(page._row(*entry).startswith("| ") for entry in found))


if __name__ == "__main__":
    unittest.main()
