"""The page of tested systems is what was seen, and shows what went wrong."""

import importlib.machinery
import importlib.util
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools/tested" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Tested(unittest.TestCase):
    def test_the_page_is_that_of_the_results(self):
        ended = subprocess.run([ROOT / "tools/tested/run", "--check"], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_what_went_wrong_is_bold(self):
        run = program("run")
        line = {"kind": "interpreter", "system": "debian-13", "program": "Python 3.15.2", "command": "leak", "when": "2026-11-29"}
        server = {**line, "kind": "server", "program": "Puma 8.0.2", "result": "failed", "detail": "8 passed, 1 failed"}
        page = run.page([{**line, "result": "wrong", "detail": "malloc (libc.so.6:0)"}, server])
        self.assertIn("**wrong: malloc (libc.so.6:0)**", page)
        self.assertIn("| Puma 8.0.2 | debian-13 | **8 passed, 1 failed** | 2026-11-29 |", page)
        self.assertIn("| right |", run.page([{**line, "result": "line", "detail": "keep (keeps.py:7)"}]))

    def test_an_answer_is_right_only_by_the_line_that_keeps(self):
        inside = program("inside")
        kept = inside.Kept("python3.14")
        answer = subprocess.CompletedProcess([], 0, "", "")
        frame = {"function": "keep", "file": str(kept.path), "line": kept.line}
        native = {"function": "malloc", "file": "/lib/libc.so.6", "line": 0}
        self.assertEqual(kept.judge(answer, [[native, frame]])[0], "line")
        self.assertEqual(kept.judge(answer, [[native], [{**frame, "line": kept.line + 1}], [frame]])[0], "wrong")
        self.assertEqual(kept.judge(answer, [])[0], "wrong")
        answer.stderr = "note: the library does not read the code of Python 3.15, so its frames are native only"
        self.assertEqual(kept.judge(answer, [[native]])[0], "note")
        answer.returncode = 1
        self.assertEqual(kept.judge(answer, [[native, frame]])[0], "failed")


if __name__ == "__main__":
    unittest.main()
