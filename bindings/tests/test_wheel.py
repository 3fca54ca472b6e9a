"""The wheel, installed into a virtual environment: the tool, the functions, and what they say where snug is not active."""

import unittest

from release import wheels
from release.project import ROOT, VERSION
from release.tests.staged import ARCHITECTURE, installed, run, temporary

FILLED = "import snug; held = [bytes(3000) for _ in range(20000)]; "


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temporary(cls)
        wheel = wheels.build(ARCHITECTURE, installed(), folder / "work", folder, ROOT / "build/dist-tools/bin/wheel")
        made = run("/usr/bin/python3", "-m", "venv", folder / "venv")
        assert made.returncode == 0, made.stderr
        cls.python = folder / "venv/bin/python"
        cls.pip = [cls.python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        put = run(*cls.pip, "install", "--no-index", wheel)
        assert put.returncode == 0, put.stderr
        cls.bin = folder / "venv/bin"

    def under_snug(self, script):
        ended = run(self.python, "-m", "snug", "run", "python", "-c", script)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout.strip()

    def test_the_tool_runs_programs_of_the_environment_though_it_is_not_activated(self):
        self.assertEqual(self.under_snug("import snug, sys; print(snug.active(), snug.version(), sys.prefix)"),
                         f"True {VERSION} {self.bin.parent}")

    def test_the_command_is_the_tool(self):
        self.assertEqual(run(self.bin / "snug", "--version").stdout, f"snug {VERSION}\n")
        refused = run(self.bin / "snug", "run", "--", "no-such-program")
        self.assertEqual(refused.returncode, 127)

    def test_the_path_is_for_ld_preload(self):
        path = run(self.python, "-m", "snug", "path").stdout.strip()
        ended = run(self.python, "-c", "import snug; print(snug.active())", LD_PRELOAD=path)
        self.assertEqual((ended.stdout, ended.stderr), ("True\n", ""))

    def test_stats_count_what_is_live(self):
        live = int(self.under_snug(FILLED + "print(snug.stats()['live_allocated_bytes'])"))
        self.assertGreater(live, 60_000_000)
        self.assertLess(live, 120_000_000)
        self.assertEqual(self.under_snug("import snug; print(all(isinstance(v, int) for v in snug.stats().values()), len(snug.stats()))"),
                         "True 11")

    def test_purge_gives_back_what_was_freed(self):
        # Without purges by budget or in idle moments, all of it is still there.
        ended = run(self.python, "-m", "snug", "run", "python", "-c", FILLED + "del held; print(snug.purge(), snug.stats()['dirty_bytes'])",
                    SNUG="purge_cpu_percent:0,background:0")
        given, dirty = map(int, ended.stdout.split())
        self.assertGreater(given, 50_000_000)
        self.assertLess(dirty, 1_000_000)

    def test_without_snug_it_says_so_and_how_to_get_it(self):
        ended = run(self.python, "-c", "import snug; print(snug.active()); snug.stats()")
        self.assertEqual(ended.stdout, "False\n")
        last = ended.stderr.splitlines()[-1]
        self.assertIn("snug.NotActive: snug is not this process's allocator; start it by `python -m snug run PROGRAM`", last)
        self.assertIn("libsnug.so", last)
        for call in ("purge", "version"):
            self.assertIn("NotActive", run(self.python, "-c", f"import snug; snug.{call}()").stderr)

    def test_a_tool_for_another_machine_is_explained(self):
        script = "import snug, snug.__main__ as m, sys; m.tool_path = lambda: '/etc/hostname'; sys.argv = ['snug', '--version']; sys.exit(m.main())"
        ended = run(self.python, "-c", script)
        self.assertEqual(ended.returncode, 125)
        self.assertIn("it is for Linux on x86-64 or aarch64", ended.stderr)

    def test_uninstalling_leaves_nothing(self):
        folder = temporary(self)
        run("cp", "-a", self.bin.parent, folder)
        python = folder / "venv/bin/python"
        self.assertEqual(run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "snug").returncode, 0)
        left = [path for path in (folder / "venv").rglob("*") if "snug" in path.name]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
