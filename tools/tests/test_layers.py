#!/usr/bin/env python3
"""Tests of the rules of tools/check about layers of Python. Run: tools/tests/test_layers.py (standard library only)."""

import unittest

from check_program import load

CHECK = load()
PYTHON_ORDER = {"workloads.harness": 0, "workloads": 1, "summary": 2, "compare": 3}


class PythonLayers(unittest.TestCase):
    def found(self, text, module="summary.page"):
        return [line for line, _ in CHECK.python_arrows_upward(module, text, PYTHON_ORDER)]

    def test_an_arrow_upward_is_found_in_each_spelling(self):
        for text in ("from .. import compare", "from ..compare import main", "import bench.compare", "from bench import compare",
                     "from bench.compare import main as start", "def f():\n    from .. import compare"):
            self.assertEqual(self.found(text), [text.count("\n") + 1], text)
        self.assertEqual(self.found("import os\nfrom ... import summary", "workloads.harness.memory"), [2])
        self.assertEqual(self.found("from .. import catalog", "workloads.harness.memory"), [1], "the folder above is higher")

    def test_others_are_fine(self):
        for text in ("from . import goals", "from ..workloads.harness import memory", "import bench.workloads", "import compare",
                     "from compare import x", "from os import path"):
            self.assertEqual(self.found(text), [], text)

    def test_the_packages_own_layers_are_known_and_kept(self):
        for package in ("bench", "release"):
            self.assertGreater(len(CHECK.python_layers(CHECK.PROJECT / package)), 3)
        self.assertEqual(list(CHECK.layers_of_python()), [])


if __name__ == "__main__":
    unittest.main()
