"""What an allocator costs programs that do little: small web servers with a few requests per second, or, with --bursts,
a program that uses memory in bursts and pauses. All allocators run at once and under the same load, so that what else
the machine does is the same for all; compare page faults and CPU time between the rows of one table.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .workloads.harness import memory

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "deploy/monitoring/tests/fleet/server.rb"
BURSTS = ROOT / "bench/bursts.c"
LIBRARIES = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
ALLOCATORS = {
    "glibc": "",
    "jemalloc": str(LIBRARIES / "libjemalloc.so.2"),
    "tcmalloc": str(LIBRARIES / "libtcmalloc_minimal.so.4"),
    "mimalloc": str(LIBRARIES / ("libmimalloc.so.3" if (LIBRARIES / "libmimalloc.so.3").exists() else "libmimalloc.so.2")),
    "snug": str(ROOT / "build/libsnug.so"),
}
VARIABLES = ("LD_PRELOAD", "SNUG", "MALLOC_CONF", "MALLOC_ARENA_MAX")
CONNECTIONS = 6
PAUSE_S = 0.5  # of each connection between an answer and the next request, in the mean
PAGES = 1_000_000
START_S = 60
# megabytes, smallest and largest block, how many bursts, pause in ms
SHAPES = tuple((megabytes, *blocks, 24, 600) for megabytes in (3, 8, 20, 50) for blocks in ((2_000, 62_000), (64, 1_564))
               ) + ((5, 64, 1_564, 60, 100), (5, 2_000, 62_000, 60, 100))
READ_S = 0.05


def environment_of(spelling):
    """The environment for an allocator: a name or a library, then :VARIABLE=VALUE as often as needed."""
    name, *settings = spelling.split(":", 1)
    library = ALLOCATORS.get(name, name)
    if library and not Path(library).is_file():
        raise SystemExit(f"small_servers: there is no {library}; names are {', '.join(ALLOCATORS)}")
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    if library:
        environment["LD_PRELOAD"] = library
    for setting in settings:
        variable, equals, value = setting.partition("=")
        if not equals:
            raise SystemExit(f"small_servers: {spelling} needs NAME:VARIABLE=VALUE")
        environment[variable] = value
    return environment


def faults_and_times(pid):
    """Page faults, user and system time in s, of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(words[7]), int(words[11]) / tick, int(words[12]) / tick


class Server:
    """One server, and the load on it."""

    def __init__(self, spelling, number, folder):
        self.spelling, self.number, self.answered = spelling, number, 0
        self.socket = Path(folder) / f"{abs(hash(spelling))}-{number}"
        command = ["setpriv", "--pdeathsig", "KILL", "ruby", "--disable-gems", str(SERVER), spelling, str(self.socket)]
        self.process = subprocess.Popen(command, env=environment_of(spelling))

    async def wait(self):
        for _ in range(START_S * 10):
            if self.socket.exists():
                return
            await asyncio.sleep(0.1)
        raise SystemExit(f"small_servers: the server under {self.spelling} did not start")

    async def client(self, number, stop):
        """One connection, which asks for the same pages under each allocator."""
        chance = random.Random(f"7 {self.number} {number}")
        reader, writer = await asyncio.open_unix_connection(self.socket)
        while not stop.is_set():
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            writer.write(f"GET /pages/{chance.randrange(PAGES)} HTTP/1.1\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.split(b"Content-Length: ")[1]))
            self.answered += 1
        writer.close()

    def begin(self):
        self.before, self.answered_before, self.readings = faults_and_times(self.process.pid), self.answered, []

    def read(self):
        self.readings.append(memory.rolled_up(self.process.pid, "Pss") / 1e6)

    def result(self):
        """Requests, page faults, user and system time in s, mean PSS in MB since `begin`."""
        now = faults_and_times(self.process.pid)
        return (self.answered - self.answered_before, *(after - before for after, before in zip(now, self.before, strict=True)),
                sum(self.readings) / len(self.readings))


async def measure(arguments, folder, exits):
    """Runs all servers. Returns what each measured."""
    servers = []
    for spelling in arguments.allocators:
        for number in range(arguments.servers):
            servers.append(Server(spelling, number, folder))
            exits.callback(servers[-1].process.kill)
    for server in servers:
        await server.wait()
    stop = asyncio.Event()
    clients = [asyncio.create_task(server.client(number, stop)) for server in servers for number in range(CONNECTIONS)]
    await asyncio.sleep(arguments.warm_up)
    for server in servers:
        server.begin()
    for _ in range(max(1, arguments.seconds)):
        await asyncio.sleep(1)
        for server in servers:
            server.read()
    results = [(server.spelling, server.result()) for server in servers]
    stop.set()
    await asyncio.gather(*clients)
    return results


def table_of(results):
    """Lines, one per allocator: its servers together."""
    yield f"{'':<40} {'requests':>8} {'faults/req':>10} {'user ms':>8} {'system ms':>9} {'CPU ms':>7} {'PSS MB':>7}"
    for spelling in dict.fromkeys(spelling for spelling, _ in results):
        own = [result for other, result in results if other == spelling]
        requests, faults, user_s, system_s, mb = (sum(column) for column in zip(*own, strict=True))
        per = max(requests, 1)
        yield (f"{spelling[-40:]:<40} {requests:>8} {faults / per:>10.1f} {user_s * 1e3 / per:>8.3f} {system_s * 1e3 / per:>9.3f} "
               f"{(user_s + system_s) * 1e3 / per:>7.3f} {mb / len(own):>7.1f}")


def run_bursts(allocators, folder):
    """Prints one table per shape."""
    program = Path(folder) / "bursts"
    subprocess.run(["cc", "-O2", "-fno-builtin-malloc", "-fno-builtin-free", "-o", program, BURSTS], check=True)
    for shape in SHAPES:
        megabytes, smallest, largest, _, pause_ms = shape
        print(f"{megabytes} MB of {smallest} to {largest} bytes every {pause_ms} ms")
        print(f"{'':<40} {'CPU ms':>8} {'faults':>8} {'mean MB':>8} {'MB at the end':>14} {'s until it is back':>19} {'MB then':>8}")
        command = [str(program), *map(str, shape)]
        running = [(spelling, subprocess.Popen(command, env=environment_of(spelling), stdout=subprocess.PIPE, text=True))
                   for spelling in allocators]
        readings = {spelling: [] for spelling in allocators}
        end = time.monotonic() + shape[3] * pause_ms / 1e3
        while time.monotonic() < end:
            time.sleep(READ_S)
            for spelling, process in running:
                if resident := memory.rolled_up(process.pid, "Rss"):
                    readings[spelling].append(resident / 1e6)
        for spelling, process in running:
            output, _ = process.communicate()
            cpu_ms, faults, last_mb, waited_s, left_mb = output.split()
            mean_mb = statistics.mean(readings[spelling][len(readings[spelling]) // 3:])
            print(f"{spelling[-40:]:<40} {cpu_ms:>8} {faults:>8} {mean_mb:>8.1f} {last_mb:>14} {waited_s:>19} {left_mb:>8}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="bench/small_servers", description=__doc__,
                                     epilog="Example: bench/small_servers glibc jemalloc snug snug:SNUG=purge_cpu_percent:0")
    parser.add_argument("allocators", nargs="*", default=list(ALLOCATORS), metavar="ALLOCATOR",
                        help=f"names or libraries, each with :VARIABLE=VALUE if wanted [{' '.join(ALLOCATORS)}]")
    parser.add_argument("--servers", type=int, default=3, help="under each allocator [%(default)s]")
    parser.add_argument("--warm-up", type=int, default=25, metavar="S", help="[%(default)s]")
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="[%(default)s]")
    parser.add_argument("--bursts", action="store_true", help="measure the program that uses memory in bursts instead")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory(prefix="snug-small-"))
        if arguments.bursts:
            run_bursts(arguments.allocators, folder)
        else:
            print(f"{arguments.servers} servers under each of {len(arguments.allocators)} allocators, "
                  f"{arguments.warm_up + arguments.seconds} s", file=sys.stderr)
            print("\n".join(table_of(asyncio.run(measure(arguments, folder, exits)))))


if __name__ == "__main__":
    main()
