#!/usr/bin/env python3
"""Tests of the rules of tools/check about layers of the tool and of Python. Run: tools/tests/test_layers.py (standard library only)."""

import unittest

from check_program import load

CHECK = load()
ORDER = {"base": 0, "process": 1, "show": 2, "commands": 3}
PYTHON_ORDER = {"workloads.harness": 0, "workloads": 1, "summary": 2, "compare": 3}


def found(text, *inside):
    return [line for line, _ in CHECK.arrows_upward(inside or ("process", "tree.rs"), text, ORDER)]


class Layers(unittest.TestCase):
    def test_an_arrow_upward_is_found_in_each_spelling(self):
        for text in ("use crate::show::json;", "use crate::show;", "pub(crate) use crate::show::json as j;",
                     "use crate::{show::json};", "use crate::{base::{self, time}, show::{table, json}};",
                     "use crate::{\n    base,\n    show,\n};", "fn f() { crate::show::json::write() }",
                     "fn f(x: &crate::commands::Row) {}", "use crate :: show::json;"):
            self.assertEqual(found(text), [1], text)

    def test_its_line_is_told(self):
        self.assertEqual(found("use crate::base;\n\nuse crate::show::json;\n"), [3])

    def test_arrows_within_the_layer_and_downward_are_fine(self):
        for text in ("use crate::base::failure::{Result, FAILED};", "use crate::process::proc;", "use crate::VERSION;",
                     "use crate::{base, process::{proc, tree}};", "use super::proc;", "use super::*;",
                     "mod tests { use super::*; }", "// use crate::show::json;", "pub(crate) fn f() {}"):
            self.assertEqual(found(text), [], text)

    def test_the_parent_of_a_layer_is_the_root(self):
        self.assertEqual(found("use super::show::json;", "process", "mod.rs"), [1])
        self.assertEqual(found("use super::{base, show};", "process", "mod.rs"), [1])
        self.assertEqual(found("use super::base::time;", "process", "mod.rs"), [])
        # One folder down it is the layer, whose modules may have a layer's name.
        self.assertEqual(found("use super::show;", "process", "deep", "mod.rs"), [])

    def test_what_hides_the_layer_is_found(self):
        for text in ("use crate::*;", "use crate::{self as root};", "use super::super::show;", "use super::{super::show};",
                     "use crate as root;", "use crate::base::{self}; use crate::{*};"):
            self.assertEqual(found(text), [1], text)

    def test_the_tool_s_own_layers_are_known_and_kept(self):
        self.assertEqual(list(CHECK.tool_layers())[0::8], ["base", "commands"])
        self.assertEqual(list(CHECK.layers_of_the_tool()), [])


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
        for package in ("bench", "packages"):
            self.assertGreater(len(CHECK.python_layers(CHECK.PROJECT / package)), 3)
        self.assertEqual(list(CHECK.layers_of_python()), [])


if __name__ == "__main__":
    unittest.main()
