"""What tools/run-tests makes of what suites print, and which it runs side by side."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

RUNNER = Path(__file__).resolve().parents[1] / "run-tests"
PASSED = "echo '1 passed, 0 failed'"


def setUpModule():
    """A script ignores it for what it starts in the background, and so would all that is started here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Project:
    """A folder with the runner and a Makefile of suites."""

    def __init__(self, suites, programs=":"):
        """suites: name -> recipe of its target."""
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(RUNNER, self.root / "tools")
        targets = "".join(f"test-{name}:\n\t@{recipe}\n" for name, recipe in suites.items())
        (self.root / "Makefile").write_text(f"programs-%: ; @{programs}\n{targets}")
        self.suites = list(suites)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def start(self, *suites, lanes=2):
        return subprocess.Popen([self.root / "tools/run-tests", *(suites or self.suites)], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "LANES": str(lanes)})

    def run(self, *suites, lanes=2):
        """Returns (status, the lines after the one of the programs, without times)."""
        runner = self.start(*suites, lanes=lanes)
        lines = runner.communicate(timeout=60)[0].splitlines()
        return runner.returncode, [" ".join(line.partition("  (")[0].split()) for line in lines[1:]]


def run(recipe):
    """Runs a suite whose target has this recipe. Returns (status, the suite's line, the sum)."""
    with Project({"one": recipe}) as project:
        status, lines = project.run()
        return status, lines[0].split(None, 1)[1], lines[-1]


class Sums(unittest.TestCase):
    def test_what_was_said_is_added_up(self):
        for recipe, line in (("echo 'a: 3 passed, 0 failed'; echo 'b: 4 passed, 0 failed, 2 skipped'", "7 passed, 0 failed, 2 skipped"),
                             ("echo 'test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured'", "12 passed, 0 failed, 1 skipped"),
                             ("echo '0 passed, 0 failed, 1 skipped'", "0 passed, 0 failed, 1 skipped")):
            with self.subTest(recipe):
                self.assertEqual(run(recipe), (0, line, line))

    def test_what_is_skipped_is_counted_and_listed_and_fails_where_it_may_not(self):
        cargo = "echo 'SKIPPED a::b: jeprof is not installed'; echo 'test c::d ... SKIPPED e::f: no mount namespaces here'; " \
                "echo 'test g::h ... ignored, long'; echo 'test result: ok. 5 passed; 0 failed; 1 ignored'"
        other = "echo 'SKIPPED api/x a: needs root'; echo '4 passed, 0 failed, 1 skipped'"
        with Project({"one": f"{cargo}; {other}; {PASSED}"}) as project:
            status, lines = project.run()
            self.assertEqual((status, lines), (0, ["one 8 passed, 0 failed, 4 skipped", "one skipped:", "a::b: jeprof is not installed", "api/x a: needs root",
                                                   "e::f: no mount namespaces here", "g::h: long", "8 passed, 0 failed, 4 skipped"]))
            with mock.patch.dict(os.environ, NO_SKIPS="1"):
                status, lines = project.run()
            self.assertEqual((status, lines[-1]), (1, "8 passed, 2 failed, 4 skipped"))
            self.assertEqual(lines[1], "it may skip none of these here:")

    def test_a_suite_that_says_nothing_has_failed(self):
        for recipe in ("true", "echo all went well", "echo 'it had 3 passed, 0 failed or so'", "false"):
            with self.subTest(recipe):
                self.assertEqual(run(recipe), (1, "0 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"))

    def test_a_suite_without_tests_has_failed(self):
        self.assertEqual(run("echo '0 passed, 0 failed'")[0], 1)

    def test_failures_and_a_bad_end_count(self):
        self.assertEqual(run("echo '5 passed, 2 failed'; exit 1")[:2], (1, "5 passed, 2 failed, 0 skipped"))
        self.assertEqual(run("echo '5 passed, 2 failed'")[0], 1)
        self.assertEqual(run("echo '5 passed, 0 failed'; exit 1")[:2], (1, "5 passed, 1 failed, 0 skipped"))

    def test_a_killed_suite_has_failed(self):
        self.assertEqual(run(f"{PASSED}; kill -9 $$PPID; sleep 5")[:2], (1, "1 passed, 1 failed, 0 skipped"))

    def test_programs_that_cannot_be_built_are_said(self):
        with Project({"one": PASSED}, programs="echo fatal error: no such file; false") as project:
            status, lines = project.run()
        self.assertIn("fatal error: no such file", lines)
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 0 skipped"))


class SecondTries(unittest.TestCase):
    """Few failed tests run again: by their names, and only these, where a suite can; else the suite, unless a program died."""

    ONCE = "if [ -e ran ]; then echo '$(AGAIN)' >again; {second}; else touch ran; {first}; false; fi"
    FIRST = "echo 'test a::b ... FAILED'; echo not ok c.D.test_e; echo '7 passed, 2 failed'"

    def last_lines(self, name, first, second):
        """Returns (status, the lines after the suite's own, the names that were run again)."""
        with Project({name: self.ONCE.format(first=first, second=second)}) as project:
            status, lines = project.run()
            again = project.root / "again"
            at = next((i for i, line in enumerate(lines) if "second try" in line), -1)
            return status, lines[at:], again.read_text().split() if again.exists() else []

    def test_what_passes_then_has_passed_and_is_named(self):
        status, lines, again = self.last_lines("servers", self.FIRST, "echo '2 passed, 0 failed'")
        self.assertEqual((status, lines[-1], again), (0, "9 passed, 0 failed, 0 skipped", ["a::b", "c.D.test_e"]))
        self.assertEqual(lines[:2], ["2 passed only at the second try:", "servers: a::b c.D.test_e (waits for servers)"])

    def test_what_fails_again_or_does_not_run_has_failed(self):
        for second in ("echo '1 passed, 1 failed'; false", "echo '1 passed, 0 failed'", "true"):
            with self.subTest(second):
                status, lines, _ = self.last_lines("cli", self.FIRST, second)
                self.assertEqual((status, lines[-1]), (1, "7 passed, 2 failed, 0 skipped"))

    def test_a_suite_that_cannot_run_tests_by_name_runs_again_whole(self):
        first = "echo not ok a/slow: still running after 60 s, or killed; echo '7 passed, 1 failed'"
        status, lines, again = self.last_lines("stress", first, "echo '8 passed, 0 failed'")
        self.assertEqual((status, lines[-1], again), (0, "8 passed, 0 failed, 0 skipped", []))
        self.assertIn("stress: all, after not ok a/slow", lines[1])
        for second in ("echo '7 passed, 1 failed'; false", "echo '8 passed, 0 failed'; false", "echo '0 passed, 0 failed'", "true"):
            with self.subTest(second):
                status, lines, _ = self.last_lines("stress", first, second)
                self.assertEqual((status, lines[-1]), (1, "7 passed, 1 failed, 0 skipped"))

    def test_failures_are_said_once_more_at_the_end(self):
        first = "echo not ok a/slow: 3 s; echo '7 passed, 1 failed'"
        with Project({"golden": first + "; false", "unit": PASSED}) as project:
            self.assertEqual(project.run()[1][-6:-3], ["golden failed:", "the end of build/test-logs/golden.log:", "not ok a/slow: 3 s"])

    def test_the_end_says_why_a_named_test_failed(self):
        said = "echo '---- a::b stdout ----'; echo the page lacks a row; echo failures:; for i in 1 2 3 4; do echo test result: rror; done"
        with Project({"unit": said + "; echo '7 passed, 1 failed'; false"}) as project:
            self.assertEqual(project.run()[1][-3:-1], ["---- a::b stdout ----", "the page lacks a row"])

    def test_what_died_and_failures_without_a_name_and_many_get_none(self):
        many = "for i in 1 2 3 4 5 6 7; do echo not ok t$$i; done; echo '1 passed, 7 failed'"
        died = "echo not ok a: %s; echo '7 passed, 1 failed'"
        for name, first in (("golden", self.FIRST), ("cli", "echo '7 passed, 2 failed'"), ("cli", "true"), ("bench", many),
                            ("unit", self.FIRST), ("crates", self.FIRST), ("stress", died % "ended with status 139: program"), ("sandbox", died % "killed by SIGSYS")):
            with self.subTest(name=name, first=first):
                status, _, again = self.last_lines(name, first, "echo '7 passed, 0 failed'")
                self.assertEqual((status, again), (1, []))

    def test_a_failed_test_that_says_of_a_crash_gets_none(self):
        unittest_says = "echo not ok c.D.e; echo =====; echo 'FAIL: e (c.D.e)'; echo '%s'; echo 'Ran 8 tests'; echo '%s'; echo '7 passed, 1 failed'"
        cargo_says = "echo test a::b ... FAILED; echo '---- a::b stdout ----'; echo '%s'; echo; echo failures:; echo '%s'; echo '7 passed, 1 failed'"
        for name, first in (("servers", unittest_says), ("cli", cargo_says), ("tools", unittest_says)):
            for words in ("snug: fatal: free: invalid pointer", "a worker got SIGSEGV", "Segmentation fault", "x.rb:1: [BUG] it"):
                with self.subTest(name=name, words=words):
                    status, _, again = self.last_lines(name, first % (words, "late"), "echo '8 passed, 0 failed'")
                    self.assertEqual((status, again), (1, []))
                    # What another test said, which passed, is no reason.
                    self.assertEqual(self.last_lines(name, first % ("late", words), "echo '8 passed, 0 failed'")[0], 0)

    def test_a_failed_test_of_python_has_the_name_that_runs_it_again(self):
        source = ("import unittest\nclass A(unittest.TestCase):\n  def test_bad(self): self.fail()\n  def test_good(self): pass\n"
                  "  def test_part(self):\n    with self.subTest(1): self.fail()\n"
                  "class B(unittest.TestCase):\n  @classmethod\n  def setUpClass(cls): raise OSError\n  def test_b(self): pass\n")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(source)
            command = [RUNNER.parent / "run_unittests.py", folder]
            lines = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.splitlines()
            names = [line.split()[-1] for line in lines if line.startswith("not ok ")]
            self.assertEqual(names, ["test_it.A.test_bad", "test_it.A.test_part", "test_it.B"])
            again = subprocess.run([*command, *names], capture_output=True, text=True, check=False)
            self.assertEqual(again.stdout.splitlines()[:-1], lines[:-1])


class SideBySide(unittest.TestCase):
    MEETS = "touch $@.here; for i in $$(seq 100); do test -e {other}.here && break; sleep 0.1; done; test -e {other}.here && " + PASSED

    def test_two_at_a_time_run_at_once(self):
        suites = {"a": self.MEETS.format(other="test-b"), "b": self.MEETS.format(other="test-a")}
        with Project(suites) as project:
            self.assertEqual(project.run()[0], 0)

    def test_no_more_run_than_there_are_lanes(self):
        alone = f"mkdir running && sleep 0.3 && rmdir running && {PASSED}"
        with Project(dict.fromkeys("abc", alone)) as project:
            self.assertEqual(project.run(lanes=1)[0], 0)

    def test_what_judges_times_runs_alone(self):
        lane, alone = f"mkdir $@.runs; sleep 0.3; rmdir $@.runs; {PASSED}", f"! ls -d *.runs && sleep 0.3 && ! ls -d *.runs && {PASSED}"
        with Project({"a": lane, "b": lane, "stress": alone, "c": lane, "bench": alone}) as project:
            status, lines = project.run(lanes=3)
        self.assertEqual((status, lines[-1]), (0, "5 passed, 0 failed, 0 skipped"))

    def test_lines_come_in_the_order_of_the_list_and_a_failure_in_a_lane_counts(self):
        suites = {"slow": f"sleep 0.5; {PASSED}", "bad": "echo '1 passed, 1 failed'; echo not ok this; false", "quick": PASSED}
        with Project(suites) as project:
            status, lines = project.run()
            self.assertEqual(project.run("quick", "slow")[1][:2], ["quick 1 passed, 0 failed, 0 skipped", "slow 1 passed, 0 failed, 0 skipped"])
        names = [line.split()[0] for line in lines if re.search(r"\d skipped$", line)]
        self.assertEqual((status, names, lines[-1]), (1, ["slow", "bad", "quick", "3"], "3 passed, 1 failed, 0 skipped"))
        self.assertLess(lines.index("not ok this"), lines.index("quick 1 passed, 0 failed, 0 skipped"))

    def test_who_ends_the_runner_ends_its_suites(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number), Project(dict.fromkeys("ab", "echo $$PPID >$@.make; sleep 60")) as project, project.start() as runner:
                files = [project.root / f"test-{name}.make" for name in "ab"]
                wait_until(lambda files=files: all(file.exists() and file.read_text().strip() for file in files))
                processes = [Path("/proc") / file.read_text().strip() for file in files]
                runner.send_signal(number)
                self.assertEqual(runner.wait(20), 128 + number)
                wait_until(lambda processes=processes: not any(process.exists() for process in processes))

    def test_a_suite_gets_interrupts(self):
        """Bash has jobs of a script ignore SIGINT, which programs under test would inherit."""
        with Project({"a": f"grep -q '^SigIgn:.*[014589cd]$$' /proc/self/status && {PASSED}"}) as project:
            self.assertEqual(project.run()[0], 0)


def wait_until(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within 20 s")


if __name__ == "__main__":
    unittest.main()
