"""bench/workloads/ruby_swing.rb: that it does its work, and says what bench/compare reads."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "bench/workloads/ruby_swing.rb"


def run(*arguments):
    return subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=120)


class RubySwing(unittest.TestCase):
    def test_all_jobs_are_done_without_errors(self):
        done = run("--jobs", "60", "--strings", "20", "--idle-seconds", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = {name: float(value) for name, value in re.findall(r"^snug-metric: (\w+)=(\S+)$", done.stdout, re.MULTILINE)}
        self.assertEqual(set(metrics), {"jobs_per_s", "p50_ms", "p99_ms", "idle_rss_mb", "errors"})
        self.assertEqual(metrics["errors"], 0)
        # Three long arrays of 3,000 strings and 57 of 20 make 10 MB beside Ruby itself; a collection may have come.
        self.assertGreater(metrics["idle_rss_mb"], 10)

    def test_a_job_that_fails_is_an_error(self):
        done = subprocess.run(["ruby", "-e", "class String; def count(*) = 0; end; load ARGV.shift", str(PROGRAM), "--jobs", "2", "--strings", "1"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("a string of it changed", done.stderr)

    def test_what_is_no_number_of_jobs_is_refused(self):
        self.assertIn("at least 1", run("--jobs", "0").stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
