"""The list of programs: which there are, what each needs, how long each may take."""

import glob
import importlib
import pathlib
import re
import shutil

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # not a version manager's shims
BUSY = 3  # a whole run goes on beside other work, and takes as many times as long: a limit is there to end what hangs
_programs = []
_folder = pathlib.Path(__file__).resolve().parent / "programs"


class Program:
    """One real program, and the function that drives it and checks what it did.

    needs: command or absolute path -> the Debian package that brings it.
    proves: commands whose malloc must be bound to the library (asked of the dynamic loader).
    light: small packages and a minute at most, so it is part of `make test`.
    watches: names (as in /proc/PID/comm) of processes that must be seen with the library mapped while they work.
    """

    def __init__(self, function, name, needs, proves, watches, light, quick_limit_s, full_limit_s):
        self.function = function
        self.name = name
        self.summary = function.__doc__.strip().split("\n")[0]
        self.needs = needs
        self.proves = proves
        self.watches = watches
        self.light = light
        self._quick_limit_s = quick_limit_s
        self._full_limit_s = full_limit_s

    def limit_s(self, quick):
        return self._quick_limit_s if quick else BUSY * self._full_limit_s

    def packages(self):
        return sorted(set(self.needs.values()))

    def missing_packages(self):
        def present(thing):
            if thing.startswith("/"):
                return pathlib.Path(thing).exists()
            return shutil.which(thing, path=SYSTEM_PATH) is not None

        return sorted({package for thing, package in self.needs.items() if not present(thing)})


def program(name, *, needs, proves=(), watches=(), light=False, quick_limit_s=120, full_limit_s=300):
    """Decorator: adds the function to the catalog. The first line of its documentation is shown by --list."""

    def register(function):
        _programs.append(Program(function, name, needs, proves, watches, light, quick_limit_s, full_limit_s))
        return function

    return register


def newest(pattern, otherwise):
    """The path of this pattern with the highest version in its name; another if there is none."""
    def version(path):
        return [int(number) for number in re.findall(r"\d+", path)]

    return max(glob.glob(pattern), key=version, default=otherwise)


def load():
    """All programs, in the order of their files."""
    if not _programs:
        for path in sorted(_folder.glob("*.py")):
            importlib.import_module(f"programs.{path.stem}")
    return list(_programs)
