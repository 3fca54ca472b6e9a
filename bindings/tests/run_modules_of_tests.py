"""Runs test modules of CPython's, or of a package, in a forked child, with everything immortal that was loaded before, or as it is.

    run_modules_of_tests.py immortal|mortal MODULE...     prints what did not pass, one test a line, and how many ran

Not a test by itself: test_wheel_immortal.py runs it with each Python, and compares.
"""

import importlib
import io
import sys
import unittest

import immortal_plugin


class Result(unittest.TestResult):
    """Which tests did not pass; for a sub-test only its test, since the order of these is not the same each time."""

    def __init__(self):
        super().__init__()
        self.bad = set()

    def addFailure(self, test, error):
        self.bad.add(f"fails {test.id()}")

    def addError(self, test, error):
        self.bad.add(f"error {test.id()}")

    def addSubTest(self, test, subtest, error):
        if error:
            self.bad.add(f"fails {test.id()}")


def main():
    kind, *modules = sys.argv[1:]
    suites = []
    for name in modules:
        try:
            suites.append(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name)))
        except unittest.SkipTest:
            pass
    immortal_plugin.become_a_worker(kind)
    result = Result()
    said = sys.stdout, sys.stderr
    for suite in suites:
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
        try:
            suite.run(result)
        finally:
            sys.stdout, sys.stderr = said
    for test in sorted(result.bad):
        print(test)
    print(result.testsRun, "ran")


if __name__ == "__main__":
    main()
