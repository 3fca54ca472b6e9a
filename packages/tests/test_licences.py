"""The licences of others: each crate in the tool has its text in what every package takes."""

import re
import unittest
from pathlib import Path
from unittest import mock

from packages import bill, licences
from packages.project import ARCHITECTURES
from packages.tests import staged


class Licences(unittest.TestCase):
    def test_all_that_is_in_the_tool_has_its_text(self):
        text = (staged.installed() / licences.PLACE).read_text()
        named = set(re.split(r", |\n", "\n".join(re.findall(r"={80}\n(.+)\n={80}", text))))
        crates = {f"{name} {version}" for one in ARCHITECTURES.values() for name, version, _ in bill.crates(one)}
        self.assertGreater(len(crates), 100)
        self.assertEqual(named, crates | {"the GNU C Library", "Rust's standard library"})
        for words in ("GNU LESSER GENERAL PUBLIC LICENSE", "Apache License", "Permission is hereby granted", "Community Data License Agreement"):
            self.assertIn(words, text)

    def test_a_later_run_of_the_tests_installs_anew(self):
        stale = staged.installed() / "share/doc/snug/stale"
        stale.touch()
        staged.installed.__wrapped__()
        self.assertFalse(stale.exists())

    def test_a_crate_without_a_text_ends_the_build(self):
        folder = staged.temporary(self)
        silent = mock.patch("packages.licences.crates", return_value=[("silent", "1.0", Path(folder))])
        with silent, self.assertRaisesRegex(SystemExit, "the crate silent 1.0 has no text of its licence"):
            licences.text()


if __name__ == "__main__":
    unittest.main()
