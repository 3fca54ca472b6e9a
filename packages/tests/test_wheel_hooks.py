"""The wheel's hooks in real servers: gunicorn, Celery and uWSGI of Debian's, under snug.

The library gives nothing back by itself here (purge_cpu_percent:0, background:0), so that what was purged, the hooks purged.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from packages.project import ROOT
from packages.tests.staged import CLEAN, installed, run, temporary

# What a request leaves as cyclic garbage, and what it says of its process.
SHARED = """import gc, json, os, snug
class Node: pass
def garbage():
    for _ in range(100):
        node = Node(); node.self = node; node.text = bytes(300_000)
def state():
    return {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "purged": snug.stats()["purged_bytes"] if snug.active() else None}
gc.set_threshold(1_000_000)
"""
WSGI = SHARED + """def app(environ, start_response):
    before = state()
    if environ["PATH_INFO"] == "/garbage":
        garbage()
    body = json.dumps(before).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
application = app
"""
CELERY = SHARED + """from celery import Celery
app = Celery("app", broker=os.environ["REDIS"], backend=os.environ["REDIS"])
@app.task(name="work")
def work(leave):
    before = state()
    if leave: garbage()
    return before
@app.task(name="spike")
def spike(size):
    bytes(size).count(1)
    return os.getpid()
kept = []
@app.task(name="keep")
def keep(size):
    kept.append(b"x" * size)
    return os.getpid()
"""
# What hooks call before a fork and in idle moments, and servers do not.
BROKEN = """import gc, snug
def fail(*_): raise RuntimeError("of a test")
gc.freeze = snug.purge = fail
"""


def missing(*names):
    return next((f"{name} is not installed: tools/install-deps servers" for name in names if not shutil.which(name, path=CLEAN["PATH"])), None)


class Servers(unittest.TestCase):
    def setUp(self):
        self.folder = temporary(self)
        (self.folder / "snug").symlink_to(ROOT / "packages/wheel/snug")
        (self.folder / "app.py").write_text(WSGI)
        (self.folder / "tasks.py").write_text(CELERY)
        self.log = self.folder / "log"

    def start(self, *command, library=True, **variables):
        """Starts a server in the folder, under snug; its output is in self.log, and it is gone after the test."""
        environment = {**CLEAN, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "SNUG_IDLE_SECONDS": "0.5", "SNUG_COLLECT_SECONDS": "1",
                       "HOME": str(self.folder), **variables}
        if library:
            environment |= {"LD_PRELOAD": str(installed() / "lib/libsnug.so.0"), "SNUG": "purge_cpu_percent:0,background:0"}
        with open(self.log, "ab") as log:
            server = subprocess.Popen([str(word) for word in command], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(self.end, server)
        return server

    def end(self, server):
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        server.wait()

    def wait(self, what, condition):
        """Waits until condition() is true, and returns it."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{what}: not after 120 s\n{self.log.read_text()}")

    def get(self, path="/", name="http.sock"):
        """The JSON that the server answers, or None if it is not there yet."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            try:
                client.connect(str(self.folder / name))
                client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                answer = b""
                while data := client.recv(65536):
                    answer += data
            except (FileNotFoundError, ConnectionError):
                return None
        return json.loads(answer.partition(b"\r\n\r\n")[2]) if answer else None

    def assert_frozen_and_purged(self, pause_seconds=0.9):
        """A worker has frozen what it was forked with, and gives back what its requests left once it idles."""
        first = self.wait("an answer", self.get)
        self.assertGreater(first["frozen"], 10_000)
        self.get("/garbage")
        self.wait("a purge when idle", lambda: time.sleep(pause_seconds) or self.get()["purged"] - first["purged"] > 20_000_000)


@unittest.skipIf(missing("gunicorn"), missing("gunicorn"))
class Gunicorn(Servers):
    def gunicorn(self, *options, **variables):
        return self.start("gunicorn", "--bind", f"unix:{self.folder}/http.sock", "--preload", "-w", "1", *options, "app:app", **variables)

    def test_workers_are_frozen_and_purge_when_idle(self):
        self.gunicorn("-c", "python:snug.gunicorn", "--threads", "2")
        self.assert_frozen_and_purged()

    def test_a_worker_that_holds_too_much_is_replaced_after_its_answer(self):
        self.gunicorn("-c", "python:snug.gunicorn", SNUG_RECYCLE_MB="1")
        first = self.wait("an answer", self.get)
        self.wait("another worker", lambda: (self.get() or first)["pid"] != first["pid"])
        self.assertIn("this worker ends, since it holds", self.log.read_text())

    def test_hooks_that_fail_leave_the_server_alone(self):
        (self.folder / "app.py").write_text(BROKEN + WSGI)
        self.gunicorn("-c", "python:snug.gunicorn", SNUG_IDLE_SECONDS="a while")
        self.wait("an answer", self.get)
        self.get("/garbage")
        self.wait("the idle hook's words", lambda: "the server goes on: collect" in self.log.read_text())
        said = self.log.read_text()
        self.assertIn("SNUG_IDLE_SECONDS=a while is not a number from 0 up, so it stays 2", said)
        self.assertIn("the server goes on: freeze_before_fork", said)
        self.assertIsNotNone(self.get())

    def test_a_configuration_that_is_put_aside_is_named(self):
        (self.folder / "gunicorn.conf.py").write_text("workers = 1\n")
        self.gunicorn("-c", "python:snug.gunicorn")
        self.wait("the warning", lambda: "gunicorn.conf.py is not read" in self.log.read_text())

    def test_a_configuration_of_ones_own_takes_the_hooks_in(self):
        (self.folder / "gunicorn.conf.py").write_text("from snug.gunicorn import *\n")
        self.gunicorn()
        self.assert_frozen_and_purged()
        self.assertNotIn("is not read", self.log.read_text())

    def test_other_allocators_have_the_hooks_too(self):
        self.gunicorn("-c", "python:snug.gunicorn", library=False)
        self.assertGreater(self.wait("an answer", self.get)["frozen"], 10_000)


@unittest.skipIf(missing("uwsgi"), missing("uwsgi"))
class Uwsgi(Servers):
    def test_workers_are_frozen_and_purge_when_idle(self):
        self.start("uwsgi", "--plugin", "python3", "--master", "--processes", "1", "--http-socket", self.folder / "http.sock",
                   "--import", "snug.uwsgi", "--wsgi-file", "app.py", "--die-on-term")
        self.assert_frozen_and_purged(2.5)  # uWSGI's timers count whole seconds


@unittest.skipIf(missing("celery", "redis-server"), missing("celery", "redis-server"))
class Celery(Servers):
    def setUp(self):
        super().setUp()
        self.start("redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", library=False)
        self.redis = f"redis+socket://{self.folder}/redis.sock"
        self.wait("redis", (self.folder / "redis.sock").exists)

    def celery(self, *options, **variables):
        server = self.start("celery", "-A", "tasks", "worker", "-l", "info", "-c", "1", "--without-mingle", "--without-gossip", *options,
                            REDIS=self.redis, **variables)
        self.wait("Celery", lambda: " ready." in self.log.read_text())
        return server

    def tasks(self, *calls):
        """What tasks return that are sent one after the other: (name, argument)."""
        script = ("import json, sys; from tasks import app\n"
                  "print(json.dumps([app.send_task(name, (value,)).get(timeout=60) for name, value in json.loads(sys.argv[1])]))")
        ended = run("python3", "-c", script, json.dumps(calls), PYTHONPATH=str(self.folder), REDIS=self.redis)
        self.assertEqual(ended.returncode, 0, f"{ended.stderr}\n{self.log.read_text()}")
        return json.loads(ended.stdout)

    def test_processes_are_frozen_and_purge_when_idle(self):
        self.celery("--include", "snug.celery")
        first = self.tasks(("work", False), ("work", True))[0]
        self.assertGreater(first["frozen"], 10_000)
        self.wait("a purge when idle", lambda: time.sleep(0.9) or self.tasks(("work", False))[0]["purged"] - first["purged"] > 20_000_000)

    def test_threads_purge_when_idle(self):
        self.celery("--include", "snug.celery", "--pool", "threads")
        first = self.tasks(("work", False), ("work", True))[0]
        self.wait("a purge when idle", lambda: time.sleep(0.9) or self.tasks(("work", False))[0]["purged"] - first["purged"] > 20_000_000)

    def test_memory_per_child_is_what_a_process_holds_now(self):
        self.celery("--include", "snug.celery", "--max-memory-per-child", "200000")
        # A peak of 300 MB passes, which Celery alone would take for a reason; what stays does not.
        spike = ("spike", 300_000_000)
        pids = self.tasks(spike, ("keep", 1), spike, ("keep", 1))
        self.assertEqual(len(set(pids)), 1, self.log.read_text())
        kept = self.tasks(("keep", 150_000_000), ("keep", 150_000_000), ("keep", 1))
        self.assertNotEqual(kept[0], kept[-1])

    def test_hooks_that_fail_leave_the_worker_alone(self):
        (self.folder / "tasks.py").write_text(BROKEN + CELERY)
        self.celery("--include", "snug.celery")
        self.tasks(("work", True), ("work", False))
        self.wait("the idle hook's words", lambda: "the server goes on: collect" in self.log.read_text())
        self.assertEqual(len(self.tasks(("work", False))), 1)


if __name__ == "__main__":
    unittest.main()
