"""Hooks for Celery's workers: `python -m snug run celery -A app worker`, or without the tool `--include snug.celery`, or
`import snug.celery` in the application.

Before the pool forks, what lives is made immortal and frozen. A worker that has no task for a while collects, and
under snug purges; snug.hooks says how often. And `--max-memory-per-child`, after which Celery replaces a worker at the
end of a task, is compared with what the worker holds at that moment, rather than with the most that it ever held.
"""

import functools
import os
import threading

import billiard.pool
from billiard import current_process
from celery import current_app, signals

from snug import hooks

_IDLE = hooks.Idle()
_creating = threading.local()


def switch_on():
    """Importing this module has done it."""


@hooks.harmless
def _before_fork():
    # Only forks of the pool, in the main process: tasks and the application may fork, too.
    if getattr(_creating, "a_worker", False) and current_process().name == "MainProcess":
        hooks.freeze_before_fork(call=_do)


def _do(name):
    """A task without arguments, here and now."""
    current_app.tasks[name].apply(throw=True)


@hooks.harmless
def _know_forks_of_the_pool():
    create = billiard.pool.Pool._create_worker_process

    @functools.wraps(create)
    def create_worker_process(*arguments, **named):
        _creating.a_worker = True
        try:
            return create(*arguments, **named)
        finally:
            _creating.a_worker = False

    billiard.pool.Pool._create_worker_process = create_worker_process
    os.register_at_fork(before=_before_fork)


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


_know_forks_of_the_pool()
_count_what_is_held()
signals.task_prerun.connect(_begin, weak=False, dispatch_uid="snug")
signals.task_postrun.connect(_end, weak=False, dispatch_uid="snug")
