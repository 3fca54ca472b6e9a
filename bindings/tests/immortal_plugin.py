"""A plugin of pytest's for run_suites_of_packages.py: makes immortal what lives when all tests are collected, forks, has the child run
them, as a worker runs requests, and writes what becomes of each test into a file.

SNUG_SUITE is "immortal" or "mortal"; SNUG_SUITE_RESULTS names the file.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
results = {}


def begin():
    """Of any runner of tests, when all is loaded."""
    become_a_worker(os.environ["SNUG_SUITE"])


def become_a_worker(kind):
    """Makes what lives immortal, if it is to be, and goes on in a child; this process only waits for it, and ends as it does."""
    if kind == "immortal":
        from snug import hooks

        hooks.freeze_before_fork()
        if not hooks.state()["immortal"]:
            sys.exit(hooks.state()["reason"])
    sys.stdout.flush()
    sys.stderr.flush()
    if worker := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) & 0xFF)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end():
    with open(os.environ["SNUG_SUITE_RESULTS"], "w", encoding="utf-8") as file:
        file.writelines(f"{outcome} {name}\n" for name, outcome in sorted(results.items()))


def pytest_collection_finish(session):
    begin()


def pytest_runtest_logreport(report):
    # Set-up and end count, too: the worst of the three is what became of it.
    if results.get(report.nodeid) not in ("failed", "skipped") and (report.when == "call" or report.outcome != "passed"):
        results[report.nodeid] = report.outcome


def pytest_sessionfinish(session, exitstatus):
    end()
