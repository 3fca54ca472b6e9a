#!/usr/bin/env python3
"""Tests of the rule of tools/check about the tool's layers. Run: tools/tests/test_layers.py (standard library only)."""

import unittest

from check_program import load

CHECK = load()
ORDER = {"base": 0, "process": 1, "show": 2, "commands": 3}


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


if __name__ == "__main__":
    unittest.main()
