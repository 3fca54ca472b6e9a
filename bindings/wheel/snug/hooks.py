"""What the hooks for Celery, gunicorn and uWSGI share: a heap made ready for forks, and work for idle moments.

It works under every allocator: what lives is made immortal and frozen in any case, memory purged where snug is active.
Nothing here raises into the server that calls it: what goes wrong is logged under "snug", once for each hook. Settings
are variables of the environment:

    SNUG_WARM_UP           requests, tasks or functions before the first fork (snug.warm_up)
    SNUG_IMMORTAL=0        leaves the counts of objects alone before a fork (docs/how-to/hooks.md says when)
    SNUG_IDLE_SECONDS      without a request or a task until a worker counts as idle (2); 0: never collect when idle
    SNUG_COLLECT_SECONDS   at least this long from one collection of a worker to its next (30)
    SNUG_RECYCLE_MB        gunicorn replaces a worker that holds more than this many MB (0: never)
"""

import functools
import gc
import json
import logging
import mmap
import os
import sys
import threading
import time

import snug
from snug import warm_up
from snug.immortal import make_immortal, reason_against

LOG = logging.getLogger("snug")
# One burst of forks, of a server that starts its workers, is prepared once.
_FREEZE_AGAIN_SECONDS = 1
_frozen_at = None
_shared = None  # what state() says, from the first fork on
# The same for other processes, in JSON after this: a page of shared memory (/dev/zero in maps) that workers inherit.
PAGE_BEGINS = b"snug hooks 1\n"
_page = None


def harmless(hook):
    """A hook that logs what it raises, the first time, and returns None then."""
    failed = []

    @functools.wraps(hook)
    def wrapped(*arguments, **named):
        try:
            return hook(*arguments, **named)
        except Exception:
            if not failed:
                failed.append(True)
                LOG.exception("snug: a hook failed, and the server goes on: %s", hook.__name__)
            return None

    return wrapped


def setting(name, default):
    """The number that a variable holds; the default, and a warning, if it holds something else."""
    text = os.environ.get(name, "")
    try:
        value = float(text or default)
    except ValueError:
        value = -1
    if value >= 0:
        return value
    LOG.warning("snug: %s=%s is not a number from 0 up, so it stays %s", name, text, default)
    return default


@harmless
def freeze_before_fork(immortal=True, call=None):
    """Makes ready for workers, which are about to be forked, what they share with this process: collects garbage; the first
    time also warms up, by call(word) where that is no function, and makes what lives immortal, unless told otherwise; hides
    it from the collector; purges. At most once a second.
    """
    global _frozen_at
    began = time.monotonic()
    if _frozen_at is not None and began - _frozen_at < _FREEZE_AGAIN_SECONDS:
        return
    first = _shared is None
    if first:
        _warm_up(call)
    gc.collect()
    if first:
        _share(immortal)
    gc.freeze()
    _purge()
    _frozen_at = time.monotonic()
    if first:
        _tell(_frozen_at - began)


def state():
    """What the workers of this process share, or what this worker shares with the others, as a dict; None before a fork.

    immortal        whether objects were made immortal before the first fork
    reason          why not, as a sentence; None if they were
    objects         how many were
    shared_bytes    anonymous memory at that moment, all of which the workers share
    seconds         what the preparation took
    pid             the process in which it was done
    copied_bytes    in a worker: an estimate of how much of shared_bytes it has copied since; None in the process itself
    """
    if _shared is None:
        return None
    copied = None if _shared["pid"] == os.getpid() else max(0, _shared["shared_bytes"] - _rolled_up("Shared_Dirty"))
    return {**_shared, "copied_bytes": copied}


@harmless
def _warm_up(call):
    def refuse(word):
        raise LookupError(f"here SNUG_WARM_UP takes functions, as package.module:function, and no {word}")

    warm_up.run(os.environ.get("SNUG_WARM_UP", "").split(), setting("SNUG_WARM_UP_SECONDS", 10), call or refuse)


@harmless
def _share(immortal):
    """Once, whatever becomes of it: what is made immortal stays so, and again and again that would be a leak."""
    global _shared
    switched_on = immortal and setting("SNUG_IMMORTAL", 1) != 0
    _shared = {"pid": os.getpid(), "immortal": False, "reason": "an error came up", "objects": 0, "shared_bytes": 0, "seconds": 0}
    reason = reason_against() if switched_on else "they are switched off"
    if reason:
        _shared["reason"] = reason
    else:
        _shared.update(objects=make_immortal(), immortal=True, reason=None)


@harmless
def _tell(seconds):
    """Says it once, and where other processes can read it."""
    global _page
    _shared.update(shared_bytes=_rolled_up("Anonymous"), seconds=round(seconds, 3))
    _page = mmap.mmap(-1, mmap.PAGESIZE)
    _page.write(PAGE_BEGINS + json.dumps(_shared).encode())
    megabytes = f"{_shared['shared_bytes'] / 1e6:.0f} MB"
    if _shared["immortal"]:
        said = f"workers share {megabytes}, in it {_shared['objects']:,} immortal objects ({seconds:.1f} s)"
    else:
        said = f"workers share {megabytes} until they count references in it: no immortal objects, {_shared['reason']}"
    if sys.__stderr__:
        print(f"snug: {said}", file=sys.__stderr__, flush=True)


@harmless
def collect():
    """Collects garbage and, under snug, gives free memory back to the kernel."""
    gc.collect()
    _purge()


def held_bytes():
    """What this process has resident now, less what snug holds free: what its objects occupy, with the pages that it
    shares with its parent."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if snug.active():
        stats = snug.stats()
        resident -= max(0, stats["resident_bytes"] - stats["live_allocated_bytes"])
    return resident


def _rolled_up(name):
    """A sum over all memory of this process, in bytes."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{name}:"))


def _purge():
    if snug.active():
        snug.purge()


class Idle:
    """Collects in the moments in which this process has nothing to do: between the end of its last request or task and the
    begin of the next, when that takes longer than SNUG_IDLE_SECONDS; once for each such moment.

    A thread does it, which the first end of a request starts in each process. A request that begins during a collection
    waits for the rest of it. In a child of this process all begins anew.
    """

    def __init__(self):
        self.idle_seconds = setting("SNUG_IDLE_SECONDS", 2)
        self.collect_seconds = setting("SNUG_COLLECT_SECONDS", 30)
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self):
        self._changed = threading.Condition()
        self._running = 0
        self._quiet_since = None  # the end of the last request since which nothing was collected
        self._collected_at = None
        self._thread = None
        self._asleep = False

    def busy(self):
        """Whether a request or a task runs."""
        return self._running > 0

    @harmless
    def begin(self):
        """A request or a task begins, in any thread."""
        with self._changed:
            self._running += 1

    @harmless
    def end(self):
        """It ends, however it ends."""
        with self._changed:
            self._running = max(0, self._running - 1)
            self._quiet_since = time.monotonic()
            if self.idle_seconds and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="snug-idle", daemon=True)
                self._thread.start()
            elif self._asleep:
                self._changed.notify()

    def _watch(self):
        while True:
            with self._changed:
                while (seconds := self._seconds_to_wait()) != 0:
                    self._asleep = seconds is None
                    self._changed.wait(seconds)
                    self._asleep = False
                self._quiet_since = None
                self._collected_at = time.monotonic()
            collect()

    def _seconds_to_wait(self):
        """Until it may be time to collect: 0 is now; None until a request has ended. Has the lock."""
        if self._quiet_since is None:
            return None
        if self._running:
            return self.idle_seconds
        due = self._quiet_since + self.idle_seconds
        if self._collected_at is not None:
            due = max(due, self._collected_at + self.collect_seconds)
        return max(0, due - time.monotonic())
