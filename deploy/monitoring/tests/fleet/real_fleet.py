"""Real web servers as the pods of a fleet, under load, exported by a real exporter and scraped by a real Prometheus.

The load and the readings of /proc run in threads of the test; all else are processes, which end with it.
"""

import asyncio
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from pod_groups import NAMESPACE, WAITS_S, PodGroups
from test_monitoring import LIBRARY, SNUG, Exporter, Prometheus, end

SERVER = pathlib.Path(__file__).with_name("server.rb")
SCRAPE_EVERY_S = 5
CONNECTIONS = 6
# Of each connection, between an answer and the next request, in the mean.
PAUSE_S = 0.5
PAGES = 1_000_000
CONTAINER = "web"


def proportional_bytes(pid):
    """PSS of a process."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no PSS of {pid}")


def cpu_time_s(pid):
    """User and system time of a process so far."""
    numbers = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


class RealFleet:
    """Pods that run from `start` to `stop`."""

    def __init__(self, pods, seed):
        """`pods`: by name, whether it runs under snug. `seed`: of the load."""
        self.pods, self.seed = pods, seed
        self.pids, self.answered = {}, dict.fromkeys(pods, 0)
        # Unix time, and by the name of the pod PSS and CPU time.
        self.readings = []
        self._errors = []
        self._stopping = threading.Event()
        self._exits = contextlib.ExitStack()

    def start(self):
        """Starts everything, and returns when every pod is in Prometheus."""
        self.folder = pathlib.Path(self._exits.enter_context(tempfile.TemporaryDirectory(prefix="snug-fleet-")))
        try:
            self.groups = PodGroups()
            self._exits.callback(self.groups.remove)
        except OSError as error:
            print(f"  no control groups ({error}): processes are told apart by their roles", file=sys.stderr)
            self.groups = None
        for number, name in enumerate(self.pods):
            self._start_pod(number, name)
        for name in self.pods:
            self._wait(lambda name=name: (self.folder / name).exists(), f"{name} listens")
        which = ["--cgroup", str(self.groups.top), "--host", str(self.groups.host)] if self.groups else self._by_role()
        exporter = Exporter("--cache", "1s", *which)
        self._exits.callback(exporter.end)
        self.prometheus = Prometheus(self.folder, "", f"""
global: {{scrape_interval: {SCRAPE_EVERY_S}s, scrape_timeout: {SCRAPE_EVERY_S}s}}
scrape_configs:
  - job_name: snug
    static_configs: [{{targets: ["{exporter.address}"]}}]
""")
        self._exits.callback(self.prometheus.end)
        for work in (self._read_memory, lambda: asyncio.run(self._load())):
            thread = threading.Thread(target=self._note_errors, args=(work,))
            thread.start()
            self._exits.callback(thread.join)
            self._exits.callback(self._stopping.set)
        self.prometheus.wait_for(f"count(snug_process_proportional_bytes{{{self.selector}}}) == {len(self.pods)}")
        return self

    def stop(self):
        """Ends everything that was started."""
        self._exits.close()

    @property
    def unit(self):
        """The labels that tell pods apart."""
        return "namespace,pod" if self.groups else "role"

    @property
    def selector(self):
        """Label matchers for all pods."""
        return f'namespace="{NAMESPACE}",container="{CONTAINER}"' if self.groups else 'role=~"web-.*"'

    def some(self, names):
        """Label matchers for these pods."""
        return f'{"pod" if self.groups else "role"}=~"{"|".join(names)}"'

    def run_for(self, seconds):
        """Lets the load run. AssertionError: something of the fleet failed."""
        self._stopping.wait(seconds)
        assert not self._errors, self._errors

    def from_proc(self, names, from_s, to_s):
        """What /proc said of these pods in that time: the mean of the PSS of each, in bytes, and the CPU time of each, in s."""
        inside = [levels for time_s, levels in self.readings if from_s <= time_s <= to_s]
        return ([sum(levels[name][0] for levels in inside) / len(inside) for name in names],
                [inside[-1][name][1] - inside[0][name][1] for name in names])

    def _start_pod(self, number, name):
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "SNUG")}
        if self.pods[name]:
            environment["LD_PRELOAD"] = LIBRARY
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "ruby", "--disable-gems", str(SERVER), name, str(self.folder / name)], env=environment)
        self._exits.callback(end, process)
        self.pids[name] = process.pid
        if self.groups:
            group = self.groups.container(self.groups.pod(name), f"{number:064x}", (name, CONTAINER))
            (group / "cgroup.procs").write_text(str(process.pid))

    def _by_role(self):
        return ["--pid", str(os.getpid()), "--role", r"server\.rb (\S+)=$1"]

    def _wait(self, condition, what):
        deadline = time.monotonic() + WAITS_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {WAITS_S} s: {what}"
            time.sleep(0.1)

    def _note_errors(self, work):
        try:
            work()
        except Exception as error:
            self._errors.append(repr(error))
            self._stopping.set()

    def _read_memory(self):
        while not self._stopping.wait(SCRAPE_EVERY_S):
            self.readings.append((time.time(), {name: (proportional_bytes(pid), cpu_time_s(pid)) for name, pid in self.pids.items()}))

    async def _load(self):
        clients = [self._client(name, f"{self.seed} {name} {number}") for name in self.pods for number in range(CONNECTIONS)]
        await asyncio.gather(*clients)

    async def _client(self, name, seed):
        """One connection, which asks for pages at random until the fleet stops."""
        chance = random.Random(seed)
        reader, writer = await asyncio.open_unix_connection(self.folder / name)
        while not self._stopping.is_set():
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            writer.write(f"GET /pages/{chance.randrange(PAGES)} HTTP/1.1\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            await reader.readexactly(int(head.split(b"Content-Length: ")[1]))
            self.answered[name] += 1
        writer.close()


def ask(fleet, *arguments):
    """What `snug canary` says of a fleet, without waiting. Returns the finished process, its output as text."""
    return subprocess.run(
        [SNUG, "canary", "--prometheus", f"http://127.0.0.1:{fleet.prometheus.port}", "--selector", fleet.selector, "--unit", fleet.unit,
         "--memory", "snug_process_proportional_bytes", "--cpu", "snug_process_cpu_seconds_total",
         "--start-time", "snug_process_start_time_seconds", *arguments], capture_output=True, text=True)
