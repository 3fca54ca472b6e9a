"""bench/compare finds out what is missing before it measures anything. Run: tools/run_unittests.py bench/tests"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from bench import compare
from bench.workloads import catalog
from bench.workloads.celery import drive as celery
from bench.workloads.harness import redis, session
from bench.workloads.rails_puma import drive as rails
from bench.workloads.sidekiq import drive as sidekiq

ROOT = Path(__file__).resolve().parents[2]
PERF = "--profile: perf can't sample the kernel here: Access to performance monitoring is limited"
# It notes what it is asked for, and fails but for the trial, which fails as where perf may not sample if REFUSED lies beside it.
TOOL = f"""#!/bin/sh
echo "$*" >>"$0.log"
[ ! -e "${{0%/*}}/REFUSED" ] || {{ echo "snug: {PERF}" >&2; exit 2; }}
case " $* " in *" --profile "*" sleep "*) exit 0 ;; esac
exit 1
"""


class Missing(unittest.TestCase):
    def of(self, *names):
        return compare.missing([catalog.find(name) for name in names], profile=False)

    def test_each_thing_that_a_workload_needs(self):
        """One that is not there is named for each workload that needs it, and for no other."""
        nowhere = "/nowhere/at/all"
        for module, name, who in (
                (rails, "PUMA", "rails_puma, rails_puma_cluster, rails_puma_cluster_8"), (sidekiq, "SIDEKIQ", "sidekiq"),
                (redis, "REDIS_SERVER", "sidekiq, celery_prefork, celery_threads, celery_heavy, celery_heavy_24"),
                (session, "RUBY", "ruby_threads, rails_puma, rails_puma_cluster, sidekiq, ruby_swing, rails_puma_cluster_8"),
                (celery, "PYTHON", "celery_prefork, celery_threads"),
                (celery, "HEAVY_PYTHON", "celery_heavy, celery_heavy_24, gunicorn_heavy")):
            with self.subTest(name), mock.patch.object(session, "require_program", self.all_but(nowhere)), \
                    mock.patch.object(session, "require_ruby", lambda *_: session.require_program(session.RUBY)), \
                    mock.patch.object(celery, "require_made", self.environments(celery.PYTHON, celery.HEAVY_PYTHON)), \
                    mock.patch.object(module, name, Path(nowhere) if module is celery else nowhere):
                found, = compare.missing(catalog.WORKLOADS, profile=False)
                self.assertEqual(found.partition(":")[0], who)
                self.assertIn("run: ", found)

    def all_but(self, missing):
        def require(path):
            if path == missing:
                raise session.WorkloadError(f"{path} is missing; run: tools/install-deps bench")
        return require

    def environments(self, *there):
        def require(python, *_):
            if python not in there:
                raise session.WorkloadError(f"{python} is missing; run: bench/workloads/celery/setup")
        return require

    def test_an_environment_that_is_missing_or_old(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(celery, "PYTHON", Path(folder, "bin/python")):
            with self.assertRaisesRegex(session.WorkloadError, "missing or outdated; run: .*bench/workloads/celery/setup"):
                celery.require_virtual_environment()
            Path(folder, "requirements.txt").write_text("celery==1.0\n")
            with self.assertRaisesRegex(session.WorkloadError, "missing or outdated"):
                celery.require_virtual_environment()

    @unittest.skipUnless(os.access(session.RUBY, os.X_OK), "ruby is not installed")
    def test_a_library_of_rubys(self):
        session.require_ruby("json")
        with self.assertRaisesRegex(session.WorkloadError, r"cannot load such file -- no/such\); run: tools/install-deps bench"):
            session.require_ruby("json", "no/such")


class Main(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tool = self.folder / "build/snug"
        self.tool.parent.mkdir()
        self.tool.write_text(TOOL)
        self.tool.chmod(0o755)

    def main(self, *words, lacks=()):
        """Exit status, what was said, and what the tool was asked for."""
        def require(name):
            if name in lacks:
                raise session.WorkloadError("a server is missing; run: tools/install-deps bench")
        workloads = tuple(catalog.Workload(name, "", ("run",), lambda name=name: require(name)) for name in ("one", "two"))
        said = io.StringIO()
        with mock.patch.object(catalog, "WORKLOADS", workloads), mock.patch.object(compare, "SNUG", self.tool), \
                mock.patch.object(compare, "ROOT", self.folder), mock.patch.object(sys, "argv", ["compare", *words]), \
                mock.patch.object(subprocess, "run", self.run_but_summarise(subprocess.run)), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = compare.main()
        log = self.folder / "build/snug.log"
        asked = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return status, said.getvalue(), asked

    def run_but_summarise(self, run):
        def other(command, **options):
            return mock.Mock(returncode=0) if str(command[0]).endswith("summarise") else run(command, **options)
        return other

    def test_nothing_is_measured_if_one_workload_lacks_something(self):
        status, said, asked = self.main("--out", str(self.folder), lacks=("two",))
        self.assertEqual((status, asked), (1, []))
        self.assertEqual(said.splitlines()[1:], ["  two: a server is missing; run: tools/install-deps bench"])
        status, said, _ = self.main("--out", str(self.folder), lacks=("one", "two"))
        self.assertEqual(said.splitlines()[1:], ["  one, two: a server is missing; run: tools/install-deps bench"])

    def test_what_was_not_chosen_may_be_missing(self):
        status, _, asked = self.main("one", "--with", "glibc", "--out", str(self.folder), lacks=("two",))
        self.assertEqual((status, len(asked)), (1, 1))
        self.assertEqual(self.main("one", "--check", lacks=("two",)), (0, "", []))

    def test_perf_is_tried_first(self):
        (self.folder / "build/REFUSED").touch()
        status, said, asked = self.main("--profile", "--out", str(self.folder))
        self.assertEqual((status, len(asked)), (1, 1))
        self.assertRegex(said, r"limited; or leave that column out: make bench PROFILE=")
        (self.folder / "build/REFUSED").unlink()
        status, _, asked = self.main("--profile", "--check")
        self.assertEqual((status, len(asked)), (0, 1))


class InParts(unittest.TestCase):
    """--minutes: one round at a time, of the workload that has the fewest; what is there is added to."""

    ALLOCATORS = ({"label": "glibc"}, {"label": "snug"})

    def compare(self, folder, minutes, broken=(), allocators=ALLOCATORS, **seconds):
        """Which workloads were run, and how many rounds each has then; a round moves the clock by what it takes."""
        clock, ran = [0.0], []
        workloads = [catalog.Workload(name, "", ("run",), lambda: None, full_seconds=full) for name, full in seconds.items()]

        def run(command, **_):
            name = Path(command[command.index("--out") + 1]).name
            ran.append(name)
            clock[0] += seconds[name] * 2
            comparison = {"program": [name], "allocators": allocators, "settings": {"rounds": 1},
                          "runs": [{"allocator": one["label"], "round": 1, "samples": {"time_s": []}, "details": {"time_s": []}} for one in allocators]}
            if name not in broken:
                (folder / "work" / name / "compare.json").write_text(json.dumps(comparison))
            return int(name in broken), ""

        arguments = mock.Mock(minutes=minutes, runs=3, quick=False, idle_seconds=None, profile=False)
        with mock.patch.object(compare.foreground, "run", run), mock.patch.object(compare.time, "monotonic", lambda: clock[0]), \
                mock.patch.object(compare.keep, "report"), mock.patch.object(compare.keep.subprocess, "run", lambda *_, **__: mock.Mock(stdout="a table")), \
                contextlib.redirect_stdout(io.StringIO()):
            failed = compare.go_on(workloads, arguments, lambda _: ["glibc", "snug"], folder / "work", folder / "kept")
        return ran, {one.name: compare.keep.rounds(folder / "kept" / one.name) for one in workloads}, [one.name for one in failed]

    def test_rounds_are_added_until_all_are_there(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.assertEqual(self.compare(folder, 4, short=30, long=60), (["short", "long", "short"], {"short": 2, "long": 1}, []))
            self.assertEqual(self.compare(folder, 4, short=30, long=60)[:2], (["long", "short"], {"short": 3, "long": 2}))
            self.assertEqual(self.compare(folder, 4, short=30, long=60)[:2], (["long"], {"short": 3, "long": 3}))
            self.assertEqual(self.compare(folder, 99, short=30, long=60)[:2], ([], {"short": 3, "long": 3}))
            runs = json.loads((folder / "kept/short/compare.json").read_text())["runs"]
            self.assertEqual([(run["allocator"], run["round"]) for run in runs], [(label, round_) for round_ in (1, 2, 3) for label in ("glibc", "snug")])
            self.assertEqual((folder / "kept/short/table.txt").read_text(), "a table")

    def test_what_cannot_be_run_is_not_tried_again(self):
        with tempfile.TemporaryDirectory() as name:
            ran, rounds, failed = self.compare(Path(name), 99, broken=("bad",), good=30, bad=30)
            self.assertEqual((sorted(ran), rounds, failed), (["bad", "good", "good", "good"], {"good": 3, "bad": 0}, ["bad"]))

    def test_other_allocators_are_no_more_rounds(self):
        with tempfile.TemporaryDirectory() as name:
            self.compare(Path(name), 2, one=30)
            with self.assertRaisesRegex(ValueError, "with the same allocators only"):
                self.compare(Path(name), 2, allocators=[{"label": "glibc"}], one=30)


class Make(unittest.TestCase):
    def test_what_is_missing_is_said_before_hours_are_spent(self):
        for goal, setup, options, then in (("bench", "celery", " --profile", "bench/peers/build"), ("bench-hooks", "celery", "", "bench/peers/build"),
                                           ("bench-forks", "heavy", " --forks", "bench/compare  --forks --idle-seconds 6 --runs 5")):
            with self.subTest(goal):
                lines = self.lines(goal)
                places = [lines.index(line) for line in (f"bench/workloads/{setup}/setup", f"bench/compare --check{options}", then)]
                self.assertEqual(places, sorted(places))
        self.assertIn("bench/compare --check", self.lines("bench", "PROFILE="))
        self.assertIn("bench/soak/run --minutes 720", self.lines("soak"))

    def lines(self, *goals):
        """What make would run."""
        done = subprocess.run(["make", "-n", *goals], cwd=ROOT, capture_output=True, text=True, check=True)
        return [line.strip() for line in done.stdout.splitlines()]


if __name__ == "__main__":
    unittest.main()
