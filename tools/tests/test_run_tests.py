"""What tools/run-tests makes of what suites print."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

RUNNER = Path(__file__).resolve().parents[1] / "run-tests"


def run(recipe):
    """Runs a suite whose target has this recipe. Returns (status, the suite's line, the sum)."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "tools").mkdir()
        shutil.copy(RUNNER, root / "tools")
        (root / "Makefile").write_text(f"test-one:\n\t@{recipe}\n")
        ended = subprocess.run([root / "tools/run-tests", "one"], capture_output=True, text=True)
        lines = ended.stdout.splitlines()
        return ended.returncode, lines[0].partition("  (")[0].split(None, 1)[1], lines[-1]


class RunTests(unittest.TestCase):
    def test_what_was_said_is_added_up(self):
        for recipe, line in (("echo 'a: 3 passed, 0 failed'; echo 'b: 4 passed, 0 failed, 2 skipped'", "7 passed, 0 failed, 2 skipped"),
                             ("echo 'test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured'", "12 passed, 0 failed, 1 skipped"),
                             ("echo '0 passed, 0 failed, 1 skipped'", "0 passed, 0 failed, 1 skipped")):
            with self.subTest(recipe):
                self.assertEqual(run(recipe), (0, line, line))

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


if __name__ == "__main__":
    unittest.main()
