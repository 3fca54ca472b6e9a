import concurrent.futures
import hashlib
import signal
import socket

from catalog import program


@program("memcached", needs={"memcached": "memcached"}, proves=["memcached --version"], watches=["memcached"])
def memcached(test):
    """memcached: clients side by side set, get, append, count and delete; more data than it may keep; its own counts"""
    port = test.free_port()
    server = test.start(["memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "4", "-m", "32", "-c", "200", "-u",
                         "nobody"])
    test.wait_for(lambda: test.accepts(port), "memcached does not listen")
    test.expect_serves(test.pids("memcached"), "memcached")
    rounds = 1500 if test.quick else 20000
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for wrong in pool.map(lambda number: work(port, number, rounds), range(8)):
            test.expect(wrong is None, f"memcached: {wrong}")
    with Client(port) as client:
        stats = dict(line.split(" ", 2)[1:] for line in client.lines("stats"))
    test.expect(int(stats["cmd_set"]) >= 8 * rounds, f"its own count of sets is {stats['cmd_set']}")
    test.expect(test.quick or int(stats["evictions"]) > 0, "nothing was evicted, so its limit was never met")
    test.note(f"{stats['cmd_set']} sets, {stats['evictions']} evictions")
    test.stop(server, signal.SIGINT, statuses=(0,))


class Client:
    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def ask(self, line, data=None):
        self._socket.sendall(line.encode() + b"\r\n" + (b"" if data is None else data + b"\r\n"))
        return self._file.readline().decode().strip()

    def lines(self, line):
        self._socket.sendall(line.encode() + b"\r\n")
        return [text.decode().strip() for text in iter(self._file.readline, b"END\r\n")]

    def get(self, key):
        head = self.ask(f"get {key}")
        if head == "END":
            return None
        value = self._file.read(int(head.split()[3]) + 2)[:-2]
        self._file.readline()
        return value


def work(port, number, rounds):
    """One client. Returns what went wrong, or None."""
    with Client(port) as client:
        client.ask(f"set count{number} 0 0 1", b"0")
        for turn in range(rounds):
            key = f"key{number}.{turn % 500}"
            value = hashlib.sha256(f"{number} {turn}".encode()).hexdigest().encode() * (turn * 37 % 400 + 1)
            if client.ask(f"set {key} 0 0 {len(value)}", value) != "STORED":
                return f"{key} was not stored"
            if client.ask(f"append {key} 0 0 4", b"tail") not in ("STORED", "NOT_STORED"):
                return f"{key} was not appended to"
            got = client.get(key)
            if got not in (None, value + b"tail"):  # None: evicted meanwhile
                return f"{key} came back changed"
            if client.ask(f"incr count{number} 3") not in (str(3 * (turn + 1)), "NOT_FOUND"):
                return f"count{number} is wrong"
            if turn % 5 == 0:
                client.ask(f"delete {key}")
                if client.get(key) is not None:
                    return f"{key} is there after its deletion"
    return None
