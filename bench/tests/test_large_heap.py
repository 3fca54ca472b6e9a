"""bench/large_heap: its table, the kernel's settings, which it sets back, and that it runs."""

import fcntl
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from bench import large_heap
from bench.large_heap import Phase, Run

ROOT = Path(__file__).resolve().parents[2]


def run(allocator, huge_pages="madvise", cpu_s=10.0, idle_mb=1000.0, gigabytes=1.0, housekeeping=None):
    phases = {name: Phase(1_000_000, cpu_s, 5000, idle_mb, idle_mb, 2.5, 0.0) for name in ("fill", "work", "idle")}
    return Run(allocator, huge_pages, gigabytes, phases, 0.5, housekeeping or {})


class Table(unittest.TestCase):
    def test_a_row_is_the_median_of_its_runs_and_the_best_is_bold(self):
        runs = [run("glibc", cpu_s=cpu_s) for cpu_s in (10, 20, 25)] + [run("snug", cpu_s=40, idle_mb=900)]
        lines = list(large_heap.table_of(runs))
        self.assertEqual(lines[2], "| madvise | glibc | **50.0** | **50.0** | 5.0 | 5.0 | 2.5 | 1000 | 1000 |")
        self.assertEqual(lines[3], "| madvise | snug | 25.0 | 25.0 | 5.0 | 5.0 | 2.5 | **900** | **900** |")

    def test_a_verdict_holds_snug_against_the_best_peer_of_the_same_setting(self):
        runs = [run("glibc", cpu_s=10), run("jemalloc", cpu_s=20, idle_mb=800), run("snug", cpu_s=20, idle_mb=880),
                run("jemalloc", "always", cpu_s=1)]
        text = " ".join(large_heap.verdicts(runs)).replace("  ", " ")
        self.assertIn("- madvise, snug: fills per CPU second 0.500 of glibc's;", text)
        self.assertIn("memory at the end 1.100 of jemalloc's.", text)
        self.assertNotIn("always", text)

    def test_ratios_are_those_of_the_table(self):
        chance = random.Random(1)
        for _ in range(500):
            runs = [run(name, cpu_s=chance.uniform(5, 90), idle_mb=chance.uniform(100, 300)) for name in ("glibc", "snug")]
            glibc, snug = ([float(cell.strip(" *")) for cell in line.split("|")[3:-1]] for line in list(large_heap.table_of(runs))[2:])
            ratios = re.findall(r"([\d.]+)\s+of\s+glibc's", " ".join(large_heap.verdicts(runs)))
            self.assertEqual(ratios, [f"{snug[column] / glibc[column]:.3f}" for column in (0, 1, 5, 6)])

    def test_ticks_of_a_larger_heap_are_on_the_line_through_the_measured(self):
        counts = {"times": 100, "cpu_ns": 10_000_000, "longest_ns": 500_000, "ticks": 90}
        doubled = {"times": 100, "cpu_ns": 20_000_000, "longest_ns": 1_000_000, "ticks": 90}
        lines = list(large_heap.housekeeping_of([run("snug", gigabytes=5.0, housekeeping=counts),
                                                 run("snug", gigabytes=10.0, housekeeping=doubled)]))
        self.assertEqual(lines[2], "| 5 | 90 | 100 | 500 | 0.100 % |")
        self.assertTrue(lines[4].endswith("| 1000 | 5000 | 1.000 % |"), lines[4])
        self.assertEqual(list(large_heap.housekeeping_of([run("snug")])), [])


class HugePages(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(large_heap, "HUGE_PAGES", self.folder))
        for name, text in (("enabled", "always [madvise] never"), ("hpage_pmd_size", "2097152")):
            (self.folder / name).write_text(text)
        for size, text in ((64, "always inherit madvise [never]"), (2048, "always [inherit] madvise never")):
            (self.folder / f"hugepages-{size}kB").mkdir()
            (self.folder / f"hugepages-{size}kB/enabled").write_text(text)

    def texts(self):
        return [(self.folder / name).read_text() for name in ("enabled", "hugepages-2048kB/enabled", "hugepages-64kB/enabled")]

    def test_settings_are_set_back_whatever_happens(self):
        with self.assertRaises(KeyError), large_heap.huge_pages("always"):
            self.assertEqual(self.texts()[0], "always")
            raise KeyError
        self.assertEqual(self.texts()[0], "madvise")

    def test_two_at_a_time_wait_for_each_other(self):
        with large_heap.huge_pages("always"), (self.folder / "enabled").open() as other, self.assertRaises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_multi_size_setting_leaves_no_others(self):
        with large_heap.huge_pages("64kB=madvise"):
            self.assertEqual(self.texts()[1:], ["never", "madvise"])
        self.assertEqual(self.texts()[1:], ["inherit", "never"])

    def test_a_setting_that_the_kernel_does_not_have_is_refused(self):
        for setting in ("sometimes", "16kB=always", "64kB=never"):
            with self.assertRaises(SystemExit):
                large_heap.files_of(setting)

    def test_what_is_set_already_is_not_written(self):
        (self.folder / "enabled").chmod(0o444)
        with mock.patch.object(Path, "write_text", side_effect=PermissionError), large_heap.huge_pages("madvise"):
            pass


class Program(unittest.TestCase):
    def test_two_allocators_and_the_ticks_are_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [str(ROOT / "bench/large_heap"), "glibc", "snug", "--quick", "--ticks", "0.05,0.1", "--out", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            self.assertEqual(done.returncode, 0, done.stderr)
            again = subprocess.run([*command[:1], "glibc", "--quick", "--out", folder], capture_output=True, text=True, timeout=900)
            self.assertEqual(again.returncode, 0, again.stderr)
            runs = json.loads((Path(folder) / "large_heap.json").read_text())
            page = (Path(folder) / "README.md").read_text()
        self.assertEqual([found["allocator"] for found in runs], ["glibc", "snug", "snug, counted", "snug, counted", "glibc"])
        for found in runs:
            self.assertGreater(found["phases"]["idle"]["resident_mb"], 0.9 * found["gigabytes"] * 1000)
            self.assertEqual(found["phases"]["work"]["operations"], int(found["gigabytes"] * large_heap.OPERATIONS_PER_GB))
        self.assertGreater(runs[-2]["housekeeping"]["times"], 0)
        self.assertIn("| 50, on the line through these |", page)
        self.assertLessEqual(max(len(line) for line in page.splitlines() if not line.startswith("|")), 120)


if __name__ == "__main__":
    sys.exit(unittest.main())
