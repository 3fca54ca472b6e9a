"""Tells `snug boot` before and after each module that the first thread imports, and waits while it reads this process from
outside. Every line begins with the program's own time in nanoseconds, in which that waiting is left out. Loads nothing,
since whatever it loads would be missing from what the program pays.

Python imports it as `sitecustomize`; the one that was hidden by it is imported after it."""

import os
import sys


def _start(folder):
    import _frozen_importlib as importing
    import _thread
    import time

    pid = os.getpid()
    try:
        owner = os.open(folder + "/owner", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(owner, b"%d" % pid)
    except FileExistsError:
        # Of all processes that read this, one is measured: the first, and what it executes.
        owner = os.open(folder + "/owner", os.O_RDONLY)
        if os.read(owner, 100) != b"%d" % pid:
            return
    finally:
        os.close(owner)
    requests = os.open(folder + "/requests", os.O_WRONLY)
    replies = os.open(folder + "/replies", os.O_RDONLY)
    thread = _thread.get_ident()
    find_and_load = importing._find_and_load
    listens = True
    lost = 0
    loaded = {}

    def tell(what):
        nonlocal listens, lost
        if not listens:
            return
        before = time.monotonic_ns()
        try:
            text = what.replace("\n", " ").encode("utf-8", "replace")[:4000]
            os.write(requests, b"%d %b\n" % (before - lost, text))
            listens = os.read(replies, 1) != b""
        except OSError:
            listens = False  # nobody listens any more
        lost += time.monotonic_ns() - before

    def is_measured():
        return listens and _thread.get_ident() == thread and os.getpid() == pid

    def measured(name, import_):
        if name in sys.modules or not is_measured():
            return find_and_load(name, import_)
        # A package is not a part of the first of its modules that is wanted.
        package = name.rpartition(".")[0]
        if package and package not in sys.modules:
            import_(package)
            if name in sys.modules:
                return sys.modules[name]
        tell("+ " + name)
        state, path = "failed", ""
        try:
            module = find_and_load(name, import_)
            state = "loaded"
            path = getattr(getattr(module, "__spec__", None), "origin", None) or ""
            loaded[name] = module
            return module
        finally:
            tell(f"- {state} {path}")

    def tell_importers():
        """Who else has a module, or what is defined in it, among its names."""
        for importer, module in list(loaded.items()):
            found = set()
            for value in list(getattr(module, "__dict__", {}).values()):
                if type(value) is type(sys):
                    found.add(getattr(value, "__name__", None))
                elif type(value) in (type, type(tell)):
                    found.add(value.__module__)
            for name in sorted(name for name in found if isinstance(name, str) and name in loaded and name != importer):
                tell(f"importer {name}\t{importer}")

    def tell_objects():
        import _tracemalloc

        counts = {}
        for trace in _tracemalloc._get_traces() or ():
            count = counts.setdefault(trace[2][0][0], [0, 0])
            count[0] += 1
            count[1] += trace[1]
        _tracemalloc.stop()
        for path, (blocks, size) in counts.items():
            tell(f"objects {blocks} {size} {path}")

    def finish():
        if not is_measured():
            return
        import gc

        tell("end")
        gc.collect()
        tell("collected")
        importing._find_and_load = find_and_load
        tell_importers()
        if objects:
            tell_objects()
        tell("done")

    import atexit

    objects = bool(os.environ.get("SNUG_BOOT_OBJECTS"))
    if objects:
        import _tracemalloc

        _tracemalloc.start(1)
    version = ".".join(str(number) for number in sys.version_info[:3])
    tell(f"start {pid} python {version}")
    atexit.register(finish)
    importing._find_and_load = measured


def _import_the_hidden_one():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


if os.path.isdir(os.environ.get("SNUG_BOOT", "")):
    _start(os.environ["SNUG_BOOT"])
_import_the_hidden_one()
