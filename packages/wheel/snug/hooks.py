"""What the hooks for Celery, gunicorn and uWSGI share: a heap made ready for forks, and work for idle moments.

It works under every allocator: garbage is collected and frozen in any case, memory purged where snug is active. Nothing
here raises into the server that calls it: what goes wrong is logged under "snug", once for each hook. Settings are
variables of the environment:

    SNUG_IDLE_SECONDS      without a request or a task until a worker counts as idle (2); 0: never collect when idle
    SNUG_COLLECT_SECONDS   at least this long from one collection of a worker to its next (30)
    SNUG_RECYCLE_MB        gunicorn replaces a worker that holds more than this many MB (0: never)
"""

import functools
import gc
import logging
import os
import threading
import time

import snug

LOG = logging.getLogger("snug")
# One burst of forks, of a server that starts its workers, is prepared once.
_FREEZE_AGAIN_SECONDS = 1
_frozen_at = None


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
def freeze_before_fork():
    """Collects garbage and hides what lives from the collector, so that workers do not write into the pages that they
    share with this process. At most once a second."""
    global _frozen_at
    now = time.monotonic()
    if _frozen_at is not None and now - _frozen_at < _FREEZE_AGAIN_SECONDS:
        return
    gc.collect()
    gc.freeze()
    _purge()
    _frozen_at = now


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
