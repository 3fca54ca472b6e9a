"""bench/fork_cost measures forks of a process that has loaded nothing, too. Run: tools/run_unittests.py bench/tests"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from bench import fork_cost

ROOT = Path(__file__).resolve().parents[2]


class ForkCost(unittest.TestCase):
    def measured(self, **variables):
        command = [sys.executable, "-B", "-m", "bench.fork_cost", "--measure", "--forks", "10"]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "BENCH_HEAVY": "0", **variables}, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def test_each_column_is_a_time(self):
        found = self.measured()
        self.assertEqual(tuple(found), fork_cost.COLUMNS)
        self.assertLessEqual(found["least"], found["later: median"])
        self.assertLessEqual(found["later: median"], found["longest"])
        self.assertTrue(all(0 <= milliseconds < 60_000 for milliseconds in found.values()), found)

    def test_a_child_that_fails_ends_the_measurement(self):
        with self.assertRaises(SystemExit):
            fork_cost.fork(lambda _: os._exit(3))


if __name__ == "__main__":
    unittest.main()
