#!/usr/bin/env python3
"""The dashboards: that they are what deploy/monitoring/dashboards writes with Grafana's own schemas, and that each panel of the one for
containers has an answer on a real Prometheus server that holds nothing but the metrics of containers.

Needs Debian's package prometheus, and build/monitoring-tools (make build/monitoring-tools/installed). Everything it starts it
ends, and its files are in a directory that it removes.
"""

import json
import re
import subprocess
import time
import unittest
import urllib.parse

import recorded_prometheus
from test_monitoring import MONITORING, PROJECT, get

PYTHON = PROJECT / "build/monitoring-tools/bin/python"
STEP_S = 60
MIB = 1 << 20


def panels(name):
    return [panel for panel in json.loads((MONITORING / name).read_text())["panels"] if panel["type"] != "row"]


class Generated(unittest.TestCase):
    def check(self, folder=MONITORING):
        return subprocess.run([PYTHON, "-B", folder / "dashboards", "--check"], capture_output=True, text=True)

    def test_files_are_what_the_generator_writes(self):
        done = self.check()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_panels_have_places_of_their_own(self):
        for name in ("dashboard.json", "dashboard-containers.json"):
            taken = set()
            for panel in panels(name):
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
                cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(cells & taken, f"{name}: {panel['title']}")
                taken |= cells


class Containers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.end_s = int(time.time()) // STEP_S * STEP_S
        cls.url = recorded_prometheus.start(cls, cls.record)

    @classmethod
    def record(cls, out):
        """What a kubelet of 1.30 serves of three pods, with a pause container and the pod's sum; and, for the last row, labels."""
        times = range(cls.end_s - 7200, cls.end_s + 1, STEP_S)
        names = {name: [] for name in ("container_memory_working_set_bytes", "container_spec_memory_limit_bytes", "container_start_time_seconds",
                                       "container_cpu_usage_seconds", "container_oom_events", "kube_pod_labels")}
        for number in range(3):
            pod = {"namespace": "shop", "pod": f"web-{number}"}
            # Only the first two have a limit.
            for container, limit in (("web", 400 * MIB * (number < 2)), ("POD", 0), ("", 0)):
                labels = {**pod, "container": container, "id": f"/kubepods/{number}/{container}", "image": "web:1"}
                used = {"web": 100 * MIB * (number + 1), "POD": MIB}.get(container, 101 * MIB * (number + 1))
                for name, value in (("container_memory_working_set_bytes", used), ("container_spec_memory_limit_bytes", limit),
                                    ("container_start_time_seconds", times[0] - 1000), ("container_oom_events", 0)):
                    names[name].append((labels, [(time_s, value) for time_s in times]))
                names["container_cpu_usage_seconds"].append((labels, [(time_s, (time_s - times[0]) / 4) for time_s in times]))
            names["kube_pod_labels"].append(({**pod, "label_app_kubernetes_io_name": "web"}, [(time_s, 1) for time_s in times]))
        counters = ("container_cpu_usage_seconds", "container_oom_events")
        recorded_prometheus.write_families(out, {name: ("counter" if name in counters else "gauge", series) for name, series in names.items()})

    def answer(self, expression):
        variables = {"namespace": ".*", "container": ".*", "label": "label_app_kubernetes_io_name", "__rate_interval": "5m", "__range": "1h"}
        query = re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)
        return json.loads(get(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": query, "time": self.end_s})))["data"]["result"]

    def test_every_panel_has_an_answer(self):
        for panel in panels("dashboard-containers.json"):
            for target in panel["targets"]:
                self.assertTrue(self.answer(target["expr"]), f"{panel['title']}: {target['expr']}")

    def test_containers_are_counted_once(self):
        values = {panel["title"]: float(self.answer(panel["targets"][0]["expr"])[0]["value"][1]) for panel in panels("dashboard-containers.json")}
        self.assertEqual(values["Working set"], 600 * MIB, "without the pod's sum and the pause container")
        self.assertEqual(values["Limits"], 800 * MIB)
        self.assertEqual(values["Below the limit even at the highest"], 500 * MIB)
        self.assertEqual(values["Working set against the limit (highest pod)"], 0.5)
        self.assertEqual(values["Pods"], 3)
        self.assertAlmostEqual(values["CPU of a pod (mean, cores)"], 0.25, places=6)

    def test_only_the_last_row_needs_more_than_the_kubelet_has(self):
        for panel in panels("dashboard-containers.json")[:-4]:
            for target in panel["targets"]:
                named = set(re.findall(r"\b((?:container|kube|snug)_\w+)", target["expr"]))
                self.assertTrue(all(name.startswith("container_") for name in named), panel["title"])


if __name__ == "__main__":
    unittest.main()
