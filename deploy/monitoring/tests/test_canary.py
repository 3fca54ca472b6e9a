#!/usr/bin/env python3
"""`snug canary` against a real Prometheus server, with a recorded day of a made-up fleet in it, and the commands of the
guide's page about it.

Needs build/snug (or SNUG_PROGRAM) and Debian's package prometheus. Everything it starts it ends, and its files are in a
directory that it removes.
"""

import json
import math
import random
import subprocess
import time
import unittest
import urllib.parse

import recorded_prometheus
from test_monitoring import PROJECT, SNUG, get

GUIDE = PROJECT / "docs/how-to/canary.md"
HOURS = 4
STEP_S = 120
# Pods of deployments: a canary that holds 15 % less, one that is the same, one that is killed for lack of memory, and one
# under Flagger that holds 30 % more.
DEPLOYMENTS = {"web": 0.85, "same": 1.0, "jobs": 0.85, "flags": 1.3}
CANARY_PODS, BASELINE_PODS = 10, 24


def names(app, number, canary):
    """What pods are called: those of Flagger's as it calls them."""
    if app == "flags":
        return f"flags-{'66c8' if canary else 'primary-5d9f'}-{number:02x}"
    return f"{app}-{'canary-' if canary else ''}{number:02x}"


def recorded(out, end_s):
    """Writes what a kubelet and kube-state-metrics would have recorded, as OpenMetrics."""
    chance = random.Random(20261123)
    times = range(end_s - HOURS * 3600, end_s + 1, STEP_S)
    lines = {name: [] for name in ("container_memory_working_set_bytes", "container_cpu_usage_seconds", "container_start_time_seconds",
                                   "container_oom_events", "kube_pod_labels", "request_seconds")}
    for app, ratio in DEPLOYMENTS.items():
        for number in range(CANARY_PODS + BASELINE_PODS):
            canary = number < CANARY_PODS
            pod = names(app, number, canary)
            labels = f'namespace="shop",pod="{pod}",container="web"'
            level = 4e8 * (ratio if canary else 1) * math.exp(chance.gauss(0, 0.03))
            cpu, requests = 0.0, 0
            for time_s in times:
                day = 1 + 0.3 * math.sin(time_s / 13751)
                memory = level * day * math.exp(chance.gauss(0, 0.03))
                killed = app == "jobs" and canary and time_s > times[100 + number]
                for values, which in ((labels, memory), (f'namespace="shop",pod="{pod}",container=""', memory * 1.01)):
                    lines["container_memory_working_set_bytes"].append(f"container_memory_working_set_bytes{{{values}}} {which:.0f} {time_s}")
                cpu += STEP_S * 0.2 * day * math.exp(chance.gauss(0, 0.05))
                requests += 240
                lines["container_cpu_usage_seconds"].append(f"container_cpu_usage_seconds_total{{{labels}}} {cpu:.3f} {time_s}")
                lines["container_start_time_seconds"].append(f"container_start_time_seconds{{{labels}}} {times[0] - 7000} {time_s}")
                lines["container_oom_events"].append(f"container_oom_events_total{{{labels}}} {int(killed)} {time_s}")
                lines["kube_pod_labels"].append(f'kube_pod_labels{{namespace="shop",pod="{pod}",label_snug_dev_group="{"canary" if canary else "none"}"}} 1 {time_s}')
                for bound, share in (("0.1", 0.9), ("0.5", 1), ("+Inf", 1)):
                    lines["request_seconds"].append(f'request_seconds_bucket{{{labels},le="{bound}"}} {int(requests * share)} {time_s}')
    kinds = {"container_cpu_usage_seconds": "counter", "container_oom_events": "counter", "request_seconds": "histogram"}
    for name, samples in lines.items():
        out.write(f"# TYPE {name} {kinds.get(name, 'gauge')}\n")
        out.write("\n".join(samples) + "\n")
    out.write("# EOF\n")


class Canary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.end_s = int(time.time()) // STEP_S * STEP_S
        cls.url = recorded_prometheus.start(cls, lambda out: recorded(out, cls.end_s))

    def ask(self, *arguments):
        return subprocess.run([SNUG, "canary", "--prometheus", self.url, *arguments], capture_output=True, text=True)

    def ask_json(self, *arguments):
        done = self.ask("--json", *arguments)
        self.assertTrue(done.stdout, done.stderr)
        return done.returncode, json.loads(done.stdout)

    def test_one_word_for_each_deployment(self):
        """Memory of the container alone, not of the pod's own sum beside it."""
        for app, answer, code in (("web", "better", 0), ("same", "no_difference", 0), ("jobs", "worse", 1)):
            with self.subTest(app=app):
                found = self.ask_json("--selector", f'namespace="shop",pod=~"{app}-.*"', "--canary", f'pod=~"{app}-canary-.*"', "--latency", "request_seconds")
                rows = {row["name"]: row for row in found[1]["quantities"]}
                self.assertEqual((found[0], found[1]["answer"]), (code, answer), rows)
                low, high = rows["memory_bytes"]["interval"]
                self.assertTrue(low < DEPLOYMENTS[app] < high and high - low < 0.07, rows["memory_bytes"])
                self.assertEqual((rows["memory_bytes"]["canary_pods"], rows["memory_bytes"]["baseline_pods"]), (CANARY_PODS, BASELINE_PODS))
                self.assertLess(rows["memory_bytes"]["baseline"], 6e8, "the pod's sum counts, too")
                self.assertAlmostEqual(rows["cpu_cores"]["ratio"], 1, delta=0.05)
                self.assertAlmostEqual(rows["latency_s"]["ratio"], 1, delta=0.01)
                self.assertEqual(rows["restarts_per_hour"]["canary"], 0)
                self.assertEqual(rows["oom_kills_per_hour"]["answer"], "worse" if app == "jobs" else "none_happened")

    def test_groups_by_a_label_of_the_pod(self):
        found = self.ask_json("--selector", 'namespace="shop",pod=~"web-.*",container="web"', "--members", "kube_pod_labels",
                              "--canary", 'label_snug_dev_group="canary"')
        memory = found[1]["quantities"][0]
        self.assertEqual((found[1]["answer"], memory["canary_pods"], memory["baseline_pods"]), ("better", CANARY_PODS, BASELINE_PODS))

    def test_a_window_in_many_parts(self):
        """More points than one answer has: the server refuses more than 11,000."""
        found = self.ask_json("--selector", 'namespace="shop",pod=~"web-.*",container="web"', "--canary", 'pod=~"web-canary-.*"', "--step", "5s")
        self.assertEqual((found[0], found[1]["answer"], found[1]["step_s"]), (0, "better", 5))

    def test_what_prometheus_refuses(self):
        done = self.ask("--canary", "pod=~")
        self.assertEqual(done.returncode, 3, done)
        self.assertRegex(done.stderr, "refuses the query: .*parse error")
        done = self.ask("--selector", 'namespace="elsewhere"', "--canary", 'pod=~"web-canary-.*"')
        self.assertEqual(done.returncode, 3, done)
        self.assertIn("no series of the canary", done.stderr)
        done = self.ask("--selector", 'namespace="shop"', "--canary", 'pod=~"web-canary-.*"', "--end", "2020-01-01T00:00:00Z")
        self.assertIn("no series of the canary", done.stderr)

    def test_flaggers_query(self):
        """Above its threshold for the canary that holds more; with canary and primary exchanged far below."""
        template = (PROJECT / "deploy/kubernetes/flagger-metric.yaml").read_text()
        query = template.split("query: |")[1].replace("{{ namespace }}", "shop").replace("{{ target }}", "flags")
        canary, primary = "flags-[0-9a-z]+-[0-9a-z]+", "flags-primary-[0-9a-z]+-[0-9a-z]+"
        exchanged = query.replace(primary, "P").replace(canary, primary).replace("P\"", f"{canary}\"")
        answers = []
        for asked in (query, exchanged):
            answer = json.loads(get(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": asked, "time": self.end_s})))["data"]["result"]
            self.assertEqual(len(answer), 1, answer)
            answers.append(float(answer[0]["value"][1]))
        self.assertTrue(1.15 < answers[0] < 1.3 and 0.65 < answers[1] < 0.77, answers)

    def test_the_commands_of_the_guide(self):
        commands = recorded_prometheus.commands_of(GUIDE, "canary", self.url)
        self.assertGreaterEqual(len(commands), 2)
        for command in commands:
            with self.subTest(command=command):
                done = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done)
                self.assertIn("better", done.stdout)


if __name__ == "__main__":
    unittest.main()
