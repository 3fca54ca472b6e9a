"""The tasks of the Celery workloads: JSON, pages, CSV, growing dicts and lists, uploads, some of it cached.

Runs in the virtual environment; Celery loads it with -A, enqueue.py imports it too. A task's `number` makes
it the same in every run. It keeps to Python's standard library, so that what allocates is CPython itself.
"""

import csv
import functools
import hashlib
import html
import io
import json
import os
import random
import sys
import threading
import time
from collections import OrderedDict

import boot
import redis
from boot import WORDS, look_up, sentence
from celery import Celery, signals

DONE_LIST = "bench:done"
CACHE_LIMIT_BYTES = int(os.environ.get("BENCH_CACHE_MB", "16")) * 1_000_000
REDIS_SOCKET = os.environ["BENCH_REDIS_SOCKET"]

app = Celery("bench", broker=f"redis+socket://{REDIS_SOCKET}")
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_prefetch_multiplier=2)

tasks = {}


class Cache:
    """The latest results, at most CACHE_LIMIT_BYTES of them; each process has its own, threads share it."""

    def __init__(self):
        self._lock = threading.Lock()
        self._entries = OrderedDict()
        self._bytes = 0

    def keep(self, key, value, size_bytes):
        dropped = []
        with self._lock:
            if key in self._entries:
                dropped.append(self._entries.pop(key))
                self._bytes -= dropped[-1][1]
            self._entries[key] = (value, size_bytes, fingerprint(value))
            self._bytes += size_bytes
            while self._bytes > CACHE_LIMIT_BYTES:
                _, entry = self._entries.popitem(last=False)
                self._bytes -= entry[1]
                dropped.append(entry)
        for value, _, expected in dropped:
            expect(fingerprint(value) == expected, "a cached value that changed")


cache = Cache()


@functools.cache
def recorder(_pid):
    """The connection on which this process records the end of tasks."""
    return redis.Redis(unix_socket_path=REDIS_SOCKET)


def task(function):
    """Makes a Celery task that records how long it took and how it ended."""

    @functools.wraps(function)
    def recorded(number):
        started, outcome = time.monotonic(), "ok"
        try:
            look_up(random.Random(number))
            function(random.Random(number))
        except Exception as error:
            outcome = f"{function.__name__}({number}): {type(error).__name__}: {error}"
            raise
        finally:
            duration_ms = (time.monotonic() - started) * 1000
            recorder(os.getpid()).rpush(DONE_LIST, f"{duration_ms:.3f} {outcome}")

    tasks[function.__name__] = app.task(recorded, name=function.__name__)
    return tasks[function.__name__]


def expect(condition, what):
    if not condition:
        raise RuntimeError(f"unexpected: {what}")


def fingerprint(value):
    return hashlib.blake2b(value if isinstance(value, bytes) else repr(value).encode(), digest_size=8).digest()


def wait(rng, longest_ms):
    """Stands for a database or a service that answers when it likes."""
    time.sleep(rng.random() * longest_ms / 1000)


def size_bytes(rng):
    """4 to 500 KB, most of them small."""
    return int(4096 * 120 ** (rng.random() ** 2))


def records(rng, count):
    return [{"id": number, "owner": sentence(rng, 3), "remark": sentence(rng, rng.randint(5, 120)),
             "amount": rng.randrange(10**6), "tags": rng.sample(WORDS, 4)} for number in range(count)]


@task
def render_page(rng):
    parts = [f"<html><title>{sentence(rng, 4)}</title><body>"]
    wanted_bytes, length = size_bytes(rng), 0
    while length < wanted_bytes:
        parts.append(f"<p>{html.escape(sentence(rng, rng.randint(5, 60)))}</p>\n")
        length += len(parts[-1])
    page = "".join(parts) + "</body></html>"
    wait(rng, 20)
    cache.keep(("page", rng.randrange(400)), page.encode(), len(page))


@task
def exchange_json(rng):
    rows = records(rng, rng.randint(20, 1200))
    text = json.dumps(rows)
    wait(rng, 30)
    answer = json.loads(text)
    expect(answer == rows, "JSON that came back different")
    for row in answer:
        row["words"] = row["remark"].split()
    if rng.random() < 0.4:
        cache.keep(("answer", rng.randrange(40)), answer[:100], 100 * 2500)


@task
def report_csv(rng):
    rows = records(rng, rng.randint(100, 3000) if rng.random() < 0.9 else 15_000)
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    text = file.getvalue()
    wait(rng, 20)
    total = sum(int(row["amount"]) for row in csv.DictReader(io.StringIO(text)))
    expect(total == sum(row["amount"] for row in rows), "a report with another total")
    if len(text) < 500_000:
        cache.keep(("report", rng.randrange(60)), text.encode(), len(text))


@task
def index_words(rng):
    positions = {}
    for position in range(rng.randint(2000, 30_000)):
        key = f"{rng.choice(WORDS)}-{rng.randrange(400)}"
        positions.setdefault(key, []).append(position)
    wait(rng, 10)
    longest = sorted(positions, key=lambda key: len(positions[key]))[-50:]
    cache.keep(("index", rng.randrange(200)), {key: positions[key] for key in longest}, 50 * 800)


@task
def receive_upload(rng):
    wanted_bytes = size_bytes(rng)
    buffer, digest = bytearray(), hashlib.sha1()
    while len(buffer) < wanted_bytes:
        chunk = rng.randbytes(rng.choice((4096, 16_384)))
        buffer += chunk
        digest.update(chunk)
        if rng.random() < 0.1:
            wait(rng, 5)
    data = bytes(buffer)
    expect(hashlib.sha1(data).digest() == digest.digest(), "an upload that changed")
    cache.keep(("upload", rng.randrange(600)), data, len(data))


if "worker" in sys.argv:
    boot.load()
    signals.worker_init.connect(boot.by_hand)
