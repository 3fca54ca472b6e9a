"""A server's first requests or tasks, before it forks: what they load, compile and cache is then shared by all workers,
instead of being made by each. Opt-in, since the application's code runs in the process that forks:

    SNUG_WARM_UP="/ /products?page=2 https://shop.example/"    requests to the application, for gunicorn with --preload
    SNUG_WARM_UP="tasks.report"                                tasks without arguments, for Celery
    SNUG_WARM_UP="shop.warm:up"                                functions of any module, for all
    SNUG_WARM_UP_SECONDS                                       all of it takes at most this long (10)
"""

import importlib
import inspect
import logging
import os
import signal
import sys
import threading
from urllib.parse import unquote, urlsplit

LOG = logging.getLogger("snug")


def run(words, seconds, call):
    """Does what these words say: a function by itself, a path or a task by call(word). A failure is logged, and harmless;
    when the time is over the rest is left out."""
    if not words or not seconds:
        return
    if threading.current_thread() is not threading.main_thread():
        LOG.warning("snug: no warm-up, because this server forks in a thread")
        return
    sockets = _sockets()
    done = []
    earlier = signal.signal(signal.SIGALRM, _time_is_over)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        for word in words:
            try:
                _function(word)() if _is_function(word) else call(word)
                done.append(word)
            except (TimeIsOver, KeyboardInterrupt):
                raise
            except BaseException:  # sys.exit() and a cancelled task would end the server
                LOG.exception("snug: the warm-up goes on without %s", word)
    except TimeIsOver:
        LOG.warning("snug: the warm-up ended after %g s, with %d of %d done: %s", seconds, len(done), len(words), " ".join(done))
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, earlier)
    _close_databases()
    left = len(_sockets() - sockets)
    if left:
        LOG.warning("snug: the warm-up left %d sockets open, which workers would share; have a function of yours close them", left)


class TimeIsOver(BaseException):
    """Not an Exception, so that an application that goes on after these does not go on after this."""


def _time_is_over(_signal, _frame):
    raise TimeIsOver


def _is_function(word):
    return ":" in word and "/" not in word


def _function(word):
    module, _, name = word.partition(":")
    return getattr(importlib.import_module(module), name)


def _sockets():
    """The descriptors that are sockets, by what they are."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if name.startswith("socket:"):
            found.add(name)
    return found


def _close_databases():
    """Connections of Django's, which it opens again where they are needed; an application may import it and not use it."""
    if "django.db" in sys.modules and sys.modules["django.conf"].settings.configured:
        sys.modules["django.db"].connections.close_all()


def request(application, target):
    """One GET of a path or a URL, to an application of WSGI or ASGI."""
    address = urlsplit(target)
    fields = {"scheme": address.scheme or "http", "host": address.netloc or "127.0.0.1", "path": unquote(address.path) or "/", "query": address.query}
    if inspect.iscoroutinefunction(application) or inspect.iscoroutinefunction(type(application).__call__):
        import asyncio

        status = asyncio.run(_asgi(application, **fields))
    else:
        status = _wsgi(application, **fields)
    if status >= 500:
        LOG.warning("snug: the warm-up's %s was answered with %d", target, status)


def _wsgi(application, scheme, host, path, query):
    from wsgiref.util import setup_testing_defaults

    environ = {"wsgi.url_scheme": scheme, "HTTPS": "on" if scheme == "https" else "off", "HTTP_HOST": host, "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_ADDR": "127.0.0.1"}
    setup_testing_defaults(environ)
    statuses = []

    def start_response(status, headers, exc_info=None):
        statuses.append(int(status.split()[0]))
        return lambda data: None

    answer = application(environ, start_response)
    try:
        for _ in answer:
            pass
    finally:
        if hasattr(answer, "close"):
            answer.close()
    return statuses[-1]


async def _asgi(application, scheme, host, path, query):
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET", "scheme": scheme,
             "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(), "headers": [(b"host", host.encode())],
             "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 80)}
    statuses = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await application(scope, receive, send)
    return statuses[-1]
