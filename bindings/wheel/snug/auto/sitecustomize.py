"""Switches the hooks on in the servers that have some: `python -m snug run` puts this folder first in PYTHONPATH, where
Python looks for a sitecustomize when it starts. The one that is hidden by it is imported after it.

Until a server's module is imported, all this does is to look at the name of each import. It is read by every Python that
such a program starts, so it keeps to what Python 2.7 understands.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# A module that a server imports in the process that forks, and the one that holds its hooks.
SERVERS = {"celery.apps.worker": "celery", "gunicorn.arbiter": "gunicorn"}


class Watch:
    """A finder that finds nothing by itself, but sees to it that a server's module is followed by its hooks."""

    def __init__(self):
        self.awaited = dict(SERVERS)

    def find_spec(self, name, path=None, target=None):
        hooks = self.awaited.pop(name, None)
        if hooks is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_switch_on(module):
            execute(module)
            switch_on(hooks)

        spec.loader.exec_module = execute_and_switch_on
        return spec


class Package:
    """Finds the package that this file is part of, for an interpreter that has it nowhere else."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "snug":
            return None
        from importlib.util import spec_from_file_location

        folder = os.path.dirname(HERE)
        return spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])


def switch_on(hooks):
    """A failure is said, and the server starts without them."""
    try:
        import importlib

        importlib.import_module("snug." + hooks).switch_on()
    except Exception as error:
        (sys.__stderr__ or sys.stderr).write("snug: no hooks for " + hooks + ": " + repr(error) + "\n")


def import_the_hidden_one():
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


if os.environ.get("SNUG_HOOKS") != "0" and sys.version_info >= (3, 8):
    sys.meta_path.insert(0, Watch())
    sys.meta_path.append(Package)
import_the_hidden_one()
