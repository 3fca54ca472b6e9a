"""The tool runs without the system calls that came after old kernels: refuse_call refuses them as these kernels do."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFUSE = ROOT / "build/tests/startup/refuse_call"
TOOL = ROOT / "build/snug"
VERSIONS = ("3.10", "4.4", "4.18")


def under(version, *arguments, fine=(0,)):
    """What the tool prints under that version of the kernel. Raises if its exit code is none of the fine ones."""
    command = [REFUSE, "--linux", version, "--", TOOL, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
    if result.returncode not in fine:
        raise AssertionError(f"{arguments[0]} under Linux {version}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class OldKernel(unittest.TestCase):
    def test_a_program_runs_under_snug(self):
        for version in VERSIONS:
            with self.subTest(version):
                self.assertEqual(under(version, "run", "--", "/bin/echo", "it runs"), "it runs\n")

    def test_memory_of_a_process_is_read(self):
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                for version in VERSIONS:
                    with self.subTest(version):
                        self.assertGreater(json.loads(under(version, "stats", "--json", str(process.pid)))["rss_bytes"], 0)
            finally:
                process.kill()

    def test_allocators_are_compared_under_a_load(self):
        for version in VERSIONS:
            with self.subTest(version), tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "out.json")
                under(version, "compare", "--runs", "1", "--with", "glibc,snug", "--ready", "line:ready", "--load", "sleep 0.2",
                      "--load-for", "1s", "--idle", "0.5s", "--out", folder, "--force", "--json", str(out), "--", "sh", "-c", "echo ready; exec sleep 60")
                self.assertEqual(len(json.loads(out.read_text())["runs"]), 2)

    def test_a_process_is_watched_under_a_load(self):
        """Three seconds may not be enough data, which is exit code 3."""
        for version in VERSIONS:
            with self.subTest(version):
                said = under(version, "leak", "--load", "sleep 0.2", "--for", "3s", "--", "sleep", "60", fine=(0, 3))
                self.assertRegex(said, r"[1-9]\d* runs of the load")


if __name__ == "__main__":
    unittest.main()
