"""What of others is in the tool: all of it has its licence in what every package takes, and a line in the bill of materials."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from release import bill, licences, parts
from release.project import ARCHITECTURES, DEBIAN_RUST, run
from release.tests import staged

RUNTIME = {"glibc (the GNU C Library)", "libgcc (the runtime library of GCC)", "rust-std (Rust's standard library)"}


class Licences(unittest.TestCase):
    def test_all_that_is_in_the_tool_has_its_text(self):
        text = (staged.installed() / licences.PLACE).read_text()
        named = set(re.split(r", |\n", "\n".join(re.findall(r"={80}\n(.+)\n={80}", text))))
        crates = {f"{name} {version}" for one in ARCHITECTURES.values() for name, version, _ in parts.crates(one)}
        self.assertGreater(len(crates), 100)
        self.assertEqual(named, crates | RUNTIME)
        for words in ("GCC Runtime Library Exception", "GNU LESSER GENERAL PUBLIC LICENSE", "Apache License", "Permission is hereby granted", "Community Data License Agreement"):
            self.assertIn(words, text)

    def test_what_cargo_says_beside_its_list_is_no_crate(self):
        """As it does while another one holds its lock."""
        architecture = next(iter(ARCHITECTURES.values()))
        crates = parts.crates(architecture)
        with tempfile.TemporaryDirectory() as folder:
            talker = Path(folder, "cargo")
            talker.write_text(f'#!/bin/sh\necho "    Blocking waiting for file lock on package cache" >&2\nPATH={DEBIAN_RUST["PATH"]} exec cargo "$@"\n')
            talker.chmod(0o755)
            with mock.patch.object(parts, "DEBIAN_RUST", {"PATH": f"{folder}:{DEBIAN_RUST['PATH']}"}):
                self.assertEqual(parts.crates(architecture), crates)

    def test_the_bill_has_all_whose_licences_are_printed(self):
        content = json.loads(bill.bill(staged.ARCHITECTURE))
        described = {f"{one['name']} ({one['description']})" for one in content["components"] if "description" in one}
        self.assertEqual(described, RUNTIME)
        crates = {(one["name"], one["version"]) for one in content["components"] if one["purl"].startswith("pkg:cargo/")}
        self.assertEqual(crates, {crate[:2] for crate in parts.crates(staged.ARCHITECTURE)})
        self.assertEqual(len(content["components"]), len(described) + len(crates))
        self.assertEqual(content["dependencies"][0]["dependsOn"], [one["bom-ref"] for one in content["components"]])

    def test_the_bill_has_all_that_the_linker_takes(self):
        """The packages, by the linker's own account of a program that is linked as the tool is."""
        folder = staged.temporary(self)
        program, account = folder / "main.rs", folder / "account"
        program.write_text("fn main() { std::thread::spawn(|| println!(\"{:?}\", std::env::args())).join().unwrap() }\n")
        run("/usr/bin/rustc", "-Ctarget-feature=+crt-static", "-Cpanic=unwind", f"-Clink-arg=-Wl,-Map={account}", "-o", folder / "main", program, env=DEBIAN_RUST)
        files = {str(Path(name).resolve()) for name in re.findall(r"^LOAD (/usr/.+)$", account.read_text(), re.M)}
        found = subprocess.run(["dpkg-query", "--search", *sorted(files)], capture_output=True, text=True)
        self.assertEqual(found.stderr, "")
        owners = {line.partition(":")[0] for line in found.stdout.splitlines()}
        listed = json.loads(bill.bill(staged.ARCHITECTURE))["components"]
        packages = {re.match(r"pkg:deb/\w+/([^@]+)@", one["purl"])[1] for one in listed if one["purl"].startswith("pkg:deb/")}
        self.assertEqual(packages, owners)

    def test_a_later_run_of_the_tests_installs_anew(self):
        stale = staged.installed() / "share/doc/snug/stale"
        stale.touch()
        staged.installed.__wrapped__()
        self.assertFalse(stale.exists())

    def test_a_crate_without_a_text_ends_the_build(self):
        folder = staged.temporary(self)
        silent = mock.patch("release.licences.crates", return_value=[("silent", "1.0", Path(folder))])
        with silent, self.assertRaisesRegex(SystemExit, "the crate silent 1.0 has no text of its licence"):
            licences.text()


if __name__ == "__main__":
    unittest.main()
