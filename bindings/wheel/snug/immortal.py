"""What lives before a fork, made immortal: Python counts references in each object, so a worker that only looks at an
object copies its page. An immortal object's count is never written (PEP 683; CPython 3.12 and later), so the page stays
shared. It also never dies; so what waits for an end is left as it is, see `_dies`.

snug.hooks calls this once, in the process that forks. docs/decisions/0050 says how it was chosen, and where it ends.
"""

import _io
import _thread
import ctypes
import gc
import sys
import types
import weakref

__all__ = ["make_immortal", "reason_against"]

# The count of an immortal object, by the headers: object.h of 3.12 and 3.13 (_Py_IMMORTAL_REFCNT); object.h and refcount.h
# of 3.14 and 3.15 (_Py_IMMORTAL_INITIAL_REFCNT, and _Py_IMMORTAL_FLAGS in ob_flags, its highest 16 bits, by which references
# on the interpreter's stack are not counted). From LIMIT on its low half is not lowered in any of them.
# In 3.14 and 3.15 references that lie on the stack meanwhile are taken off it later all the same, and counts below the
# initial one rise to it again, one by one, which would copy pages: SPARE is for these.
COUNTS = {(3, 12): 0xFFFF_FFFF, (3, 13): 0xFFFF_FFFF, (3, 14): 1 << 48 | 0xC000_0000, (3, 15): 1 << 48 | 0xC000_0000}
SPARE = 0x1_0000 if sys.version_info >= (3, 14) else 0
LIMIT = 0x8000_0000
ADDRESS_BITS = 48
CHUNK = 5_000

# An object whose type has one of these waits for its end, or owns what is not memory: a file, a socket, a lock.
ENDS = frozenset(("__del__", "__exit__", "__aexit__", "aclose", "close", "fileno"))
# What runs, and references that may have a callback, for which they cannot be asked.
OTHERS = frozenset((types.FrameType, weakref.ProxyType, weakref.CallableProxyType))
LOCKS = frozenset((type(_thread.allocate_lock()), _thread.RLock))  # own memory alone
# In-place resize() of an array, and of what is derived from it, asks for a count that is right.
COUNTED = frozenset((("numpy", "ndarray"),))
_files = None
# Types of objects that refer to no other, the most frequent ones.
ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None)))
CODE_FIELDS = ("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")
callback_of = weakref.ref.__dict__["__callback__"].__get__
mro_of, name_of, fields_of = (type.__dict__[name].__get__ for name in ("__mro__", "__name__", "__dict__"))


def reason_against():
    """Why objects cannot be made immortal here; None if they can."""
    version = ".".join(map(str, sys.version_info[:2]))
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} does not count references as CPython does"
    if sys.version_info < (3, 12):
        return f"Python {version} has no immortal objects; 3.12 and later have"
    if sys.version_info[:2] not in COUNTS:
        return f"immortal objects of Python {version} are not known to this version of snug"
    if "t" in sys.abiflags:
        return "this is a free-threaded build of Python"
    if hasattr(sys, "gettotalrefcount") or hasattr(sys, "getobjects"):
        return "this build of Python checks reference counts"
    if sys.maxsize < 1 << 32 or sys.byteorder != "little":
        return "this machine's reference counts are of another form"
    if ctypes.pythonapi.PyInterpreterState_Get() != ctypes.pythonapi.PyInterpreterState_Main():
        return "this is not the main interpreter of its process"
    return None if _counts_as_expected(_Counts()) else "this build of Python counts references in a way of its own"


def make_immortal():
    """Makes immortal what modules and types refer to, directly or not. Returns how many objects it made so.

    What only running code holds, in variables of its functions or amid a call in C, stays as it is, and ends with it.
    """
    global _files
    enabled = gc.isenabled()
    gc.disable()
    try:
        gc.unfreeze()  # else gc.get_objects() does not know what was frozen before
        tracked = gc.get_objects()
        _files = _Files(tracked)
        walk = _Walk(tracked)
        del tracked
        walk.all()
        return walk.made
    finally:
        if enabled:
            gc.enable()


class _Files:
    """Flushes, when the interpreter ends, what files of before the fork hold: those who refer to them may not end any more,
    and so the files would not either."""

    def __init__(self, tracked):
        self.files = [weakref.ref(one) for one in tracked if issubclass(type(one), _io._IOBase)]

    def __del__(self):
        for ref in self.files:
            try:
                file = ref()
                if file is not None and not file.closed:
                    file.flush()
            except Exception:  # as at any end of a file: nobody is there to hear of it
                pass


class _Counts:
    """The counts of all objects as an array: an object's is at id(object) >> 3."""

    def __new__(cls):
        every = (ctypes.c_uint64 * (1 << (ADDRESS_BITS - 3))).from_address(0)
        return memoryview(every).cast("B").cast("Q")


def _counts_as_expected(counts):
    """Tries it with a list and a float, which are lost by it."""
    immortal = COUNTS[sys.version_info[:2]]
    if counts[id(None) >> 3] & immortal != immortal:
        return False
    for value in ([], float(len(COUNTS))):
        place = id(value) >> 3
        if id(value) >> ADDRESS_BITS:
            return False
        before = counts[place]
        several = [value] * 10
        if not 0 < before < 10 or counts[place] != before + 10:
            return False
        counts[place] = immortal + SPARE
        del several
        after = counts[place]
        unpacked = all(first is second for first, second in [(value, value), tuple([value] * 2)])
        if not unpacked or counts[place] != after or not immortal <= after <= immortal + SPARE:
            return False
    return True


class _Types(dict):
    """Whether objects of each type may become immortal."""

    def __missing__(self, kind):
        self[kind] = may = not _dies(kind)
        return may


def _dies(kind):
    """Whether a type's objects are to die as ever: they own something, wait for their end, are counted, or run."""
    if kind in OTHERS:
        return True
    if kind in LOCKS:
        return False
    for base in mro_of(kind):
        fields = fields_of(base)
        if not ENDS.isdisjoint(fields) or (fields.get("__module__"), name_of(base)) in COUNTED:
            return True
    return False


def _awaited(tracked):
    """The identities of weak references with a callback, and of what they refer to. Types apart, which are looked at all the
    time, and hardly ever end. (After gc.unfreeze() CPython 3.15 takes such a reference off its lists if it is immortal, and
    crashes when a collection finds that what it refers to is garbage.)"""
    found = set()
    for ref in [one for one in tracked if issubclass(type(one), weakref.ref) and callback_of(one) is not None]:
        found.add(id(ref))
        target = weakref.ref.__call__(ref)
        if not issubclass(type(target), type):
            found.add(id(target))
    return found


def _all_types():
    found, ahead = set(), [object]
    while ahead:
        kind = ahead.pop()
        if kind not in found:
            found.add(kind)
            ahead += type.__subclasses__(kind)
    return found


class _Walk:
    """Makes immortal what modules and types refer to, and what that refers to; the count itself says what is done.

    What dies as ever is no way to others: so what only it refers to ends with it.
    """

    def __init__(self, tracked):
        self.counts = _Counts()
        self.immortal = COUNTS[sys.version_info[:2]] + SPARE
        self.may = _Types()
        self.awaited = _awaited(tracked)
        self.made = 0

    def all(self):
        # Types that are part of the interpreter are immortal as they are, so they would be taken for done.
        self._from([sys.modules, *sys.modules.values()])
        self._from(list(map(fields_of, _all_types())))

    def _from(self, ahead):
        while ahead:
            some = ahead[-CHUNK:]
            del ahead[-CHUNK:]
            found = gc.get_referents(*some)
            for one in some:
                kind = type(one)
                if issubclass(kind, dict):
                    found += dict.keys(one)  # those that are strings are left out above
                elif kind is types.CodeType:
                    found += [getattr(one, field) for field in CODE_FIELDS]
            self._make(found, ahead)

    def _make(self, found, ahead):
        """Makes these immortal, but for those that are to die, and puts aside those of them that may refer to others."""
        counts, may, awaited, immortal, made = self.counts, self.may, self.awaited, self.immortal, 0
        for one in found:
            place = id(one) >> 3
            if counts[place] < LIMIT and may[type(one)] and id(one) not in awaited:
                counts[place] = immortal
                made += 1
                if type(one) not in ATOMS:
                    ahead.append(one)
        self.made += made
