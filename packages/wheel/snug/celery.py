"""Hooks for Celery's workers: `celery -A app worker --include snug.celery`, or `import snug.celery` in the application.

Before the pool forks, garbage is collected and the rest frozen. A worker that has no task for a while collects, and
under snug purges; snug.hooks says how often. And `--max-memory-per-child`, after which Celery replaces a worker at the
end of a task, is compared with what the worker holds at that moment, rather than with the most that it ever held.
"""

import os

import billiard.pool
from billiard import current_process
from celery import signals

from snug import hooks

_IDLE = hooks.Idle()


@hooks.harmless
def _before_fork():
    # Forks of the pool come from the main process; in threads of it, tasks may run.
    if current_process().name == "MainProcess" and not _IDLE.busy():
        hooks.freeze_before_fork()


@hooks.harmless
def _count_what_is_held():
    if not callable(getattr(billiard.pool, "mem_rss", None)):
        raise LookupError("this billiard has no mem_rss: --max-memory-per-child works as without these hooks")
    peak_kb = billiard.pool.mem_rss

    def held_kb():
        try:
            return hooks.held_bytes() // 1024
        except Exception:
            return peak_kb()

    billiard.pool.mem_rss = held_kb


def _begin(**_):
    _IDLE.begin()


def _end(**_):
    _IDLE.end()


os.register_at_fork(before=_before_fork)
_count_what_is_held()
signals.task_prerun.connect(_begin, weak=False, dispatch_uid="snug")
signals.task_postrun.connect(_end, weak=False, dispatch_uid="snug")
