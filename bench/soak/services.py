"""The three services of the soak, made of the parts of bench/workloads: how to start them, give them work, renew workers."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from ..workloads.celery import drive as celery
from ..workloads.harness import jobs, memory, redis
from ..workloads.rails_puma import drive as rails
from ..workloads.shop import database
from ..workloads.sidekiq import drive as sidekiq

SEED = 1
MB = 1 << 20
UNIT_SECONDS = 600  # a unit of work, a start or a renewal that takes longer has failed, also beside other work

RENEW_EVERY = 5  # rounds
SETTLING_UNITS = 2
COLLECT = Path(__file__).resolve().parent / "collect.rb"


class ServiceError(Exception):
    """A service that does not work any more; the text says how."""


class Service:
    """One of them. Subclasses say `name`, `limit_mb`, `command()`, `ready()` and `work(unit)`, which returns its errors."""

    CALM = BUSY = 1  # how much is asked of it at once, calm and in a burst

    def __init__(self, directory, library, first_unit=0):
        self.directory = directory / self.name
        self.directory.mkdir(exist_ok=True)
        self.library = shutil.copy(library, self.directory)  # a rebuild must not reach it
        self.container = None
        self.errors = 0
        self.first_unit = self.next_unit = first_unit
        self.at_once = self.CALM
        self.renewed = 0

    @property
    def units(self):
        """How many units of work it did in this slice."""
        return self.next_unit - self.first_unit

    def start(self, containers):
        command, variables = self.command()
        self.container = containers.start(self.name, command, {"LD_PRELOAD": self.library, "RUBYOPT": f"-r{COLLECT}", **variables},
                                          self.limit_mb * MB, self.directory)
        deadline = time.monotonic() + UNIT_SECONDS
        while not self.ready():
            if not self.container.running() or time.monotonic() > deadline:
                raise ServiceError(f"{self.name} did not start:\n{self.log()[-3000:]}")
            time.sleep(0.2)

    def log(self):
        return self.container.log_path.read_text(errors="replace") if self.container else ""

    def work_until(self, deadline):
        while time.monotonic() < deadline:
            self.errors += self.work(self.next_unit)
            self.next_unit += 1

    def burst_until(self, deadline):
        """The same with much more at once."""
        self.at_once = self.BUSY
        try:
            self.work_until(deadline)
        finally:
            self.at_once = self.CALM

    def renew(self):
        """Ends one worker for another, if the service does not see to that itself."""

    def deploy(self):
        """Renews all workers, as a new version would."""

    def kept_files(self):
        """What it keeps on disk from one slice to the next."""
        return []

    def settle(self):
        """Brings it into a state whose memory can be compared from round to round: it does the same work each time, also
        by a worker that has just been renewed. Then Ruby collects its garbage, so that what is live does not depend on
        when it did so last; Python frees what nobody refers to at once."""
        for unit in range(SETTLING_UNITS):
            self.errors += self.work(unit)
        for pid in self.container.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGURG)  # ignored by whoever does not expect it

    def stop(self):
        if self.container is not None:
            self.container.stop()


class Rails(Service):
    name, limit_mb = "rails", 512
    WORKERS, REQUESTS = 2, 60
    CALM, BUSY = 4, 16  # clients

    def command(self):
        _create_once(self.directory / "shop.sqlite3")
        return ([rails.PUMA, "-C", rails.SHOP / "config/puma.rb", "--tag", "soak-rails", rails.SHOP / "config.ru"],
                {"SHOP_DIRECTORY": self.directory, "SHOP_WORKERS": self.WORKERS, "RAILS_ENV": "production",
                 "RACK_ENV": "production"})

    def ready(self):
        return self.log().count(") booted") >= self.WORKERS

    def work(self, unit):
        result = self.directory / "load.json"
        done = subprocess.run(
            [sys.executable, "-B", "-m", "bench.workloads.rails_puma.load", "--socket", self.directory / "puma.sock", "--seed", str(SEED),
             "--requests", str(self.REQUESTS), "--first", str(unit * self.REQUESTS), "--concurrency", str(self.at_once),
             "--result", result], timeout=UNIT_SECONDS, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceError(f"the clients of rails failed:\n{done.stderr[-2000:]}")
        sys.stderr.write(done.stderr)
        return json.loads(result.read_text())["errors"]

    def renew(self):
        """Puma's master starts another worker for one that ends. The oldest goes, in a moment without requests."""
        worker = memory.oldest(memory.process_tree(self.container.pid)[1:])
        if worker is None:
            return
        booted = self.log().count(") booted")
        os.kill(worker, signal.SIGTERM)
        deadline = time.monotonic() + UNIT_SECONDS
        while self.log().count(") booted") <= booted:
            if time.monotonic() > deadline:
                raise ServiceError(f"Puma did not replace a worker within {UNIT_SECONDS} s")
            time.sleep(0.2)
        self.renewed += 1

    def deploy(self):
        for _ in range(self.WORKERS):
            self.renew()

    def kept_files(self):
        return [self.directory / "shop.sqlite3"]


class Queued(Service):
    """A service that takes jobs from redis and notes each one's end there (harness/jobs.py)."""

    UNIT = 40  # jobs
    CALM, BUSY = 1, 4  # units in the queue at once

    def __init__(self, directory, library, first_unit=0):
        super().__init__(directory, library, first_unit)
        self.redis_process = None

    def start_redis(self):
        socket_path = self.directory / "redis.sock"
        log_path = self.directory / "redis.log"
        with open(log_path, "wb") as log:
            self.redis_process = subprocess.Popen(
                [redis.REDIS_SERVER, "--port", "0", "--unixsocket", socket_path, "--unixsocketperm", "700",
                 "--dir", self.directory, "--save", "", "--appendonly", "no"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + 30
        while "ready to accept connections" not in log_path.read_text():
            if time.monotonic() > deadline:
                raise ServiceError("redis-server did not start")
            time.sleep(0.1)
        self.redis = redis.Redis(socket_path)
        return socket_path

    def work(self, unit):
        for again in range(self.at_once):
            self.queue(unit + again)
        wanted = self.UNIT * self.at_once
        deadline = time.monotonic() + UNIT_SECONDS
        while (done := self.redis.command("LLEN", jobs.DONE_LIST)) < wanted:
            if not self.container.running():
                raise ServiceError(f"{self.name} ended:\n{self.log()[-3000:]}")
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        ended = [entry.decode(errors="replace") for entry in self.redis.command("LRANGE", jobs.DONE_LIST, 0, -1)]
        self.redis.command("DEL", jobs.DONE_LIST)
        bad = [entry for entry in ended if not entry.endswith(" ok")]
        for entry in bad[:3]:
            print(f"{self.name}: a job failed: {entry}", file=sys.stderr)
        return len(bad) + wanted - done

    def stop(self):
        super().stop()
        if self.redis_process is not None:
            self.redis_process.terminate()
            self.redis_process.wait()


class Sidekiq(Queued):
    name, limit_mb = "sidekiq", 400
    THREADS = 10

    def command(self):
        self.drive = sidekiq
        socket_path = self.start_redis()
        _create_once(self.directory / "shop.sqlite3")
        return ([self.drive.SIDEKIQ, "-g", "soak-sidekiq", "-c", self.THREADS, "-e", "production",
                 "-r", self.drive.HERE / "jobs.rb"],
                {"SHOP_DIRECTORY": self.directory, "BENCH_REDIS_SOCKET": socket_path,
                 "SHOP_CACHE_MB": self.drive.CACHE_MB, "RAILS_ENV": "production"})

    def ready(self):
        return self.redis.command("SCARD", "processes") > 0

    def kept_files(self):
        return [self.directory / "shop.sqlite3"]

    def queue(self, unit):
        self.drive.queue_jobs(self.redis, SimpleNamespace(seed=SEED, count=self.UNIT), unit)


class Celery(Queued):
    name, limit_mb = "celery", 400
    PROCESSES, CACHE_MB, TASKS_PER_CHILD = 4, 8, 250  # Celery renews a worker after so many tasks

    def command(self):
        self.drive = celery
        self.variables = {"PYTHONPATH": ":".join(map(str, self.drive.MODULES)), "BENCH_REDIS_SOCKET": str(self.start_redis()),
                          "PYTHONDONTWRITEBYTECODE": "1"}
        return ([self.drive.PYTHON, "-m", "celery", "-A", "bench_tasks", "worker", "-n", "soak-celery@localhost", "-l", "INFO",
                 "--pool", "prefork", "--concurrency", self.PROCESSES, "--max-tasks-per-child", self.TASKS_PER_CHILD,
                 "--without-mingle", "--without-gossip"], {"BENCH_CACHE_MB": self.CACHE_MB, **self.variables})

    def ready(self):
        return "soak-celery@localhost ready" in self.log()

    def settle(self):
        """Renews the workers first, or samples would show how old they happen to be. What grows from one worker to the
        next grows in the process that forks them."""
        old = set(memory.process_tree(self.container.pid)[1:])
        deadline = time.monotonic() + UNIT_SECONDS
        while len(workers := set(memory.process_tree(self.container.pid)[1:])) < self.PROCESSES or workers & old:
            if time.monotonic() > deadline:
                raise ServiceError(f"Celery did not replace its workers within {UNIT_SECONDS} s")
            for pid in workers & old:  # again: one that has just been forked still has the signals of its parent
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.2)
        self.renewed += len(old)
        super().settle()

    def queue(self, unit):
        done = subprocess.run([self.drive.PYTHON, self.drive.HERE / "enqueue.py", str(self.UNIT), str(SEED), str(unit)],
                              env={**os.environ, **self.variables}, timeout=UNIT_SECONDS, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceError(f"Celery's producer failed:\n{done.stderr[-2000:]}")


def require_programs():
    """Raises WorkloadError where a service cannot start before something is installed, which is no failure of a soak."""
    celery.require_virtual_environment()


def _create_once(path):
    """The shop's database, unless an earlier slice left it."""
    if not path.exists():
        database.create(path, SEED)


ALL = (Rails, Sidekiq, Celery)
