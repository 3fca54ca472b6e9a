"""tools/check-library finds each thing that would tie the library to one C library."""

import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[1] / "check-library"
WEAK = "#pragma weak getenv\n#include <stdlib.h>\nchar *f(void) { return getenv ? getenv(\"A\") : 0; }\n"


def findings(source, *flags):
    """What is said of a library made of the source, with flags for the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder, "made.so")
        subprocess.run(["gcc", "-xc", "-", "-shared", "-fPIC", "-O1", "-o", library, *flags], input=source, text=True, check=True)
        result = subprocess.run([TOOL, library], capture_output=True, text=True)
        said = [line.partition(": ")[2] for line in result.stdout.splitlines()]
        assert result.returncode == bool(said), result
        return said


class CheckLibrary(unittest.TestCase):
    def test_a_library_of_weak_references_is_fine(self):
        self.assertEqual(findings(WEAK, "-nostdlib"), [])

    def test_a_needed_library_and_its_version_are_found(self):
        said = " ".join(findings(WEAK, "-nostdlib", "-Wl,--no-as-needed", "-lc"))
        self.assertRegex(said, r"needs libc\.so\.6 .*needs version GLIBC_2\.[0-9.]+")

    def test_a_strong_reference_is_found(self):
        self.assertEqual(findings("void abort(void); void f(void) { abort(); }", "-nostdlib", "-fno-builtin"),
                         ["refers to abort by force"])

    def test_a_call_that_the_compiler_makes_is_found(self):
        source = "void f(void *a, void *b, unsigned long n) { __builtin_memcpy(a, b, n); }"
        self.assertEqual(findings(source, "-nostdlib"),
                         ["refers to memcpy by force", "refers to memcpy, which glibc chooses at run time"])

    def test_thread_local_variables_must_have_fixed_offsets(self):
        source = "__thread int x; int *f(void) { return &x; }"
        self.assertEqual(findings(source, "-nostdlib", "-ftls-model=initial-exec"), [])
        said = findings("#pragma weak __tls_get_addr\n" + source, "-nostdlib")
        self.assertIn("a thread-local variable without a fixed offset", " ".join(said))

    def test_functions_chosen_at_run_time_are_found(self):
        source = ("static int one(void) { return 1; } static void *choose(void) { return one; }"
                  "int f(void) __attribute__((ifunc(\"choose\")));")
        self.assertIn("chooses f at run time", findings(source, "-nostdlib"))


if __name__ == "__main__":
    unittest.main()
