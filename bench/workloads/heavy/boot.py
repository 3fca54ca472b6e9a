"""What a large application of Python's loads before it forks, as far as it is installed, and keeps at hand. With
BENCH_HEAVY=0 there is none of it. With BENCH_BY_HAND=1 it does before the fork what people do by hand, see by_hand().
"""

import gc
import importlib
import os
import random

WORDS = ("anchor basin canal dock estuary ferry gale harbour inlet jetty keel lagoon mast narrows oar pier quay "
         "reef sail tide vessel wharf yacht").split()
MODULES = ("numpy", "pandas", "sqlalchemy.orm", "django.db.models", "rest_framework.settings", "boto3", "pydantic", "asyncio", "http.server",
           "unittest.mock", "xml.dom.minidom", "email.mime.text", "sqlite3", "decimal", "multiprocessing.pool", "concurrent.futures")
table = []


def sentence(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


def load():
    if os.environ.get("BENCH_HEAVY", "0") == "0":
        return
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    rng = random.Random(1)
    table.extend({"id": number + 1000, "name": f"row {number}", "price": number * 1.5, "tags": [sentence(rng, 2), sentence(rng, 2)],
                  "place": {"row": number + 5000, "column": f"column {number}"}} for number in range(40_000))


def look_up(rng):
    """Some rows of the table, as a task that needs them does."""
    return sum(row["price"] + row["place"]["row"] + len(row["tags"][0]) for row in rng.choices(table, k=4000)) if table else 0


def by_hand(**_):
    """To be called when all is loaded."""
    if os.environ.get("BENCH_BY_HAND"):
        gc.collect()
        gc.freeze()
