#!/usr/bin/env python3
"""Tests of the rule of tools/check about tests that end and say nothing. Run: tools/tests/test_silent.py (standard library only)."""

import unittest

from check_program import load

CHECK = load()
NEEDS = "let Some(x) = x() else { return };"


class SilentEnds(unittest.TestCase):
    def found(self, text, kind, whole=False):
        return [line for line, _ in CHECK.silent_ends(text, kind, whole)]

    def test_early_ends_of_tests_are_found(self):
        for line in (NEEDS, "if x {\n    return;\n}", "Err(_) => return,"):
            self.assertEqual(len(self.found(f"    #[test]\n    fn it_holds() {{\n        {line}\n    }}\n", ".rs")), 1, line)
            self.assertEqual(len(self.found(f"fn helps() {{\n    {line}\n}}\n", ".rs", whole=True)), 1, line)
        self.assertEqual(self.found("TEST(a) {\n  if (emulated) return;\n}\n", ".c"), [2])
        self.assertEqual(self.found("class A:\n    def test_a(self):\n        if x:\n            return\n", ".py"), [4])

    def test_what_says_why_and_what_is_no_test_is_left_alone(self):
        other = f"fn helps() {{\n    {NEEDS}\n}}\n#[test]\nfn holds() {{\n    let x = need!(x());\n}}\nfn more() {{\n    {NEEDS}\n}}\n"
        self.assertEqual(self.found(other, ".rs"), [])
        self.assertEqual(self.found("TEST(a) { b(); }\nvoid c(void) {\n  return;\n}\nTEST(d) {\n  if (test_failed) return;\n  SKIP(e);\n}\n", ".c"), [])
        self.assertEqual(self.found("def test_a():\n    self.skipTest()\n    x = 1\n\ndef other():\n    return\n", ".py"), [])


if __name__ == "__main__":
    unittest.main()
