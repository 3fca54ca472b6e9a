#!/usr/bin/env python3
"""`snug fleet` against a real Prometheus server, with a recorded day of a made-up fleet in it, the commands of the guide's page
about it, and how often what it says is true.

Needs build/snug (or SNUG_PROGRAM), Debian's packages prometheus and openssl. Everything it starts it ends, and its files are
in directories that it removes.
"""

import json
import math
import pathlib
import random
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
import unittest

import recorded_prometheus
from test_monitoring import PROJECT, SNUG

GUIDE = PROJECT / "docs/how-to/fleet.md"
STEP_S = 900
MIB = 1 << 20
SPREAD = 0.08
# Of each Deployment: memory under snug by that of others, pods under snug, other pods, the request in MiB.
DEPLOYMENTS = {"web": (0.75, 12, 28, 768), "jobs": (1.0, 0, 8, 1024), "mail": (0.8, 3, 9, 512)}
LEVEL_BYTES = 400 * MIB
LIMIT_BYTES = 1024 * MIB
NODE_BYTES = 4096 * MIB
# Fleets of which is asked how often a bound is above what it is to be above.
TRIALS, TRIAL_PODS = 80, 8


def recorded(out, end_s, trials=TRIALS):
    chance = random.Random(20261126)
    times = range(end_s - 86400, end_s + 1, STEP_S)
    memory, limits, requests, labels = [], [], [], []

    def pod(namespace, name, level, request, group):
        own = {"namespace": namespace, "pod": name, "container": "app"}
        day = [(time_s, int(level * (0.8 + 0.2 * math.sin((time_s - times[0]) / 86400 * 6.283)))) for time_s in times]
        memory.append((own, day))
        memory.append(({**own, "container": ""}, [(time_s, value + MIB) for time_s, value in day]))
        limits.append((own, [(time_s, LIMIT_BYTES if namespace == "shop" else 0) for time_s in times]))
        labels.append(({"namespace": namespace, "pod": name, "label_snug_dev_group": group}, [(time_s, 1) for time_s in times]))
        if request:
            requests.append(({**own, "resource": "memory"}, [(time_s, request * MIB) for time_s in times]))
            requests.append(({**own, "resource": "cpu"}, [(time_s, 2) for time_s in times]))

    for app, (ratio, canaries, others, request) in DEPLOYMENTS.items():
        for number in range(canaries + others):
            name = f"{app}-canary-{number}" if number < canaries else f"{app}-{number}"
            level = LEVEL_BYTES * (ratio if number < canaries else 1) * math.exp(chance.gauss(0, SPREAD))
            pod("shop", name, level, request, "canary" if number < canaries else "none")
    for trial in range(trials):
        for number in range(TRIAL_PODS):
            pod(f"trial{trial}", f"app-canary-{number}", LEVEL_BYTES * math.exp(chance.gauss(0, SPREAD)), None, "canary")
    nodes = [({"node": f"node{number}", "resource": "memory"}, [(time_s, NODE_BYTES) for time_s in times]) for number in range(3)]
    recorded_prometheus.write_families(out, {
        "container_memory_working_set_bytes": ("gauge", memory), "container_spec_memory_limit_bytes": ("gauge", limits),
        "kube_pod_container_resource_requests": ("gauge", requests), "kube_pod_labels": ("gauge", labels),
        "kube_node_status_allocatable": ("gauge", nodes)})


def certificates(directory):
    """An authority, and a certificate of 127.0.0.1 that it signed: files ca.pem, web.yml for Prometheus."""
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for command in ("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests",
                    "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1",
                    "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem"):
        subprocess.run(["openssl", *shlex.split(command)], cwd=directory, check=True, capture_output=True)
    (directory / "web.yml").write_text(f"tls_server_config: {{cert_file: {directory}/server.pem, key_file: {directory}/server.key}}\n")


class Fleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.end_s = int(time.time()) // STEP_S * STEP_S
        cls.url = recorded_prometheus.start(cls, lambda out: recorded(out, cls.end_s))

    def ask(self, *arguments, url=None):
        # What was recorded ends then; later, Prometheus finds no last value of what it is asked of that moment.
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.end_s))
        return subprocess.run([SNUG, "fleet", "--prometheus", url or self.url, "--end", end, *arguments], capture_output=True, text=True)

    def ask_json(self, *arguments):
        done = self.ask("--json", *arguments)
        self.assertTrue(done.stdout, done)
        return done.returncode, json.loads(done.stdout)

    def test_what_each_container_needs(self):
        code, found = self.ask_json("--selector", 'namespace="shop"', "--canary", 'pod=~".*-canary-.*"')
        self.assertEqual(code, 0)
        rows = {row["workload"]: row for row in found["containers"]}
        self.assertEqual(set(rows), set(DEPLOYMENTS))
        web = rows["web"]
        self.assertEqual((web["pods"], web["canary_pods"], web["container"]), (40, 12, "app"))
        self.assertEqual((web["limit_bytes"], web["request_bytes"]), (LIMIT_BYTES, 768 * MIB))
        # 999 of 1000 pods are below so much, 9 of 10 below so much.
        normal = statistics.NormalDist(0, SPREAD)
        need = web["under_snug"]
        # One bound in 20 is a little below: test_bounds_hold_as_often_as_they_say.
        self.assertGreater(need["limit_bytes"], 0.95 * 0.75 * LEVEL_BYTES * math.exp(normal.inv_cdf(0.999)))
        self.assertLess(need["limit_bytes"], 2 * 0.75 * LEVEL_BYTES)
        self.assertGreater(need["request_bytes"], 0.95 * 0.75 * LEVEL_BYTES * math.exp(normal.inv_cdf(0.9)) * 0.99)
        self.assertEqual(web["freed_bytes"], 40 * (768 * MIB - need["request_bytes"]))
        self.assertEqual(web["freed_by_snug_bytes"], 40 * (web["today"]["request_bytes"] - need["request_bytes"]))
        self.assertTrue(0 < web["freed_by_snug_bytes"] < web["freed_bytes"])
        self.assertEqual((rows["jobs"]["under_snug_unknown"], rows["mail"]["under_snug_unknown"]), ("no_pods", "too_few_pods"))
        self.assertEqual(found["freed_bytes"], web["freed_bytes"], "nothing is promised for the others")
        self.assertEqual((found["node_bytes"], found["nodes_freed"]), (NODE_BYTES, int(web["freed_bytes"] / NODE_BYTES)))

    def test_groups_by_a_label_of_the_pod(self):
        by_name = self.ask_json("--selector", 'namespace="shop"', "--canary", 'pod=~".*-canary-.*"')[1]
        by_label = self.ask_json("--selector", 'namespace="shop"', "--members", "kube_pod_labels", "--canary", 'label_snug_dev_group="canary"')[1]
        self.assertEqual(by_label["containers"], by_name["containers"])

    def test_bounds_hold_as_often_as_they_say(self):
        """95 % of them: with 80 fleets fewer than 70 would be chance once in 500."""
        found = self.ask_json("--selector", 'namespace=~"trial.*"', "--canary", 'pod=~".*"')[1]
        normal = statistics.NormalDist(0, SPREAD)
        limit = LEVEL_BYTES * math.exp(normal.inv_cdf(0.999))
        held = sum(row["under_snug"]["limit_bytes"] >= limit for row in found["containers"])
        print(f"\n  {held} of {len(found['containers'])} limits hold")
        self.assertEqual(len(found["containers"]), TRIALS)
        self.assertGreaterEqual(held, 70)

    def test_what_is_not_known(self):
        done = self.ask("--selector", 'namespace="shop",container="app",pod=~"jobs-.*"', "--canary", 'pod="none"')
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("shop/jobs/app: no pod of it uses snug", done.stdout)
        done = self.ask("--selector", 'namespace="elsewhere"', "--canary", 'pod=~".*"')
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("no series of these containers", done.stderr)
        self.assertEqual(self.ask("--canary", "{}").returncode, 2)
        self.assertIn("14Gi", self.ask("--canary", "a", "--node-memory", "14GB").stderr)

    def test_the_commands_of_the_guide(self):
        commands = recorded_prometheus.commands_of(GUIDE, "fleet", self.url)
        self.assertGreaterEqual(len(commands), 2)
        for command in commands:
            with self.subTest(command=command):
                done = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done)
                expected = r"^kubectl -n shop patch pod web-" if "--resize" in command else "requests fall by|freed_bytes"
                self.assertRegex(done.stdout, re.compile(expected, re.MULTILINE))


class Https(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="snug-https-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        certificates(cls.directory)
        end_s = int(time.time()) // STEP_S * STEP_S
        cls.url = recorded_prometheus.start(cls, lambda out: recorded(out, end_s, 0), f"--web.config.file={cls.directory}/web.yml")

    def ask(self, *arguments):
        words = ["fleet", "--prometheus", self.url, "--selector", 'namespace="shop"', "--canary", 'pod=~".*-canary-.*"']
        return subprocess.run([SNUG, *words, *arguments], capture_output=True, text=True)

    def test_an_authority_of_ones_own(self):
        deadline = time.monotonic() + recorded_prometheus.STARTS_WITHIN_S
        while (done := self.ask("--ca-file", str(self.directory / "ca.pem"))).returncode == 3 and time.monotonic() < deadline:
            time.sleep(0.2)  # it still starts
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("requests fall by", done.stdout)
        unknown = self.ask()
        self.assertEqual(unknown.returncode, 3, unknown)
        self.assertIn("--ca-file", unknown.stderr)


if __name__ == "__main__":
    unittest.main()
