#!/usr/bin/env python3
"""Runs the suites of packages that people use in a forked child, with everything immortal that lives when their tests are loaded:
what does not pass has to end the same way without. What differs is run again by itself, three times each way, to tell chance from harm.

    run_suites_of_packages.py [--python python3.13] [PACKAGE...]     numpy, sqlalchemy, django, pydantic, celery

Packages and the sources of their tests come from PyPI, by pip, into build/suites. `make test-suites` runs it. It takes an hour
or more, so nothing else does. Ends with status 1 if something differs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "build/suites"
AGAIN = 3
HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Suite:
    package: str
    needs: tuple  # what pip installs beside the package
    tests: tuple  # words for pytest, in the folder of its sources
    sources: bool = True  # whether the tests are in the sources alone
    variables: dict = field(default_factory=dict)
    counting: tuple = ()  # ends of the names of tests that compare sys.getrefcount() of what is immortal: they fail, and may


SUITES = {
    "numpy": Suite("numpy==2.5.5", ("hypothesis",), ("--pyargs", "numpy._core", "numpy.lib", "numpy.ma", "numpy.linalg", "numpy.random"), sources=False,
                   counting=("TestLeaks::test_frompyfunc_leaks[bound-20]",)),
    "sqlalchemy": Suite("sqlalchemy==2.1.9", ("greenlet",), ("test/base", "test/engine", "test/sql", "test/orm")),
    "pydantic": Suite("pydantic==2.14.4", ("pytest-benchmark", "pytest-run-parallel", "pytest-mock", "dirty-equals", "jsonschema", "faker", "email-validator", "tzdata",
                                           "cloudpickle", "packaging"), ("tests", "--benchmark-disable", "--ignore=tests/mypy", "--ignore=tests/pyright")),
    "celery": Suite("celery==5.5.3", ("pytest-subtests", "pytest-click", "pytest-celery", "redis==5.2.1", "tblib", "cryptography", "requests", "pyyaml", "pydantic",
                                            "boto3", "pymongo", "msgpack", "pytest-order"), ("t/unit",)),
    "django": Suite("django==6.1.3", ("tblib", "jinja2", "pytz", "docutils"), ("auth_tests", "aggregation", "admin_views", "basic", "cache", "dispatch",
                                                                              "expressions", "files", "forms_tests", "handlers", "httpwrappers", "lookup", "model_fields", "model_forms",
                                                                              "ordering", "prefetch_related", "queries", "requests_tests", "servers", "serializers", "sessions_tests",
                                                                              "signals", "template_tests", "transactions", "urlpatterns_reverse", "utils_tests", "validators", "view_tests")),
}


def prepare(name, base):
    """Returns the interpreter of the suite's environment, and the folder in which it runs."""
    suite, folder = SUITES[name], FOLDER / name
    python = folder / "venv/bin/python"
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run([base, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", suite.package, "pytest", "pytest-timeout", *suite.needs], check=True)
        if suite.sources:
            subprocess.run([python, "-m", "pip", "-q", "download", "--no-binary", suite.package.partition("==")[0], "--no-deps", "-d", folder, suite.package], check=True)
            with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
                archive.extractall(folder, filter="data")
        (folder / "made").touch()
    sources = next((path for path in folder.iterdir() if (path / "pyproject.toml").exists()), folder)
    return python, sources


def outcomes(name, kind, python, sources, tests):
    """{test: what became of it}, and the last words of the suite."""
    suite, results = SUITES[name], FOLDER / f"{name}-{kind}.txt"
    results.unlink(missing_ok=True)
    variables = {**os.environ, "SNUG_SUITE": kind, "SNUG_SUITE_RESULTS": str(results), "PYTHONDONTWRITEBYTECODE": "1",
                 "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "bindings/wheel", HERE))), **suite.variables}
    if name == "django":
        command, where = [python, "runtests.py", "--settings=immortal_django", "--parallel=1", "-v0", *tests], sources / "tests"
    else:
        command = [python, "-m", "pytest", "-p", "immortal_plugin", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=600",
                   "--continue-on-collection-errors", *tests]
        where = sources
    with open(FOLDER / f"{name}-{kind}.log", "w", encoding="utf-8") as log:
        ended = subprocess.run(command, cwd=where, env=variables, stdout=log, stderr=subprocess.STDOUT, timeout=4 * HOUR_SECONDS)
    if not results.exists():
        sys.exit(f"{name}, {kind}: it ended with status {ended.returncode} before its tests did; see {log.name}")
    lines = results.read_text(encoding="utf-8").splitlines()
    return dict(reversed(line.split(" ", 1)) for line in lines)


def compare(name, base):
    """Prints what became of a suite. Returns whether it ended the same way."""
    python, sources = prepare(name, base)
    tests = SUITES[name].tests
    immortal = outcomes(name, "immortal", python, sources, tests)
    others = sorted(test for test, outcome in immortal.items() if outcome != "passed")
    mortal = outcomes(name, "mortal", python, sources, others) if others else {}
    different = [test for test in others if immortal[test] != mortal.get(test)]
    stays = []
    for test in different:
        again = [{outcomes(name, kind, python, sources, [test]).get(test) for _ in range(AGAIN)} for kind in ("immortal", "mortal")]
        if again[0] != again[1] and not test.endswith(SUITES[name].counting):
            stays.append(test)
        print(f"  {test}: immortal {immortal.get(test)}, without {mortal.get(test)}; alone {sorted(map(str, again[0]))} and {sorted(map(str, again[1]))}")
    passed, bad = len(immortal) - len(others), sum(outcome == "failed" for outcome in mortal.values())
    print(f"{name}: {len(immortal)} tests, {passed} pass with immortal objects, {bad} of the others fail without, too; {len(different)} ended otherwise, "
          f"{len(stays)} of these by themselves, too", flush=True)
    return not stays and passed > 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(SUITES)} (all)")
    parser.add_argument("--python", default="python3.13", help="from 3.12 on (python3.13)")
    arguments = parser.parse_args()
    if unknown := set(arguments.packages) - SUITES.keys():
        parser.error(f"no suite of {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    same = [compare(name, arguments.python) for name in arguments.packages or SUITES]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
