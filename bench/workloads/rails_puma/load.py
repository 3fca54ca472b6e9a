"""The clients of the shop: a seeded list of requests over keep-alive connections, every answer checked.

Run by drive as a process of its own; prints one JSON object with the duration of each request and the errors.
"""

import argparse
import http.client
import json
import random
import socket
import sys
import threading
import time

from ..shop import database

MIX = {"list": 24, "product": 18, "photo": 16, "orders": 18, "search": 10, "dashboard": 8, "month": 7, "import": 5,
       "year": 1}
ERRORS_SHOWN = 5
REQUEST_TIMEOUT_SECONDS = 120


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=REQUEST_TIMEOUT_SECONDS)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Request:
    """One request; what it asks for depends on the seed and its number alone."""

    def __init__(self, seed, number):
        rng = random.Random(seed * 1_000_003 + number)
        self.kind = rng.choices(list(MIX), MIX.values())[0]
        self.method, self.body, self.rows = "GET", None, 0
        self.path = getattr(self, f"_{self.kind}")(rng)

    def _list(self, rng):
        return f"/products?page={rng.randrange(database.PRODUCTS // 60)}"

    def _product(self, rng):
        return f"/products/{rng.randint(1, database.PRODUCTS)}"

    def _photo(self, rng):
        return f"/products/{rng.randint(1, database.PRODUCTS)}/photo"

    def _orders(self, rng):
        return f"/customers/{rng.randint(1, database.CUSTOMERS)}/orders"

    def _search(self, rng):
        return f"/search?q={rng.choice(database.WORDS)}"

    def _dashboard(self, rng):
        return f"/dashboard?month={rng.randrange(database.MONTHS)}"

    def _month(self, rng):
        return f"/reports/sales?month={rng.randrange(database.MONTHS)}"

    def _year(self, rng):
        return f"/reports/sales?month=0&months={database.MONTHS - rng.randrange(4)}"

    def _import(self, rng):
        self.method = "POST"
        self.rows = rng.randint(50, 400)
        lines = ["sku,name,quantity,price_cents,remark"]
        lines += [f"SK-{rng.randrange(10**6):06},{database.sentence(rng, 3)},{rng.randint(0, 99)},"
                  f"{rng.randint(1, 9999)},{database.sentence(rng, rng.randint(1, 15))}" for _ in range(self.rows)]
        self.body = "\n".join(lines) + "\n"
        return "/imports"

    def check(self, answer, body):
        """Returns what is wrong with the answer, or None."""
        expected_status = 201 if self.kind == "import" else 200
        if answer.status != expected_status:
            return f"status {answer.status}"
        if self.kind in ("list", "product", "dashboard"):
            return None if body.rstrip().endswith(b"</html>") else "the page is not complete"
        if self.kind in ("month", "year"):
            rows = int(answer.getheader("X-Rows", "-1"))
            return None if body.count(b"\n") == rows + 1 else f"expected {rows} rows"
        if self.kind == "photo":
            return None if len(body) >= 4096 else "the photo is not complete"
        content = json.loads(body)
        if self.kind == "import":
            return None if content == {"inserted": self.rows, "refused": 0} else f"imported {content}"
        return None if content.get("orders" if self.kind == "orders" else "products") is not None else "no list"


class Load:
    """Several clients that share one list of requests."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.lock = threading.Lock()
        self.next_number = arguments.first
        self.durations_ms = []
        self.errors = 0

    def run(self):
        clients = [threading.Thread(target=self._client) for _ in range(self.arguments.concurrency)]
        started = time.monotonic()
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return {"seconds": time.monotonic() - started, "durations_ms": self.durations_ms, "errors": self.errors}

    def _client(self):
        connection = UnixConnection(self.arguments.socket)
        while (number := self._take_number()) is not None:
            request = Request(self.arguments.seed, number)
            started = time.monotonic()
            problem = self._ask(connection, request)
            duration_ms = (time.monotonic() - started) * 1000
            with self.lock:
                self.durations_ms.append(duration_ms)
                if problem:
                    self._note(number, request, problem)
        connection.close()

    def _take_number(self):
        with self.lock:
            if self.next_number >= self.arguments.first + self.arguments.requests:
                return None
            self.next_number += 1
            return self.next_number - 1

    def _ask(self, connection, request):
        try:
            connection.request(request.method, request.path, request.body, {"Content-Type": "text/csv"})
            answer = connection.getresponse()
            return request.check(answer, answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            return f"{type(error).__name__}: {error}"

    def _note(self, number, request, problem):
        self.errors += 1
        if self.errors <= ERRORS_SHOWN:
            print(f"request {number}, {request.method} {request.path}: {problem}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Sends seeded requests to the shop.")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--result", required=True, help="file for the result, JSON")
    arguments = parser.parse_args()
    result = Load(arguments).run()
    with open(arguments.result, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
