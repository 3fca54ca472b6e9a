"""Queues the tasks of one burst. Run by drive in the virtual environment: enqueue.py COUNT SEED BURST."""

import random
import sys

from bench_tasks import app, tasks

MIX = {"receive_upload": 30, "render_page": 25, "exchange_json": 20, "index_words": 15, "report_csv": 10}


def main():
    count, seed, burst = (int(argument) for argument in sys.argv[1:])
    rng = random.Random(seed * 1_000_003 + burst)
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for _ in range(count):
            kind = rng.choices(list(MIX), MIX.values())[0]
            tasks[kind].apply_async((rng.randrange(1 << 30),), producer=producer)


if __name__ == "__main__":
    main()
