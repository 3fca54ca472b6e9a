"""sidekiq: a Rails shop's background jobs on Sidekiq with 20 threads.

Starts a redis-server of its own and Sidekiq under the allocator of our environment, queues seeded jobs, waits
until all have ended, then while Sidekiq idles, stops it. Measure only the server:
  snug compare --only snug-bench-sidekiq -- bench/workloads/sidekiq/drive
"""

import json
import random
import sys
import time
from pathlib import Path

from ..harness import jobs, memory, metrics, options, redis, session
from ..shop import database

HERE = Path(__file__).resolve().parent
SHOP = HERE.parent / "shop"


SIDEKIQ = "/usr/bin/sidekiq"
CACHE_MB = 8
MIX = {"StatementJob": 30, "SyncJob": 25, "PhotoJob": 20, "StockJob": 15, "ExportJob": 10}


def parse_arguments():
    parser = options.parser("sidekiq", __doc__, "jobs", full_count=2000, quick_count=400)
    parser.add_argument("--threads", type=options.positive, default=20, metavar="N", help="threads of Sidekiq (20)")
    return options.parse(parser)


def start_server(run, arguments, client, redis_socket):
    database.create(run.directory / "shop.sqlite3", arguments.seed)
    run.start_server(
        [SIDEKIQ, "-g", "snug-bench-sidekiq", "-c", arguments.threads, "-e", "production", "-r", HERE / "jobs.rb"],
        SHOP_DIRECTORY=run.directory, BENCH_REDIS_SOCKET=redis_socket, SHOP_CACHE_MB=CACHE_MB, RAILS_ENV="production",
        SHOP_HOOKS=int(arguments.hooks == options.OURS), **options.hook_variables(arguments))
    run.wait_until(lambda: client.command("SCARD", "processes") > 0, "starting Sidekiq")


def queue_jobs(client, arguments, burst):
    """Puts the jobs of one burst into redis, in the form in which Sidekiq's own client does."""
    rng = random.Random(arguments.seed * 1_000_003 + burst)
    now = time.time()
    payloads = []
    for number in range(arguments.count):
        kind = rng.choices(list(MIX), MIX.values())[0]
        payloads.append(json.dumps({
            "class": kind, "args": [rng.randrange(1 << 30)], "jid": f"{burst:08x}{number:016x}",
            "queue": "default", "retry": False, "created_at": now, "enqueued_at": now}))
    client.pipeline([("SADD", "queues", "default"), *(("LPUSH", "queue:default", text) for text in payloads)])


def require():
    """Fails if something is missing that a run needs."""
    for program in (SIDEKIQ, redis.REDIS_SERVER):
        session.require_program(program)
    session.require_ruby(*database.LIBRARIES)


def drive(run, arguments):
    session.require_program(SIDEKIQ)
    client, redis_socket = redis.start(run)
    start_server(run, arguments, client, redis_socket)
    run.note_server_processes()
    jobs_per_s, durations_ms, errors = jobs.run_bursts(
        run, client, arguments, lambda burst: queue_jobs(client, arguments, burst))
    idle = memory.idle_metrics(run.server.popen.pid)
    errors += run.count_lost_processes() + run.stop_server()
    return {"jobs_per_s": jobs_per_s, **metrics.latencies(durations_ms), **idle, "errors": errors}


if __name__ == "__main__":
    parsed = parse_arguments()
    sys.exit(session.run("sidekiq", lambda run: drive(run, parsed)))
