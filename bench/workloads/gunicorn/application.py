"""The application of the workload gunicorn: JSON of a large table, of which each worker keeps the latest answers.

A path /N is request N: what it asks for depends on its number alone.
"""

import json
import os
import random
from collections import OrderedDict

import boot

KEPT_BYTES = int(os.environ.get("BENCH_CACHE_MB", "4")) * 1_000_000
kept, kept_bytes = OrderedDict(), 0


def keep(number, body):
    global kept_bytes
    kept[number] = body
    kept_bytes += len(body)
    while kept_bytes > KEPT_BYTES:
        kept_bytes -= len(kept.popitem(last=False)[1])


def application(environ, start_response):
    number = int(environ["PATH_INFO"].strip("/") or 0)
    rng = random.Random(number)
    total = boot.look_up(rng)
    rows = [{"id": row, "name": boot.sentence(rng, 3), "remark": boot.sentence(rng, rng.randint(5, 120))} for row in range(rng.randint(20, 600))]
    body = json.dumps({"number": number, "total": total, "rows": rows, "count": len(rows)}).encode()
    if json.loads(body)["rows"] != rows:
        raise RuntimeError("unexpected: JSON that came back different")
    keep(number, body)
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


boot.load()
boot.by_hand()
