"""What `make` built, as the packages take it: installed once for all tests, with the tool of the quick profile."""

import functools
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from release import staging
from release.project import ARCHITECTURES, ROOT

ARCHITECTURE = ARCHITECTURES[platform.machine()]
# A preloaded library or settings of the tests' own environment must not be handed on.
# tools/tested/run has servers elsewhere, and installs what it hands to systems in which nothing can be built.
CLEAN = {"PATH": ":".join([*filter(None, [os.environ.get("SNUG_TEST_SERVERS")]), "/usr/local/bin:/usr/bin:/bin"]), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}


@functools.cache
def installed():
    """The folder with bin/, lib/ ... of a `make install` into build/packages-test."""
    if place := os.environ.get("SNUG_TEST_INSTALLED"):
        return Path(place)
    folder = ROOT / "build/packages-test"
    shutil.rmtree(folder, ignore_errors=True)  # that of an earlier run
    staging.install(ROOT / "build", folder, "/usr", tool="build/snug", native="build/snug", strip="strip")
    return folder / "usr"


def temporary(test):
    """A folder that vanishes after the test, or after the class if that is given."""
    folder = tempfile.TemporaryDirectory()
    (test.addClassCleanup if isinstance(test, type) else test.addCleanup)(folder.cleanup)
    return Path(folder.name)


def run(*command, **environment):
    """Runs a program with nothing of the tests' own environment; a bad end raises nothing."""
    return subprocess.run([str(word) for word in command], env={**CLEAN, **environment}, cwd="/", capture_output=True, text=True, timeout=600)
