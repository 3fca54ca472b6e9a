"""Hooks for gunicorn: `python -m snug run gunicorn --preload app:app`, or without the tool `gunicorn -c
python:snug.gunicorn ...`, or in a gunicorn.conf.py of your own `from snug.gunicorn import *`.

Before workers are forked, what lives is made immortal and frozen, which pays with --preload: they share what was loaded. A worker that has no request for a while collects, and under snug purges; snug.hooks says how often. With
SNUG_RECYCLE_MB a worker that holds more ends after its request, as it does with --max-requests, and gunicorn starts
another. Workers that do not call the hooks of requests, like uvicorn's, are frozen only.
"""

import functools
import os.path

from snug import hooks, warm_up

__all__ = ["on_starting", "post_request", "pre_fork", "pre_request"]

_IDLE = hooks.Idle()
_RECYCLE_BYTES = hooks.setting("SNUG_RECYCLE_MB", 0) * 1e6


@hooks.harmless
def on_starting(server):
    """Warns of a configuration that the option -c put aside."""
    if server.cfg.config == "python:snug.gunicorn" and os.path.exists("gunicorn.conf.py"):
        server.log.warning("snug: gunicorn.conf.py is not read, because -c names snug.gunicorn; "
                           "put `from snug.gunicorn import *` into it, and leave that option out")


def pre_fork(server, worker):
    """In the master, before each worker."""
    preloaded = server.cfg.preload_app
    hooks.freeze_before_fork(call=(lambda target: warm_up.request(server.app.wsgi(), target)) if preloaded else None)


def pre_request(worker, req):
    """In a worker."""
    _IDLE.begin()


def post_request(worker, req, environ, resp):
    """In a worker."""
    _IDLE.end()
    if _RECYCLE_BYTES:
        _recycle(worker)


def switch_on():
    """Has these hooks called after those of any configuration; `python -m snug run` does this."""
    from gunicorn.arbiter import Arbiter

    setup = Arbiter.setup

    @functools.wraps(setup)
    def setup_with_hooks(arbiter, app):
        setup(arbiter, app)
        _add_to(arbiter.cfg)

    Arbiter.setup = setup_with_hooks


@hooks.harmless
def _add_to(configuration):
    own = {hook: getattr(configuration, hook.__name__) for hook in (pre_fork, pre_request, post_request)}
    if any(function.__module__ == __name__ for function in own.values()):
        return  # it took them in by itself
    configuration.set("pre_fork", lambda server, worker: (own[pre_fork](server, worker), pre_fork(server, worker)))
    configuration.set("pre_request", lambda worker, req: (own[pre_request](worker, req), pre_request(worker, req)))
    configuration.set("post_request", lambda worker, req, environ, resp: (
        own[post_request](worker, req, environ, resp), post_request(worker, req, environ, resp)))


@hooks.harmless
def _recycle(worker):
    held = hooks.held_bytes()
    if held > _RECYCLE_BYTES and worker.alive:
        worker.log.info("snug: this worker ends, since it holds %d MB of SNUG_RECYCLE_MB=%d", held / 1e6, _RECYCLE_BYTES / 1e6)
        worker.alive = False
