"""gunicorn: a large application of WSGI on gunicorn --preload, with 8 forked workers.

Starts gunicorn under the allocator of our environment, sends seeded requests, waits while it idles, stops it. Measure
only the server:
  snug compare --only snug-bench-gunicorn -- bench/workloads/gunicorn/drive
It runs in build/venv-heavy, which bench/workloads/heavy/setup makes; BENCH_PYTHON names another Python that has gunicorn.
"""

import http.client
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..celery import drive as celery
from ..harness import memory, metrics, options, session
from ..rails_puma.load import UnixConnection

HERE = Path(__file__).resolve().parent
CLIENTS = 16
clients = threading.local()


def parse_arguments():
    parser = options.parser("gunicorn", __doc__, "requests", full_count=2000, quick_count=400)
    parser.add_argument("--workers", type=options.positive, default=8, metavar="N", help="forked processes (8)")
    parser.add_argument("--cache-mb", type=int, default=4, metavar="MB", help="kept by each worker (4)")
    return options.parse(parser)


def start_server(run, arguments):
    variables = options.python_variables(arguments, celery.BOOT, HERE)
    server = run.start_server(
        [celery.HEAVY_PYTHON, "-m", "gunicorn", "--name", "snug-bench-gunicorn", "--preload", "--workers", arguments.workers, "--bind",
         f"unix:{run.directory}/gunicorn.sock", *(["-c", "python:snug.gunicorn"] if arguments.hooks == options.OURS else []),
         "application:application"],
        BENCH_CACHE_MB=arguments.cache_mb, BENCH_HEAVY=1, PYTHONUNBUFFERED=1, **variables)
    run.wait_until(lambda: server.log_path.read_text().count("Booting worker") >= arguments.workers, "starting gunicorn", 180)


def ask(run, number):
    """Returns the milliseconds and what is wrong, or None."""
    if not hasattr(clients, "connection"):
        clients.connection = UnixConnection(str(run.directory / "gunicorn.sock"))
    began, problem = time.monotonic(), None
    try:
        clients.connection.request("GET", f"/{number}")
        answer = json.loads(clients.connection.getresponse().read())
        if answer["number"] != number or len(answer["rows"]) != answer["count"]:
            problem = "another answer"
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    clients.connection.close()
    return (time.monotonic() - began) * 1000, problem


def send_load(run, arguments, burst):
    """Returns milliseconds of each request, the problems, and the seconds of all."""
    first = arguments.seed * 1_000_003 + burst * arguments.count
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda number: ask(run, number), range(first, first + arguments.count)))
    problems = [problem for _, problem in answers if problem]
    for problem in problems[:5]:
        print(f"gunicorn: a request failed: {problem}", file=sys.stderr)
    return [milliseconds for milliseconds, _ in answers], problems, time.monotonic() - began


def require():
    """Fails if something is missing that a run needs."""
    celery.require_heavy_environment()


def drive(run, arguments):
    require()
    start_server(run, arguments)
    run.note_server_processes()
    durations_ms, errors, seconds = [], 0, 0.0
    watch = memory.Watch(run.server.popen.pid)
    for burst in range(arguments.bursts):
        with watch:
            took, problems, lasted = send_load(run, arguments, burst)
        durations_ms += took
        errors += len(problems)
        seconds += lasted
        time.sleep(arguments.idle_seconds)
        run.check_running()
    idle = memory.idle_metrics(run.server.popen.pid)
    errors += run.count_lost_processes() + run.stop_server()
    return {"requests_per_s": len(durations_ms) / seconds, **metrics.latencies(durations_ms), **watch.metrics(), **idle, "errors": errors}


if __name__ == "__main__":
    parsed = parse_arguments()
    sys.exit(session.run("gunicorn", lambda run: drive(run, parsed)))
