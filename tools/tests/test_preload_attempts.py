"""A program that fails under the preloaded library gets a second attempt only if the library shows no fault."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# `first` is true in the first attempt under the library alone: a file remembers it.
PROGRAMS = '''
import os, pathlib, signal, subprocess
from catalog import program

def first(test):
    mark = pathlib.Path("{marks}", test.program.name)
    seen = mark.exists()
    if test.library:
        mark.touch()
    return bool(test.library) and not seen

@program("late", needs={{}})
def late(test):
    """misses a moment once"""
    test.expect(not first(test), "the answer came late")

@program("crashed", needs={{}})
def crashed(test):
    """crashes once"""
    if first(test):
        test.run(["sh", "-c", "kill -SEGV $$"])

@program("warned", needs={{}})
def warned(test):
    """meets a heap that the library finds corrupted, once, and hides it"""
    if first(test):
        test.run(["sh", "-c", "echo 'snug: fatal: double free' >&2"])
        test.expect(False, "no answer")

@program("wrong", needs={{}})
def wrong(test):
    """is always wrong under the library"""
    test.expect(not test.library, "a wrong answer")

@program("elsewhere", needs={{}})
def elsewhere(test):
    """is wrong everywhere"""
    test.expect(False, "no such user")

@program("both", needs={{}})
def both(test):
    """crashes once, and is wrong everywhere"""
    if first(test):
        test.run(["sh", "-c", "kill -SEGV $$"])
    test.expect(False, "no such user")
'''


class Attempts(unittest.TestCase):
    def test_only_what_does_not_show_the_library_at_fault_is_tried_again(self):
        with tempfile.TemporaryDirectory() as folder:
            preload = Path(folder, "core/tests/preload")
            shutil.copytree(ROOT / "core/tests/preload", preload, ignore=shutil.ignore_patterns("programs", "__pycache__"))
            (preload / "programs").mkdir()
            Path(folder, "tools").mkdir()
            shutil.copy(ROOT / "tools/ports.py", Path(folder, "tools"))
            (preload / "programs/made.py").write_text(PROGRAMS.format(marks=folder))
            ended = subprocess.run([preload / "run", "--lib", ROOT / "build/libsnug.so", "--logs", f"{folder}/logs"],
                                   capture_output=True, text=True)
            rows = {name: (verdict, note) for name, verdict, note in
                    re.findall(r"^(\w+) +(passed|FAILED|skipped) +[\d.]+ +\S+ +(.*)$", ended.stdout, re.M)}
            self.assertEqual(rows["late"], ("passed", "passed at the second attempt; at the first: the answer came late"))
            self.assertEqual(rows["crashed"][0], "FAILED")
            self.assertEqual(rows["warned"][0], "FAILED")
            self.assertEqual(rows["wrong"], ("FAILED", "a wrong answer"))
            self.assertEqual(rows["elsewhere"], ("skipped", "fails without the library, too"))
            self.assertEqual(rows["both"][0], "FAILED")
            self.assertIn("\n1 passed, 4 failed, 1 skipped\n", ended.stdout)


if __name__ == "__main__":
    unittest.main()
