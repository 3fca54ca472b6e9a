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

from release.project import ROOT
from release.tests.staged import CLEAN, installed, run, temporary

# What a request leaves as cyclic garbage, and what it says of its process.
SHARED = """import gc, json, os, snug, socket, time
seen, left = [], []
def warm(): seen.append("warm()")
def ends(): raise SystemExit(3)
class Node: pass
def garbage():
    for _ in range(100):
        node = Node(); node.self = node; node.text = bytes(300_000)
def state():
    return {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "malloc": os.environ.get("PYTHONMALLOC"), "purged": snug.stats()["purged_bytes"] if snug.active() else None, "seen": list(seen)}
gc.set_threshold(1_000_000)
"""
WSGI = SHARED + """def app(environ, start_response):
    before, path = state(), environ["PATH_INFO"]
    seen.append(environ["wsgi.url_scheme"] + "://" + environ["HTTP_HOST"] + path if "HTTP_HOST" in environ else path)
    if path == "/garbage": garbage()
    if path == "/fails": raise RuntimeError("of a test")
    if path == "/slow": time.sleep(60)
    if path == "/opens": left.append(socket.create_server(("127.0.0.1", 0)))
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
@app.task(name="warm.up")
def warm_up(): seen.append("a task")
@app.task(name="spike")
def spike(size):
    bytes(size).count(1)
    return os.getpid()
@app.task(name="forks")
def forks(count):
    from billiard import Process
    children = [Process(target=state) for _ in range(count)]
    for child in children: child.start()
    for child in children: child.join()
    return [child.exitcode for child in children] + [os.waitstatus_to_exitcode(os.system("exit 3"))]
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
        shutil.copytree(ROOT / "bindings/wheel/snug", self.folder / "snug", ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "snug/bin").mkdir()
        for source, name in (("bin/snug", "snug"), ("lib/libsnug.so.0", "libsnug.so")):
            (self.folder / "snug/bin" / name).symlink_to(installed() / source)
        (self.folder / "app.py").write_text(WSGI)
        (self.folder / "fine.py").write_text(WSGI.replace(", snug\n", "\nclass snug: active = staticmethod(lambda: False)\n", 1))
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

    def run_by_the_wheel(self, *words, **variables):
        """The same by `python -m snug run`, by whose line of output hooks are known to be on."""
        return self.start("/usr/bin/python3", "-m", "snug", "run", *words, library=False, SNUG="purge_cpu_percent:0,background:0", **variables)

    def assert_said(self, count=1):
        """That hooks are on is said once, however many workers there are."""
        self.assertEqual(self.log.read_text().count("snug: workers share "), count, self.log.read_text())

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

    def by_the_wheel(self, *options, **variables):
        self.run_by_the_wheel(*options[:1], "gunicorn", "--bind", f"unix:{self.folder}/http.sock", "--preload", "-w", "2", *options[1:], "app:app", **variables)

    def test_the_wheel_switches_them_on_beside_those_of_a_configuration(self):
        (self.folder / "gunicorn.conf.py").write_text("def pre_fork(server, worker): print('own pre_fork', flush=True)\n"
                                                      "def post_request(worker, req): print('own post_request', flush=True)\n")
        self.by_the_wheel("--", "--threads", "2")
        self.assert_frozen_and_purged()
        self.assert_said()
        self.assertEqual(self.get()["malloc"], "malloc")
        self.assertIn("own pre_fork", self.log.read_text())
        self.assertIn("own post_request", self.log.read_text())

    def test_a_configuration_that_has_them_gets_no_second_set(self):
        (self.folder / "gunicorn.conf.py").write_text("from snug.gunicorn import *\n")
        self.by_the_wheel("--", PYTHONMALLOC="pymalloc")
        self.assert_frozen_and_purged()
        self.assert_said()
        self.assertEqual(self.get()["malloc"], "pymalloc")

    def test_the_wheel_leaves_them_out_if_asked_to(self):
        self.by_the_wheel("--no-hooks")
        answer = self.wait("an answer", self.get)
        self.assertEqual((answer["frozen"], answer["malloc"]), (0, None))
        self.assert_said(0)

    def test_a_variable_leaves_them_out_too(self):
        self.by_the_wheel("--", SNUG_HOOKS="0")
        self.assertEqual(self.wait("an answer", self.get)["frozen"], 0)

    def test_an_interpreter_without_the_package_finds_it(self):
        # -P keeps the folder with the package off the path; only the switch is on it.
        (self.folder / "snug").rename(self.folder / "elsewhere")
        (self.folder / "wheel").mkdir()
        (self.folder / "elsewhere").rename(self.folder / "wheel/snug")
        self.start("gunicorn", "--bind", f"unix:{self.folder}/http.sock", "--preload", "fine:app", library=False,
                   PYTHONPATH=f"{self.folder}/wheel/snug/auto:{self.folder}")
        self.assertGreater(self.wait("an answer", self.get)["frozen"], 10_000)

    def test_workers_after_a_reload_are_served_and_nothing_is_prepared_twice(self):
        server = self.gunicorn("-c", "python:snug.gunicorn")
        first = self.wait("an answer", self.get)["pid"]
        server.send_signal(signal.SIGHUP)
        self.wait("another worker", lambda: (self.get() or {"pid": first})["pid"] != first)
        self.assert_frozen_and_purged()
        self.assert_said()

    def test_a_warm_up_is_seen_by_workers_and_its_failures_are_harmless(self):
        self.gunicorn("-c", "python:snug.gunicorn", SNUG_WARM_UP="/a?b=c /fails app:ends app:warm app:nothing https://shop.example/b /opens")
        self.assertEqual(self.wait("an answer", self.get)["seen"], [
            "http://127.0.0.1/a", "http://127.0.0.1/fails", "warm()", "https://shop.example/b", "http://127.0.0.1/opens"])
        said = self.log.read_text()
        for words in ("the warm-up goes on without /fails", "the warm-up goes on without app:ends", "the warm-up goes on without app:nothing", "the warm-up left 1 sockets open"):
            self.assertIn(words, said)

    def test_djangos_connections_are_closed_if_it_is_used(self):
        for configured in True, False:
            script = ("import sys, types; from snug import warm_up\n"
                      f"sys.modules['django.conf'] = types.SimpleNamespace(settings=types.SimpleNamespace(configured={configured}))\n"
                      "sys.modules['django.db'] = types.SimpleNamespace(connections=types.SimpleNamespace(close_all=lambda: print('closed')))\n"
                      "warm_up.run(['/'], 5, len)")
            self.assertEqual(run("/usr/bin/python3", "-c", script, PYTHONPATH=str(self.folder)).stdout, "closed\n" * configured)

    def test_whatever_a_warm_up_raises_is_logged(self):
        script = ("import asyncio, sys, types; from snug import warm_up\n"
                  "def raises(error):\n    raise error\n"
                  "errors = {'exits': SystemExit(3), 'cancelled': asyncio.CancelledError(), 'closed': GeneratorExit(), 'ordinary': ValueError()}\n"
                  "sys.modules['app'] = types.SimpleNamespace(**{name: lambda error=error: raises(error) for name, error in errors.items()})\n"
                  "warm_up.run([f'app:{name}' for name in errors] + ['/'], 5, lambda word: print('served', word))")
        ended = run("/usr/bin/python3", "-c", script, PYTHONPATH=str(self.folder))
        self.assertEqual((ended.returncode, ended.stdout), (0, "served /\n"), ended.stderr)
        self.assertEqual(ended.stderr.count("the warm-up goes on without"), 4, ended.stderr)

    def test_a_warm_up_ends_in_time(self):
        self.gunicorn("-c", "python:snug.gunicorn", SNUG_WARM_UP="/a /slow /b", SNUG_WARM_UP_SECONDS="1")
        self.assertEqual(self.wait("an answer", self.get)["seen"], ["http://127.0.0.1/a", "http://127.0.0.1/slow"])
        self.assertIn("the warm-up ended after 1 s, with 1 of 3 done: /a", self.log.read_text())

    def test_no_warm_up_by_paths_without_preload(self):
        self.start("gunicorn", "--bind", f"unix:{self.folder}/http.sock", "-c", "python:snug.gunicorn", "app:app", SNUG_WARM_UP="/a")
        self.assertEqual(self.wait("an answer", self.get)["seen"], [])
        self.assertIn("here SNUG_WARM_UP takes functions, as package.module:function, and no /a", self.log.read_text())

    def test_applications_of_asgi_are_warmed_up_too(self):
        script = ("from snug import warm_up\nasync def app(scope, receive, send):\n"
                  "    print(scope['scheme'], scope['path'], scope['query_string'], (await receive())['type'])\n"
                  "    await send({'type': 'http.response.start', 'status': 200, 'headers': []}); await send({'type': 'http.response.body', 'body': b''})\n"
                  "class App:\n    async def __call__(self, *of_asgi): await app(*of_asgi)\n"
                  "for one in app, App(): warm_up.request(one, '/p%20q?a=b')")
        ended = run("/usr/bin/python3", "-c", script, PYTHONPATH=str(self.folder))
        self.assertEqual((ended.stdout, ended.stderr), ("http /p q b'a=b' http.request\n" * 2, ""))

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

    def test_the_wheel_prepares_the_process_that_forks(self):
        self.run_by_the_wheel("uwsgi", "--plugin", "python3", "--master", "--processes", "2", "--http-socket", self.folder / "http.sock",
                              "--wsgi-file", "app.py", "--die-on-term")
        self.assert_frozen_and_purged(2.5)
        self.assert_said()

    def test_workers_that_load_the_application_themselves_have_nothing_to_prepare(self):
        (self.folder / "lazy.ini").write_text("[uwsgi]\nlazy-apps = true\n")
        (self.folder / "outer.ini").write_text("[uwsgi]\ninclude = lazy.ini\n")
        for options, variables in (("--lazy-apps",), {}), (("--ini", self.folder / "lazy.ini"), {}), ((f"--ini={self.folder}/outer.ini",), {}), ((), {"UWSGI_LAZY_APPS": "1"}):
            with self.subTest(options=options, variables=variables):
                server = self.run_by_the_wheel("uwsgi", "--plugin", "python3", "--master", "--processes", "2", "--http-socket", self.folder / "http.sock",
                                               "--wsgi-file", "app.py", "--die-on-term", *options, **variables)
                self.wait("an answer", self.get)
                self.assertNotIn("Segmentation Fault", self.log.read_text())
                self.assert_said(0)
                self.end(server)
                (self.folder / "http.sock").unlink(missing_ok=True)


@unittest.skipIf(missing("celery", "redis-server"), missing("celery", "redis-server"))
class Celery(Servers):
    def setUp(self):
        super().setUp()
        self.start("redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", library=False)
        self.redis = f"redis+socket://{self.folder}/redis.sock"
        self.wait("redis", (self.folder / "redis.sock").exists)

    def celery(self, *options, start=None, **variables):
        server = (start or self.start)("celery", "-A", "tasks", "worker", "-l", "info", "-c", "1", "--without-mingle", "--without-gossip", *options,
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

    def test_the_wheel_switches_them_on(self):
        self.celery(start=self.run_by_the_wheel)
        first = self.tasks(("work", False), ("work", True))[0]
        self.assertGreater(first["frozen"], 10_000)
        self.assertEqual(first["malloc"], "malloc")
        self.wait("a purge when idle", lambda: time.sleep(0.9) or self.tasks(("work", False))[0]["purged"] - first["purged"] > 20_000_000)
        self.assert_said()

    def test_only_forks_of_the_pool_are_prepared(self):
        (self.folder / "tasks.py").write_text("import os, subprocess, sys\nif not os.fork(): os._exit(0)\nos.wait()\n"
                                              "subprocess.run(['true'], preexec_fn=os.getpid)\nprint('loaded', file=sys.stderr)\n" + CELERY)
        self.celery("--include", "snug.celery", "--max-tasks-per-child", "1")
        self.tasks(("work", False), ("work", False), ("work", False))
        said = self.log.read_text()
        self.assertLess(said.index("loaded"), said.index("snug: workers share"))
        self.assert_said()

    def test_tasks_may_fork(self):
        self.celery("--include", "snug.celery")
        self.assertEqual(self.tasks(("forks", 3), ("forks", 1)), [[0, 0, 0, 3], [0, 3]])
        self.assertEqual(self.log.read_text().count("a hook failed"), 0)
        self.assert_said()

    def test_a_warm_up_by_tasks_and_functions(self):
        self.celery("--include", "snug.celery", SNUG_WARM_UP="tasks:ends tasks:warm warm.up no.task")
        self.assertEqual(self.tasks(("work", False))[0]["seen"], ["warm()", "a task"])
        self.assertIn("the warm-up goes on without no.task", self.log.read_text())

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
