#!/usr/bin/env python3
"""`snug boot` with a Rails application whose gems Bundler chooses, as its readers have it."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import applications

ROOT = Path(__file__).resolve().parents[2]
SNUG = ROOT / "build/snug"
SECONDS = 240
GEMFILE = 'source "https://rubygems.org"\ngem "rails"\ngem "puma"\n'


def all_names(required):
    """Names of all files of a tree."""
    return {name for file in required for name in ({file["name"]} | all_names(file["required"]))}


class Boot(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="snug-boot-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        applications.write(self.folder)
        (self.folder / "Gemfile").write_text(GEMFILE)
        # Bundler writes only here, and takes the system's gems.
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("LD_PRELOAD", "SNUG", "RUBYOPT", "BUNDLE_GEMFILE")}
        self.environment |= {"HOME": scratch.name, "BUNDLE_APP_CONFIG": str(self.folder / ".bundle")}
        done = self.run_in_folder("bundle", "install", "--local")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def run_in_folder(self, *command):
        return subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=SECONDS)

    def boot(self, *program):
        done = self.run_in_folder(SNUG, "boot", "--json", "--", *program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_what_bundler_requires_is_measured(self):
        answer, said = self.boot("bundle", "exec", "rails", "runner", 'puts "it is #{Rails.env}"')
        self.assertIn("it is development", said)
        names = all_names(answer["required"])
        self.assertLessEqual({"rails/commands", "action_controller/railtie"}, names)
        self.assertGreater(answer["at_end"]["live_bytes"], 10e6)

    def test_bundler_within_the_program(self):
        program = 'require "bundler/setup"; Bundler.require; puts "with #{Puma::Const::PUMA_VERSION}"'
        answer, said = self.boot("ruby", "-e", program)
        self.assertRegex(said, r"with \d")
        self.assertLessEqual({"bundler/setup", "puma", "rails"}, all_names(answer["required"]))


if __name__ == "__main__":
    unittest.main()
