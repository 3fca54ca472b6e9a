"""The crate snug-alloc: its own tests, and a program with it as the tool sees that."""

import os
import re
import shutil
import signal
import subprocess
import unittest

from release import crates
from release.project import ROOT, VERSION
from release.tests.staged import CLEAN, installed, temporary

MANIFEST = """[package]
name = "held"
version = "1.0.0"
edition = "2021"
[dependencies]
snug-alloc = {{ path = "{crate}" }}
"""
# Waits with 40 MB in small blocks; malloc's own are not snug's.
PROGRAM = """#[global_allocator]
static ALLOCATOR: snug_alloc::Snug = snug_alloc::Snug;
fn main() {
    let held: Vec<String> = (0..100_000).map(|i| "x".repeat(i % 800)).collect();
    println!("{}", snug_alloc::version());
    std::thread::sleep(std::time::Duration::from_secs(600));
    assert!(held.len() > 1);
}
"""


class Crate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary(cls)
        packed = crates.build(ROOT / "build/packages-crate", cls.folder)  # where make dist works: below the workspace
        subprocess.run(["tar", "-xf", packed, "-C", cls.folder], check=True)
        cls.crate = cls.folder / f"snug-alloc-{VERSION}"

    def cargo(self, *arguments, **environment):
        """Everything is compiled into one folder of the build, of which the next run takes what did not change."""
        home = {name: os.environ[name] for name in ("HOME", "PATH", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ}
        ended = subprocess.run([os.environ.get("CARGO", "cargo"), *arguments], env={**CLEAN, **home, "CARGO_TARGET_DIR": str(ROOT / "build/cargo-crate"), **environment},
                               capture_output=True, text=True, timeout=600)
        return ended.returncode, ended.stdout + ended.stderr

    def test_it_holds_sources_and_licence_and_passes_its_own_tests(self):
        held = {str(path.relative_to(self.crate)) for path in self.crate.rglob("*") if path.is_file()}
        self.assertLessEqual({"LICENSE", "README.md", "build.rs", "core/src/snug.c", "core/archive/prefixed.c", "core/include/snug.h"}, held)
        status, said = self.cargo("test", "--locked", "--manifest-path", self.crate / "Cargo.toml")
        self.assertEqual(status, 0, said)
        self.assertIn("4 passed", said)

    def test_cargo_takes_no_manifest_for_a_part_of_the_tool(self):
        """The workspace of the tool lies above all others, and cargo refuses those that it does not exclude."""
        manifests = subprocess.run(["git", "ls-files", "*Cargo.toml"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        self.assertIn("bench/workloads/other/rust/Cargo.toml", manifests)
        for manifest in manifests:
            with self.subTest(manifest):
                status, said = self.cargo("metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", ROOT / manifest)
                self.assertEqual(status, 0, said)

    def test_the_tool_sees_the_heap_of_a_program(self):
        program = self.folder / "program"
        (program / "src").mkdir(parents=True)
        (program / "Cargo.toml").write_text(MANIFEST.format(crate=self.crate))
        (program / "Cargo.lock").write_text((self.crate / "Cargo.lock").read_text())
        (program / "src/main.rs").write_text(PROGRAM)
        status, said = self.cargo("build", "--manifest-path", program / "Cargo.toml")
        self.assertEqual(status, 0, said)
        held = subprocess.Popen([ROOT / "build/cargo-crate/debug/held"], stdout=subprocess.PIPE, text=True, env=CLEAN)
        self.addCleanup(held.wait)
        self.addCleanup(held.stdout.close)
        self.addCleanup(held.send_signal, signal.SIGKILL)
        self.assertEqual(held.stdout.readline(), f"{VERSION}\n")
        snug = installed() / "bin/snug"
        stats = subprocess.run([snug, "stats", str(held.pid)], capture_output=True, text=True, env=CLEAN)
        self.assertRegex(stats.stdout, r"heap: snug, compiled into the program; not counted here: what glibc serves\n  live +4\d\.\d MB")
        check = subprocess.run([snug, "check", str(held.pid)], capture_output=True, text=True, env=CLEAN)
        self.assertRegex(check.stdout, r"note: the program has snug compiled in for calls of its own")
        self.assertNotIn("snug set", check.stdout)

    def test_the_server_of_the_benchmarks_is_built_with_it(self):
        server = self.folder / "server"
        shutil.copytree(ROOT / "bench/workloads/other/rust", server)
        manifest = server / "Cargo.toml"
        manifest.write_text(re.sub(r'path = ".*?"', f'path = "{self.crate}"', manifest.read_text()))
        for features in ([], ["--features", "snug"]):
            status, said = self.cargo("run", "--quiet", "--locked", "--manifest-path", manifest, *features, "--", "800")
            self.assertEqual(status, 0, said)
            self.assertRegex(said, r"snug-metric: values=[1-9]\d+\n")
            self.assertEqual(f"snug-alloc {VERSION}\n" in said, bool(features))

    def test_what_is_missing_is_named(self):
        manifest = self.crate / "Cargo.toml"
        _, said = self.cargo("check", "--locked", "--manifest-path", manifest, OBJCOPY="no-such-objcopy")
        self.assertRegex(said, r'snug-alloc: "no-such-objcopy" can\'t be started: .*; snug-alloc needs a C compiler and binutils')


if __name__ == "__main__":
    unittest.main()
