"""bench/small_servers: its table, and that both of its measurements run."""

import subprocess
import unittest
from pathlib import Path

from bench import small_servers

ROOT = Path(__file__).resolve().parents[2]


class Table(unittest.TestCase):
    def test_servers_of_an_allocator_are_added_up(self):
        lines = list(small_servers.table_of([("a", (100, 1000, 0.1, 0.02, 20)), ("b", (50, 0, 0, 0, 7)), ("a", (300, 1000, 0.3, 0.02, 30))]))
        self.assertEqual(lines[1].split(), ["a", "400", "5.0", "1.000", "0.100", "1.100", "25.0"])
        self.assertEqual(lines[2].split(), ["b", "50", "0.0", "0.000", "0.000", "0.000", "7.0"])

    def test_settings_reach_the_environment(self):
        environment = small_servers.environment_of("glibc:MALLOC_CONF=narenas:2,lg_tcache_max:4")
        self.assertEqual(environment["MALLOC_CONF"], "narenas:2,lg_tcache_max:4")
        self.assertNotIn("LD_PRELOAD", environment)
        with self.assertRaisesRegex(SystemExit, "names are glibc"):
            small_servers.environment_of("nomalloc")


class Servers(unittest.TestCase):
    def test_two_allocators_answer_the_same_load(self):
        command = [str(ROOT / "bench/small_servers"), "glibc", "snug", "--servers", "1", "--warm-up", "1", "--seconds", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        self.assertEqual([row[0] for row in rows], ["glibc", "snug"])
        self.assertTrue(all(float(row[-1]) > 1 for row in rows), done.stdout)
