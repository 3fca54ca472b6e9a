#!/usr/bin/env python3
"""Runs the unittest tests of a folder, and says how many passed, in the form that tools/run-tests reads.

    tools/run_unittests.py bench/tests             all of them
    tools/run_unittests.py bench/tests NAME...     only these, as "not ok NAME" named them
"""

import re
import sys
import unittest
from pathlib import Path


def name_of(test):
    """By which a test is found again: of a subtest, its test; of a class that could not be set up, the class."""
    name = getattr(test, "test_case", test).id()
    whole = re.match(r"\w+ \((.+)\)$", name)
    return whole[1] if whole else name


def main():
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    sys.dont_write_bytecode = True
    # Tests of a package import it, from the root of the repository.
    root = Path(__file__).resolve().parent.parent if (folder / "__init__.py").exists() else folder
    loader = unittest.defaultTestLoader
    if names:
        sys.path.insert(0, str(root))  # as discover does
        tests = loader.loadTestsFromNames(names)
    else:
        tests = loader.discover(str(folder), top_level_dir=str(root))
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    # Several subtests of one test may fail.
    bad = sorted({name_of(test) for test, _ in result.failures + result.errors})
    for name in bad:
        print(f"not ok {name}")
    skipped = len(result.skipped)
    for test, why in result.skipped:
        print(f"SKIPPED {name_of(test)}: {why}")
    print(f"{max(0, result.testsRun - len(bad) - skipped)} passed, {len(bad)} failed, {skipped} skipped")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
