#!/usr/bin/env python3
"""Tests of tools/promised, and whether all that was promised stands. Run: tools/tests/test_promised.py (standard library only)."""

import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools/promised"
loader = importlib.machinery.SourceFileLoader("promised", str(PROGRAM))
PROMISED = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(PROMISED)

HEADER = """/* struct none { int a; }; */
#define SNUG_ZERO 0x40 /* of flags */
#define SNUG_TABLE_VERSION 2
struct row {
  uint32_t size, slabs; /* both */
  struct cell cells[4][2];
};
enum kind {
  KIND_ONE = 1,
};
/* Says. */
const char *say(int what,
                size_t bytes);
static inline int twice(int a) {
  return 2 * a;
}
"""
LIBRARY = """#include "public.h"
int fill(struct stats *stats, size_t bytes) { return (int)bytes + (int)stats->live; }
int gone(void) { return 1; }
struct page page;
static int own(int a) { return a; }
int (*kept)(int) = own;
"""
LIBRARY_HEADER = """#include <stddef.h>
enum state { OFF = 1, ON };
struct stats { long live, cached; };
struct page { enum state state; struct stats now; };
"""
HELP = """Usage: x
Commands:
  run       Run
  help      Help

Options:
  -h, --help  Print help
"""


needs_libabigail = unittest.skipUnless(shutil.which("abidw"), "abidw is not installed")


class Promised(unittest.TestCase):
    @needs_libabigail
    def test_all_promises_stand(self):
        said = subprocess.run([PROGRAM], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_a_header(self):
        self.assertEqual(list(PROMISED.of_header(HEADER)), [
            "constant SNUG_ZERO 0x40", "field row 0 uint32_t size", "field row 1 uint32_t slabs", "field row 2 struct cell cells[4][2]",
            "constant KIND_ONE 1", "function const char *say(int what, size_t bytes);"])

    def test_what_breaks_a_promise_and_what_does_not(self):
        promised = list(PROMISED.of_header(HEADER))
        for old, new, broken in (("  struct cell", "  int more;\n  struct cell", 1), ("size_t bytes", "size_t bytes, int more", 1),
                                 ("KIND_ONE = 1", "KIND_ONE = 2", 1), ("cells[4][2];", "cells[4][2];\n  int more;", 0),
                                 ("VERSION 2", "VERSION 3", 0), ("\nenum", "\nint added(void);\nenum", 0)):
            with self.subTest(new):
                self.assertIn(old, HEADER)
                self.assertEqual(len(PROMISED.broken(promised, list(PROMISED.of_header(HEADER.replace(old, new))))), broken)

    def test_options_codes_formats_metrics(self):
        self.assertEqual(list(PROMISED.of_options('    {"thp", &options.thp, 0, 0, 1, 0, "x"},\n    {"a", &options.a, 1, 0, 9, 1,\n')),
                         ["option thp", "option a", "option a live"])
        self.assertEqual(list(PROMISED.of_exit_codes("pub(crate) const USAGE: u8 = 2;\n")), ["exit code USAGE 2"])
        self.assertEqual(list(PROMISED.of_formats('CHECK: Format = ("snug-check", 1);', 'const FORMAT: &str = "snug-compare";')),
                         ["json snug-check", "json snug-compare"])
        self.assertEqual(list(PROMISED.of_metrics('("snug_b", "B")("snug_a"\n#[cfg(test)]\n"snug_c"')), ["metric snug_a", "metric snug_b"])

    def test_commands(self):
        helps = {(): HELP, ("run",): "Options:\n      --this-only <X>  Text\n  -h, --help  Print\n\nText\n--not an option\n"}
        self.assertEqual(list(PROMISED.of_tool(lambda *words: helps[words])),
                         ["command run", "command run --this-only", "command run --help", "command help"])

@needs_libabigail
class OfLibrary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def described(self, library=LIBRARY, header=LIBRARY_HEADER, flags=("-g",), soname="libone.so.0"):
        """What libabigail says of a library with these sources."""
        (self.folder / "public.h").write_text(header)
        (self.folder / "one.c").write_text(library)
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "one.c", "-o", "one.so"], cwd=self.folder, check=True)
        return PROMISED.abi_of(self.folder / "one.so", self.folder)

    def test_what_breaks_programs_is_said(self):
        promised = self.described()
        for old, new, said in (("int gone(void)", "static int away(void)", "1 Removed function"), ("int gone", "long gone", "return type changed"),
                               ("size_t bytes)", "int bytes)", "parameter 2 of type"), ("struct page page", "static struct page page", "1 Removed variable"),
                               ("ON }", "SLOW, ON }", "'state::ON' from value '2' to '3'"), ("long live, cached", "long cached, live", "offset changed"),
                               ("long live, cached", "long live, free", "name of 'stats::cached' changed to 'stats::free'"),
                               ("long live, cached", "long live, more, cached", "1 data member insertion")):
            with self.subTest(new):
                self.assertEqual((LIBRARY + LIBRARY_HEADER).count(old), 1)
                changed = self.described(LIBRARY.replace(old, new), LIBRARY_HEADER.replace(old, new))
                self.assertIn(said, PROMISED.broken_abi(promised, changed))
        self.assertIn("SONAME changed", PROMISED.broken_abi(promised, self.described(soname="libone.so.1")))

    def test_what_breaks_none_is_not(self):
        promised = self.described()
        for library, flags in ((LIBRARY, ("-g", "-O2")), (LIBRARY + "int added(void) { return 2; }\n", ("-g",)), (LIBRARY.replace("own", "mine"), ("-g",))):
            self.assertEqual(PROMISED.broken_abi(promised, self.described(library, flags=flags)), "")

    def test_a_library_without_types_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "built without -g"):
            self.described(flags=())


if __name__ == "__main__":
    unittest.main()
