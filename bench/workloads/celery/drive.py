"""celery: Python tasks on Celery, with 8 forked processes or with 20 threads.

Starts a redis-server of its own and Celery under the allocator of our environment, queues seeded tasks, waits
until all have ended, then while Celery idles, stops it. Measure only the server:
  snug compare --only snug-bench-celery -- bench/workloads/celery/drive
Celery comes from PyPI, into build/venv-celery; bench/workloads/celery/setup makes that. With --heavy the tasks belong to an
application that loads much before it forks, in build/venv-heavy, which bench/workloads/heavy/setup makes. BENCH_PYTHON
names another Python that has Celery and redis.
"""

import os
import sys
from pathlib import Path

from ..harness import jobs, memory, metrics, options, redis, session

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent


OTHER_PYTHON = os.environ.get("BENCH_PYTHON")
PYTHON = Path(OTHER_PYTHON or ROOT / "build/venv-celery/bin/python")
HEAVY_PYTHON = Path(OTHER_PYTHON or ROOT / "build/venv-heavy/bin/python")
BOOT = HERE.parent / "heavy"  # what a large application loads, and what its environment is made of
MODULES = (HERE, BOOT)  # where bench_tasks and what it imports lie
CONCURRENCY = {"prefork": 8, "threads": 20}
# Prefork keeps this much in each process, threads share one cache.
CACHE_MB = {"prefork": 16, "threads": 64}


def parse_arguments():
    parser = options.parser("celery", __doc__, "tasks", full_count=3000, quick_count=500)
    parser.add_argument("--pool", choices=CONCURRENCY, default="prefork", help="forked processes or threads")
    parser.add_argument("--concurrency", type=options.positive, metavar="N", help="processes or threads (8 or 20)")
    parser.add_argument("--cache-mb", type=int, metavar="MB", help="cached per process (16; threads: 64)")
    parser.add_argument("--heavy", action="store_true", help="a heavy boot: libraries that are there, and a table of 40,000 rows")
    arguments = options.parse(parser)
    if arguments.concurrency is None:
        arguments.concurrency = CONCURRENCY[arguments.pool]
    if arguments.cache_mb is None:
        arguments.cache_mb = CACHE_MB[arguments.pool]
    return arguments


def require():
    """Fails if something is missing that a run needs."""
    session.require_program(redis.REDIS_SERVER)
    require_virtual_environment()


def require_virtual_environment():
    require_made(PYTHON, HERE, "build/venv-celery", "tools/install-deps bench && bench/workloads/celery/setup")


def require_heavy():
    """The same for an application that loads much."""
    session.require_program(redis.REDIS_SERVER)
    require_heavy_environment()


def require_heavy_environment():
    require_made(HEAVY_PYTHON, BOOT, "build/venv-heavy", "bench/workloads/heavy/setup")


def require_made(python, folder, name, command):
    """Fails unless the environment of this interpreter was made from the folder's present list."""
    if OTHER_PYTHON:
        session.require_program(python)
        return
    made_from = python.parent.parent / "requirements.txt"
    if not made_from.exists() or made_from.read_text() != (folder / "requirements.txt").read_text():
        raise session.WorkloadError(f"{name} is missing or outdated; run: {command}")


def python_of(arguments):
    return HEAVY_PYTHON if arguments.heavy else PYTHON


def start_server(run, arguments, variables):
    server = run.start_server(
        [python_of(arguments), "-m", "celery", "-A", "bench_tasks", "worker", "-n", "snug-bench-celery@localhost", "-l", "INFO",
         "--pool", arguments.pool, "--concurrency", arguments.concurrency, "--without-mingle", "--without-gossip",
         *(["--include", "snug.celery"] if arguments.hooks == options.OURS else [])],
        BENCH_CACHE_MB=arguments.cache_mb, BENCH_HEAVY=int(arguments.heavy), **variables)
    run.wait_until(lambda: "snug-bench-celery@localhost ready" in server.log_path.read_text(), "starting Celery", 180)


def queue_tasks(run, arguments, variables, burst):
    producer = run.start_helper(
        "enqueue", [python_of(arguments), HERE / "enqueue.py", arguments.count, arguments.seed, burst], **variables)
    run.wait_for_helper(producer, timeout_seconds=300)


def drive(run, arguments):
    (require_heavy if arguments.heavy else require_virtual_environment)()
    client, redis_socket = redis.start(run)
    variables = {**options.python_variables(arguments, *MODULES), "BENCH_REDIS_SOCKET": redis_socket}
    start_server(run, arguments, variables)
    run.note_server_processes()
    watch = memory.Watch(run.server.popen.pid)
    tasks_per_s, durations_ms, errors = jobs.run_bursts(
        run, client, arguments, lambda burst: queue_tasks(run, arguments, variables, burst), watch)
    idle = memory.idle_metrics(run.server.popen.pid)
    errors += run.count_lost_processes() + run.stop_server()
    return {"tasks_per_s": tasks_per_s, **metrics.latencies(durations_ms), **watch.metrics(), **idle, "errors": errors}


if __name__ == "__main__":
    parsed = parse_arguments()
    sys.exit(session.run(f"celery_{parsed.pool}", lambda run: drive(run, parsed)))
