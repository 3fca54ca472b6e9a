#!/usr/bin/env python3
"""Runs the unittest tests of a folder, and says how many passed, in the form that tools/run-tests reads.

    tools/run_unittests.py bench/tests
"""

import sys
import unittest
from pathlib import Path


def main():
    folder = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    # Tests of a package import it, from the root of the repository.
    root = Path(__file__).resolve().parent.parent if (folder / "__init__.py").exists() else folder
    tests = unittest.defaultTestLoader.discover(str(folder), top_level_dir=str(root))
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    # Several subtests of one test may fail.
    bad = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    skipped = len(result.skipped)
    print(f"{max(0, result.testsRun - bad - skipped)} passed, {bad} failed, {skipped} skipped")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
