"""Hooks for gunicorn: `gunicorn -c python:snug.gunicorn --preload app:app`, or in a gunicorn.conf.py of your own
`from snug.gunicorn import *`.

Before a worker is forked, garbage is collected and the rest frozen, which pays with --preload: workers share what was
loaded. A worker that has no request for a while collects, and under snug purges; snug.hooks says how often. With
SNUG_RECYCLE_MB a worker that holds more ends after its request, as it does with --max-requests, and gunicorn starts
another. Workers that do not call the hooks of requests, like uvicorn's, are frozen only.
"""

import os.path

from snug import hooks

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
    hooks.freeze_before_fork()


def pre_request(worker, req):
    """In a worker."""
    _IDLE.begin()


def post_request(worker, req, environ, resp):
    """In a worker."""
    _IDLE.end()
    if _RECYCLE_BYTES:
        _recycle(worker)


@hooks.harmless
def _recycle(worker):
    held = hooks.held_bytes()
    if held > _RECYCLE_BYTES and worker.alive:
        worker.log.info("snug: this worker ends, since it holds %d MB of SNUG_RECYCLE_MB=%d", held / 1e6, _RECYCLE_BYTES / 1e6)
        worker.alive = False
