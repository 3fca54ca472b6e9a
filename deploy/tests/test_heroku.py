"""The buildpack, called as Heroku calls it: built in one place, started in another."""

import os
import shutil
import tarfile
import unittest
from pathlib import Path

from release import buildpacks
from release.tests.staged import ARCHITECTURE, installed, run, temporary

# What the dyno does before it starts a process.
START = 'cd "$HOME"; for file in .profile.d/*.sh; do . "$file"; done; exec "$@"'
COUNT = ("ruby", "-e", "puts File.read('/proc/self/maps').scan('vendor/snug/libsnug.so').size")


class Heroku(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary(cls)
        archive = buildpacks.build({ARCHITECTURE: installed()}, folder / "work", folder)
        cls.buildpack = folder / "buildpack"
        with tarfile.open(archive) as packed:
            packed.extractall(cls.buildpack)

    def setUp(self):
        self.folder = temporary(self)
        self.build, self.environment = self.folder / "build", self.folder / "env"
        for path in (self.build, self.environment, self.folder / "cache"):
            path.mkdir()

    def call(self, script, *folders, **environment):
        ended = run(self.buildpack / "bin" / script, *folders, **environment)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def compile(self):
        return self.call("compile", self.build, self.folder / "cache", self.environment)

    def start(self, *command, **environment):
        """What a dyno's process writes; the build has become its home."""
        home = self.folder / "app"
        if self.build.exists():
            self.build.rename(home)
        return run("bash", "-c", START, "bash", *command, **{"HOME": str(home), **environment})

    def active(self, **environment):
        ended = self.start(*COUNT, **environment)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout != "0\n"

    def test_it_is_active_if_the_variable_says_so(self):
        self.assertEqual(self.call("detect", self.build), "snug\n")
        self.assertIn("SNUG_ENABLED=true", self.compile())
        self.assertEqual(self.call("release", self.build), "--- {}\n")
        self.assertFalse(self.active())
        self.assertFalse(self.active(SNUG_ENABLED="false"))
        self.assertTrue(self.active(SNUG_ENABLED="true"))
        self.assertTrue(self.active(SNUG_ENABLED=" true "))

    def test_a_second_build_over_the_first_is_the_same(self):
        (self.environment / "SNUG_ENABLED").write_text("true")
        self.assertIn("SNUG_ENABLED is: true", self.compile())
        before = sorted(self.build.rglob("*"))
        self.compile()
        self.assertEqual(sorted(self.build.rglob("*")), before)
        self.assertTrue(self.active(SNUG_ENABLED="true"))

    def test_what_was_preloaded_stays_and_the_tool_is_found(self):
        self.compile()
        told = self.start("sh", "-c", "echo $LD_PRELOAD", SNUG_ENABLED="true", LD_PRELOAD="libm.so.6")
        self.assertEqual(told.stdout, f"{self.folder}/app/vendor/snug/libsnug.so:libm.so.6\n")
        checked = self.start("snug", "check", "--expect", "snug", "--for", "500ms", "--", "sleep", "1", SNUG_ENABLED="true")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertEqual(self.start("snug", "run", "--", *COUNT).returncode, 0)

    def test_without_the_library_the_application_starts_as_ever(self):
        self.compile()
        (self.build / "vendor/snug/libsnug.so").unlink()
        self.assertFalse(self.active(SNUG_ENABLED="true"))
        shutil.rmtree(self.folder / "app/vendor")
        self.assertFalse(self.active(SNUG_ENABLED="true"))

    def test_a_machine_that_it_has_nothing_for_ends_the_build(self):
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "uname").write_text("#!/bin/sh\necho riscv64\n")
        (programs / "uname").chmod(0o755)
        ended = run(self.buildpack / "bin/compile", self.build, self.folder, self.folder, PATH=f"{programs}:{os.environ['PATH']}")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("nothing for riscv64, only for: " + ARCHITECTURE.name, ended.stderr)
        self.assertEqual(list(Path(self.build).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
