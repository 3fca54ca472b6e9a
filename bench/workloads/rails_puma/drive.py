"""rails_puma: a Rails application on Puma under seeded load.

Creates the database, starts Puma under the allocator of our environment, sends the requests, waits while the
server idles, stops it. Measure only the server:
  snug compare --only snug-bench-rails -- bench/workloads/rails_puma/drive
"""

import json
import sys
import time
from pathlib import Path

from ..harness import memory, metrics, options, session
from ..shop import database

HERE = Path(__file__).resolve().parent


SHOP = HERE.parent / "shop"
PUMA = "/usr/bin/puma"
CLUSTER_WORKERS = 3


def parse_arguments():
    parser = options.parser("rails_puma", __doc__, "requests", full_count=1500, quick_count=250)
    parser.add_argument("--cluster", action="store_true", help=f"{CLUSTER_WORKERS} forked workers, preload_app")
    parser.add_argument("--workers", type=options.positive, metavar="N", help="another number of them; implies --cluster")
    parser.add_argument("--concurrency", type=options.positive, metavar="N", help="clients at once (8; cluster: 20)")
    arguments = options.parse(parser)
    if arguments.workers is None:
        arguments.workers = CLUSTER_WORKERS if arguments.cluster else 0
    if arguments.concurrency is None:
        arguments.concurrency = 20 if arguments.workers else 8
    return arguments


def start_server(run, arguments):
    database.create(run.directory / "shop.sqlite3", arguments.seed)
    workers = arguments.workers
    server = run.start_server(
        [PUMA, "-C", SHOP / "config/puma.rb", "--tag", "snug-bench-rails", SHOP / "config.ru"],
        SHOP_DIRECTORY=run.directory, SHOP_WORKERS=workers, SHOP_HOOKS=int(arguments.hooks == options.OURS), **options.hook_variables(arguments), RAILS_ENV="production", RACK_ENV="production")
    sign, times = (") booted", workers) if workers else ("Use Ctrl-C to stop", 1)
    run.wait_until(lambda: server.log_path.read_text().count(sign) >= times, "starting Puma", 180)


def send_load(run, arguments, burst):
    """Returns the result of one burst, as load.py writes it."""
    result_path = run.directory / f"load-{burst}.json"
    client = run.start_helper("load", [
        sys.executable, "-B", "-m", "bench.workloads.rails_puma.load", "--socket", run.directory / "puma.sock", "--seed", arguments.seed,
        "--requests", arguments.count, "--first", burst * arguments.count,
        "--concurrency", arguments.concurrency, "--result", result_path])
    run.wait_for_helper(client, timeout_seconds=1800)
    sys.stderr.write(client.log_path.read_text())
    return json.loads(result_path.read_text())


def require():
    """Fails if something is missing that a run needs."""
    session.require_program(PUMA)
    session.require_ruby(*database.LIBRARIES)


def drive(run, arguments):
    session.require_program(PUMA)
    start_server(run, arguments)
    run.note_server_processes()
    bursts, watch = [], memory.Watch(run.server.popen.pid)
    for burst in range(arguments.bursts):
        with watch:
            bursts.append(send_load(run, arguments, burst))
        time.sleep(arguments.idle_seconds)
        run.check_running()
    idle = memory.idle_metrics(run.server.popen.pid)
    errors = sum(result["errors"] for result in bursts) + run.count_lost_processes() + run.stop_server()
    durations_ms = [duration for result in bursts for duration in result["durations_ms"]]
    return {
        "requests_per_s": len(durations_ms) / sum(result["seconds"] for result in bursts),
        **metrics.latencies(durations_ms), **watch.metrics(), **idle, "errors": errors,
    }


if __name__ == "__main__":
    parsed = parse_arguments()
    sys.exit(session.run("rails_puma", lambda run: drive(run, parsed)))
