#!/usr/bin/env python3
"""Tests of the rule of tools/check about words. Run: tools/tests/test_words.py (standard library only)."""

import unittest

from check_program import ROOT, load

CHECK = load()


def found(text):
    return [(line, written) for line, written, _ in CHECK.words_in(text, CHECK.WORDS_NOT_USED)]


class Words(unittest.TestCase):
    def test_synonyms_are_found_wherever_they_stand(self):
        self.assertEqual(found("what is wrong\nand how to mend it"), [(2, "mend")])
        self.assertEqual(found('format!("{text} is An URL")'), [(1, "An URL")])
        self.assertEqual(found("/* a write behind\nthe end */"), [(1, "behind the end")])
        self.assertEqual(found("waits for\nfor ever."), [(2, "for ever")])

    def test_names_in_code_and_other_words_are_left_alone(self):
        for text in ("amend it", "recommendation", "mend_it()", "x.mend(y)", "the end is behind", "annual", "forever", "parse::mend"):
            self.assertEqual(found(text), [], text)

    def test_no_word_is_recommended_that_is_not_used(self):
        for instead in CHECK.WORDS_NOT_USED.values():
            self.assertEqual(found(instead), [])

    def test_a_synonym_that_is_added_fails_the_check(self):
        text = (ROOT / "crates/snug-base/src/failure.rs").read_text()
        self.assertEqual(found(text), [])
        self.assertEqual(found(text + "\n// To mend it, restart.\n"), [(text.count("\n") + 2, "mend")])


if __name__ == "__main__":
    unittest.main()
