#!/usr/bin/env python3
"""`snug exporter` as it runs on a node of a cluster: real processes in control groups that are named as a kubelet names them,
and 2,000 processes at once.

Needs build/snug and build/libsnug.so (or SNUG_PROGRAM and SNUG_LIBRARY); control groups need root. Everything it starts it
ends, and its files are in a directory that it removes.
"""

import os
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

from pod_groups import WAITS_S, PodGroups
from test_monitoring import LIBRARY, SLEEPER, SNUG, Exporter, end, start_worker

LIMIT_BYTES = 400 << 20
POD = "web-canary-6d4cf56db6-x2x4z"
MANY = 2000
# What a scrape may cost for each process.
EACH_MS_MOST = 0.5
REPLACED = 100
# Forks children that sleep, as many as there are to be; at SIGUSR1 it replaces some of them. It works for some ticks
# first: of a process that did less, cached, dirty and metadata bytes are left out until it has been counted.
MANY_SLEEPERS = f"""
import ctypes, os, signal, time
for _ in range(5):
    blocks = [bytes(5_000) for _ in range(1_000)]
    time.sleep(0.15)
children = []
def fill():
    while len(children) < {MANY - 1}:
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, 9)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            while True:
                signal.pause()
        children.append(child)
    print("forked", flush=True)
def replace(*_):
    for child in children[:{REPLACED}]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    del children[:{REPLACED}]
    fill()
signal.signal(signal.SIGUSR1, replace)
fill()
while True:
    signal.pause()
"""


def series(text, name):
    """The labels and the value of each series of a metric."""
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.M)
    return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.groups = PodGroups()
        except OSError as error:
            raise unittest.SkipTest(f"no control group can be made here: {error}") from None
        cls.addClassCleanup(cls.groups.remove)
        cls.host = cls.groups.host
        identifiers = {name: letter * 64 for name, letter in (("web", "a"), ("side-car", "b"), ("exporter", "c"))}
        cls.paths = {}
        for name, identifier in identifiers.items():
            pod = cls.groups.pod(name)
            (pod / cls.groups.limit_file).write_text(str(LIMIT_BYTES))
            cls.paths[name] = cls.groups.container(pod, identifier, None if name == "exporter" else (POD, name))
        # One under snug, one that was to be and is not, both in the container "web"; one of another container.
        cls.workers = [cls.worker("web", "puma: cluster worker 0: 1 [shop]"), cls.worker("web", "shop", preload=False),
                       cls.worker("side-car", "envoy", preload=False)]

    @classmethod
    def worker(cls, container, title, preload=True):
        process = start_worker(title, SLEEPER, preload)
        cls.addClassCleanup(end, process)
        (cls.paths[container] / "cgroup.procs").write_text(str(process.pid))
        return process

    def exported(self, *before):
        """What is exported of the workers, once there are all of them, by an exporter that is started by `before`."""
        pids = [word for worker in self.workers for word in ("--pid", str(worker.pid))]
        deadline = time.monotonic() + WAITS_S
        while True:
            done = subprocess.run([*before, SNUG, "exporter", "--once", "--host", str(self.host), *pids], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done)
            # A process has its name before it has its libraries.
            if sorted(labels.get("allocator", "") for labels, _ in series(done.stdout, "snug_process_resident_bytes")) == ["glibc", "glibc", "snug"]:
                return done.stdout
            self.assertLess(time.monotonic(), deadline, done.stdout)
            time.sleep(0.1)

    def check(self, text):
        of_web = {"namespace": "shop", "pod": POD, "container": "web"}
        found = {labels["role"]: labels for labels, _ in series(text, "snug_process_resident_bytes")}
        self.assertEqual(found["puma worker"], {**of_web, "allocator": "snug", "group": "canary", "app": "web-canary", "role": "puma worker", "worker": "0"})
        self.assertEqual(found["shop"], {**of_web, "allocator": "glibc", "group": "canary", "app": "web-canary", "role": "shop", "worker": ""})
        self.assertEqual((found["envoy"]["container"], found["envoy"]["group"]), ("side-car", "baseline"))
        limits = {labels["container"]: value for labels, value in series(text, "snug_cgroup_memory_limit_bytes")}
        # The pod has the limit, and a little of its own that counts against it: so much may the container become.
        self.assertEqual(set(limits), {"web", "side-car"})
        for value in limits.values():
            self.assertTrue(LIMIT_BYTES - 4e6 < value <= LIMIT_BYTES, limits)
        used = {labels["container"]: value for labels, value in series(text, "snug_cgroup_memory_bytes")}
        self.assertEqual(set(used), {"web", "side-car"})
        own = {labels["pod"] for labels, _ in series(text, "snug_cgroup_memory_bytes")}
        self.assertEqual(own, {POD})

    def test_processes_have_the_labels_of_their_pods(self):
        self.check(self.exported())

    def test_from_a_control_group_namespace_of_its_own(self):
        """There all paths begin with /.., and its own group is the root."""
        inside = f'echo $$ >"{self.paths["exporter"]}/cgroup.procs" && exec unshare --cgroup "$@"'
        self.check(self.exported("sh", "-c", inside, "sh"))

    def test_without_the_hosts_files_no_memory_is_taken_for_another(self):
        (self.host / "empty").mkdir()
        inside = f'echo $$ >"{self.paths["exporter"]}/cgroup.procs" && exec unshare --cgroup "$@"'
        done = subprocess.run(["sh", "-c", inside, "sh", SNUG, "exporter", "--once", "--host", str(self.host / "empty"), "--pid", str(self.workers[0].pid)],
                              capture_output=True, text=True, check=True)
        self.assertEqual(series(done.stdout, "snug_cgroup_memory_bytes"), [])
        containers = {labels.get("container") for labels, _ in series(done.stdout, "snug_process_resident_bytes")}
        self.assertEqual(containers, {"a" * 12}, "without a name it is the begin of the identifier")


class Many(unittest.TestCase):
    def setUp(self):
        environment = {**os.environ, "LD_PRELOAD": LIBRARY}
        environment.pop("SNUG", None)
        self.process = subprocess.Popen([sys.executable, "-c", MANY_SLEEPERS], env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(end, self.process)
        self.assertEqual(self.process.stdout.readline(), "forked\n")

    def scrape(self, get_text, count):
        """Scrapes until all processes are there."""
        deadline = time.monotonic() + WAITS_S
        while True:
            text = get_text()
            if len(series(text, "snug_heap_live_bytes")) == count:
                return text
            self.assertLess(time.monotonic(), deadline, f"{len(series(text, 'snug_heap_live_bytes'))} of {count} processes")
            time.sleep(0.5)

    def test_series_and_cost_are_bounded(self):
        exporter = Exporter("--pid", str(self.process.pid), "--max-processes", str(MANY), "--cache", "0")
        self.addCleanup(exporter.end)

        def metrics():
            # The first scrape looks into every process, which takes seconds of a busy machine.
            with urllib.request.urlopen(f"http://{exporter.address}/metrics", timeout=WAITS_S) as answer:
                return answer.read().decode()

        def names(text):
            return sorted(re.findall(r"^(\w+\{.*\}) ", text, re.M))

        def cpu_s(text):
            return series(text, "snug_exporter_cpu_seconds_total")[0][1]

        before = names(self.scrape(metrics, MANY))
        first = cpu_s(metrics())
        each_ms = (cpu_s(metrics()) - first) * 1000 / MANY
        # Some are replaced: there are the same series, not others.
        self.process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.process.stdout.readline(), "forked\n")
        after = names(self.scrape(metrics, MANY))
        self.assertEqual(set(after), set(before))
        self.assertEqual(len(set(after)), len(after))
        print(f"\n  {MANY} processes: {len(after)} series; a scrape takes {each_ms * MANY:.0f} ms of CPU time, {each_ms:.3f} ms each", file=sys.stderr)
        self.assertLess(each_ms, EACH_MS_MOST)
        self.assertLess(len(after) / MANY, 35)
        few = subprocess.run([SNUG, "exporter", "--once", "--pid", str(self.process.pid)], capture_output=True, text=True, check=True).stdout
        self.assertEqual(len(series(few, "snug_process_pid")), 200)
        self.assertEqual(series(few, "snug_exporter_processes_left_out"), [({}, MANY - 200)])


if __name__ == "__main__":
    unittest.main()
