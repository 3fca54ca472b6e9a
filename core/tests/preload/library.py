"""The library under test: is it there, what is it, and a copy of it that every user may read."""

import pathlib
import shutil
import subprocess


class Unusable(Exception):
    """The library cannot be preloaded; the text says why and what to do."""


def copy_to(path, scratch):
    """Copies the library into the scratch folder and proves that the loader takes it. Returns the copy's path."""
    if path == "none":
        return "none"
    original = pathlib.Path(path)
    if not original.is_file():
        raise Unusable(f"{path} does not exist; `make` builds build/libsnug.so, or name another with --lib")
    # Its own name in front: mappings of the copy cannot be mistaken for the same library loaded by a dependency.
    copy = pathlib.Path(scratch) / f"preload-{original.resolve().name}"
    shutil.copy(original, copy)
    copy.chmod(0o755)
    alias = original.resolve().parent / "jemalloc/libjemalloc.so.2"
    if alias.is_file():
        (copy.parent / "jemalloc").mkdir(mode=0o755)
        shutil.copy(alias, copy.parent / "jemalloc/libjemalloc.so.2")
    trial = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(copy)}, capture_output=True, text=True)
    if trial.returncode or "cannot be preloaded" in trial.stderr:
        raise Unusable(f"{path} does not preload into /bin/true (status {trial.returncode}): {trial.stderr.strip()}")
    return str(copy)


def is_snug(path):
    """True if the library is snug, and so understands the SNUG variable."""
    return path != "none" and b"\0snug_version\0" in pathlib.Path(path).read_bytes()


def describe(path):
    if path == "none":
        return "none (no preload)"
    return f"{pathlib.Path(path)}{'' if is_snug(path) else ' (not snug)'}"
