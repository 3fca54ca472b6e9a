#!/usr/bin/env python3
"""Tests of the rule of tools/check about prose in Markdown. Run: tools/tests/test_prose.py (standard library only)."""

import unittest

from check_program import load

CHECK = load()
LONG = "word " * 30


def found(text):
    return [line for line, _ in CHECK.long_prose(text)]


class Prose(unittest.TestCase):
    def test_long_lines_of_prose_are_found(self):
        self.assertEqual(found(f"short\n\n{LONG}\n"), [3])
        self.assertEqual(found(f"- {LONG}\n  {LONG}\n"), [1, 2])
        self.assertEqual(found(f"```console\n$ x\n```\n{LONG}\n"), [4])
        self.assertEqual(found(f"---\nname: x\n---\n{LONG}\n"), [4])

    def test_what_can_not_be_broken_is_left_alone(self):
        for text in (f"| {LONG} |", f"# {LONG}", f"```\n{LONG}\n```", f"![{LONG}](x.svg)", f"    {LONG}", f"<!-- {LONG} -->",
                     f"---\nabout: {LONG}\n---\nshort", "x" * 120):
            self.assertEqual(found(text), [], text)


if __name__ == "__main__":
    unittest.main()
