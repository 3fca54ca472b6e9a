"""snug: a malloc(3) that gives memory back to the kernel, and the tool that shows what any allocator does.

An allocator must be there when a program starts, so importing this changes nothing:

    python -m snug run celery -A app worker        starts a program under snug
    LD_PRELOAD=$(python -m snug path) celery ...   the same without the tool

In a program that runs under it:

    >>> import snug
    >>> snug.active()
    True
    >>> snug.stats()["live_requested_bytes"]
    3506176
    >>> snug.purge()                               # bytes given back to the kernel
    135168
"""

import ctypes
from pathlib import Path

__all__ = ["NotActive", "active", "library_path", "purge", "stats", "tool_path", "version"]

_BINARIES = Path(__file__).resolve().parent / "bin"
_FIELDS = (
    "live_requested_bytes", "live_allocated_bytes", "cached_bytes", "slab_free_bytes", "dirty_bytes", "metadata_bytes",
    "resident_bytes", "mapped_bytes", "purged_bytes", "caches", "arenas",
)


class NotActive(RuntimeError):
    """This process has another allocator than snug."""

    def __init__(self):
        super().__init__(f"snug is not this process's allocator; start it by `python -m snug run PROGRAM`, or with LD_PRELOAD={library_path()}")


class _Stats(ctypes.Structure):
    """struct snug_stats of snug.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


def library_path():
    """The path of libsnug.so, for LD_PRELOAD."""
    return str(_BINARIES / "libsnug.so")


def tool_path():
    """The path of the tool that `python -m snug` and `snug` run."""
    return str(_BINARIES / "snug")


def active():
    """Whether malloc of this process is snug's."""
    return _function("snug_version") is not None


def version():
    """The version of the snug that is active, as "0.1.0". Raises NotActive."""
    found = _needed("snug_version")
    found.restype = ctypes.c_char_p
    return found().decode()


def stats():
    """A moment's account of the heap, as a dict: the fields of struct snug_stats in snug.h, in bytes, and the counts of
    caches and arenas. Raises NotActive."""
    found = _needed("snug_stats")
    found.argtypes = [ctypes.POINTER(_Stats), ctypes.c_size_t]
    filled = _Stats()
    found(ctypes.byref(filled), ctypes.sizeof(filled))
    return {name: getattr(filled, name) for name in _FIELDS}


def purge():
    """Gives every free page back to the kernel. Returns the bytes given back. Raises NotActive."""
    found = _needed("snug_purge")
    found.restype = ctypes.c_size_t
    return found()


def _function(name):
    # Among what is loaded already: opening the library here would bring a second, unused heap.
    return getattr(ctypes.CDLL(None), name, None)


def _needed(name):
    found = _function(name)
    if found is None:
        raise NotActive
    return found
