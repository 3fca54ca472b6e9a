"""Hooks for uWSGI: `python -m snug run uwsgi ...`, or without the tool `uwsgi --import snug.uwsgi ...`, or `import
snug.uwsgi` in the application. Without the tool, `--hook-post-app "call:PyRun_SimpleString import snug.uwsgi as s;
s.before_fork()"` is what makes objects immortal.

Before workers are forked, what lives is made immortal and frozen. A worker that had no request for a while collects garbage,
and under snug purges, on a timer of uWSGI's, which calls between requests; snug.hooks says how often. Of a worker with
several threads uWSGI 2.0 does not say which are in a request, so there one that takes longer than SNUG_IDLE_SECONDS may
have to wait for a collection. To replace workers there is uWSGI's own --reload-on-rss, which looks at what they have
resident now.
"""

import gc
import time

import uwsgi

from snug import hooks

_IDLE_SECONDS = hooks.setting("SNUG_IDLE_SECONDS", 2)
_COLLECT_SECONDS = hooks.setting("SNUG_COLLECT_SECONDS", 30)
_SIGNALS = 256
_seen_requests = 0
_collected_requests = 0
_collected_at = None


@hooks.harmless
def before_fork():
    """To be called when an application is loaded; with --lazy-apps workers load theirs, and there is nothing to share."""
    if uwsgi.worker_id() == 0:
        hooks.freeze_before_fork()


@hooks.harmless
def _after_fork():
    # Freezing moves the collector's lists and looks at no object, so it may come after the fork, too.
    if hooks.state() is None:
        gc.freeze()


@hooks.harmless
def _look(_signal):
    """Collects if no request ended since the last look, and none runs."""
    global _seen_requests, _collected_requests, _collected_at
    worker = uwsgi.workers()[uwsgi.worker_id() - 1]
    requests, now = worker["requests"], time.monotonic()
    quiet = requests == _seen_requests and not any(core["in_request"] for core in worker.get("cores", ()))
    _seen_requests = requests
    if not quiet or requests == _collected_requests or (_collected_at is not None and now - _collected_at < _COLLECT_SECONDS):
        return
    _collected_requests, _collected_at = requests, now
    hooks.collect()


@hooks.harmless
def _begin():
    try:
        from uwsgidecorators import postfork
        postfork(_after_fork)
    except ImportError:
        earlier = getattr(uwsgi, "post_fork_hook", None)

        def after_fork():
            if earlier:
                earlier()
            _after_fork()

        uwsgi.post_fork_hook = after_fork
    if _IDLE_SECONDS:
        # The highest that is free: programs count from 0.
        signal = next(number for number in reversed(range(_SIGNALS)) if not uwsgi.signal_registered(number))
        uwsgi.register_signal(signal, "workers", _look)  # in each of them
        uwsgi.add_rb_timer(signal, max(1, round(_IDLE_SECONDS)))


_begin()
