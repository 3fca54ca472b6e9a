"""The commands that `snug fleet --resize` prints, in a real API server, with a stand-in for the kubelet.

A stand-in for Prometheus has a day of five pods that are in the server. The kubelet's stand-in starts them, and does with
a resize what a node does: it follows, waits for room, or can't; what `kubectl exec` would say of a pod, a file says.
"""

import contextlib
import http.server
import itertools
import json
import os
import re
import subprocess
import threading
import unittest
import urllib.parse

from control_plane import PROGRAMS, ROOT, ControlPlane
from pods import Cluster, container, pod

SNUG = os.environ.get("SNUG_PROGRAM", ROOT / "build/snug")
MIB = 1 << 20
NODE = "node-1"
NUMBERS = itertools.count()
CLASSES = {  # as requests and limits, and what a resize makes of them
    "burstable": ({"memory": "768Mi", "cpu": "100m"}, {"memory": "1Gi"}),
    "guaranteed": ({"memory": "1Gi", "cpu": "1"}, {"memory": "1Gi", "cpu": "1"}),
    "nolimit": ({"memory": "768Mi"}, {}),
}
# What kubectl says of pods that no kubelet runs.
KUBECTL = """#!/bin/sh
for word; do
  if [ "$word" = exec ]; then echo "$*" >>{folder}/asked; cat {folder}/used; exit; fi
done
exec {programs}/kubectl "$@"
"""


def bytes_of(quantity):
    return int(quantity[:-2]) * {"Mi": MIB, "Gi": 1024 * MIB}[quantity[-2:]]


class Metrics(http.server.BaseHTTPRequestHandler):
    """A day of the pods of one namespace. `pods`: names, by the server's class."""

    pods, sizes = [], ({}, {})

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        query, start, end, step = (form[name][0] for name in ("query", "start", "end", "step"))
        requests, limits = self.sizes
        kind = "request" if "resource_requests" in query else "limit" if "memory_limit" in query else "memory"
        value = {"request": requests, "limit": limits, "memory": {"memory": "256Mi"}}[kind].get("memory")
        names = [] if value is None or "allocatable" in query else self.pods
        times = range(int(float(start)), int(float(end)) + 1, int(float(step)))
        result = [{"metric": {"namespace": self.space, "pod": name, "container": "web"},
                   "values": [[time, str(bytes_of(value) + (index * MIB if kind == "memory" else 0))] for time in times]}
                  for index, name in enumerate(names)]
        text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Resize(Cluster):
    @classmethod
    def setUpClass(cls):
        cls.plane = ControlPlane()
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.start()
        cls.plane.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        room = {"cpu": "64", "memory": "64Gi", "pods": "100"}
        cls.plane.kubectl("patch", "node", NODE, "--subresource", "status", "--patch", json.dumps({"status": {"capacity": room, "allocatable": room}}))
        kubectl = cls.plane.folder / "kubectl"
        kubectl.write_text(KUBECTL.format(folder=cls.plane.folder, programs=PROGRAMS))
        kubectl.chmod(0o755)

    def start(self, kind):
        """Five pods that run on the node, and a Prometheus that knows them."""
        requests, limits = CLASSES[kind]
        self.space, resources = f"{kind}-{next(NUMBERS)}", {"requests": requests, "limits": limits}
        self.before = resources
        self.namespace(self.space, {})
        self.names = [f"web-{number}" for number in range(5)]
        for name in self.names:
            self.plane.kubectl("create", "-f", "-", given=pod(container(resources=resources), name=name, namespace=self.space, labels={}, nodeName=NODE))
            self.kubelet(name, "Running", resources)
        handler = type("Known", (Metrics,), {"space": self.space, "pods": self.names, "sizes": (requests, limits)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.prometheus = f"http://127.0.0.1:{server.server_port}"
        self.use(200 * MIB)

    def use(self, used_bytes):
        (self.plane.folder / "used").write_text(f"{used_bytes}\n")

    def kubelet(self, name, phase, resources, *conditions):
        """What the kubelet writes about a pod. Conditions are (type, reason, message)."""
        status = {"phase": phase, "containerStatuses": [
            {"name": "web", "image": "shop", "imageID": "", "ready": True, "restartCount": 0,
             "state": {"running": {"startedAt": "2026-11-29T00:00:00Z"}}, "resources": resources}],
            "conditions": [dict(zip(("type", "reason", "message"), condition, strict=True), status="True") for condition in conditions]}
        self.plane.kubectl("-n", self.space, "patch", "pod", name, "--subresource", "status", "--patch", json.dumps({"status": status}))

    def printed(self, *more):
        words = [SNUG, "fleet", "--prometheus", self.prometheus, "--canary", 'pod=~".*"', *(more or ["--resize"])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def shell(self, script, patience="2m"):
        """(status, what it wrote), with what exec would say in kubectl's place."""
        folder = self.plane.folder
        environment = {**os.environ, "KUBECONFIG": str(self.plane.configuration), "HOME": str(folder), "PATH": f"{folder}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", script.replace("--timeout=2m", f"--timeout={patience}")], env=environment, capture_output=True,
                              text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr

    def steps(self):
        """The commands, by their numbers, and the way back: 0."""
        parts = re.split(r"^# (?:(\d)\.|The way back)", self.printed(), flags=re.M)
        commands = {int(number or 0): text.partition("\n")[2] for number, text in zip(parts[1::2], parts[2::2], strict=True)}
        # These two are comments, for a person to take out.
        return commands | {number: re.sub("^# ", "", commands[number], flags=re.M) for number in (0, 5)}

    def resources(self, name):
        return self.plane.objects("-n", self.space, "get", "pod", name)[0]["spec"]["containers"][0]["resources"]

    def follow(self, stopped, *conditions):
        """Pods get what their specification says, or a condition, until the test ends."""
        while not stopped.wait(0.2):
            for name in self.names:
                self.kubelet(name, "Running", self.before if conditions else self.resources(name), *conditions)

    @contextlib.contextmanager
    def kubelet_that(self, *conditions):
        """Runs it until the end of the block."""
        stopped = threading.Event()
        thread = threading.Thread(target=self.follow, args=(stopped, *conditions))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def test_all_pods_follow_and_go_back(self):
        self.start("burstable")
        steps = self.steps()
        before = self.resources("web-0")
        self.assertEqual(self.shell(steps[1])[0], 0)
        self.assertEqual(self.resources("web-0"), before, "nothing was changed")
        with self.kubelet_that():
            self.follow_and_go_back(steps, before)

    def follow_and_go_back(self, steps, before):
        status, said = self.shell(steps[2] + steps[3])
        self.assertEqual(status, 0, said)
        wanted = json.loads(self.printed("--json"))["containers"][0]
        resized = self.resources("web-0")
        self.assertEqual(bytes_of(resized["limits"]["memory"]), wanted["under_snug"]["limit_bytes"])
        self.assertLess(bytes_of(resized["requests"]["memory"]), bytes_of(resized["limits"]["memory"]))
        self.assertEqual(resized["requests"]["cpu"], "100m", "it stays")
        self.assertEqual(self.resources("web-1"), before, "one first")
        self.assertIn("/opt/snug/snug purge", (self.plane.folder / "asked").read_text())
        status, said = self.shell(steps[2] + steps[4])
        self.assertEqual((status, [self.resources(name) for name in self.names]), (0, [resized] * 5), said)
        self.assertEqual(self.shell(steps[0])[0], 0)
        self.assertEqual([self.resources(name) for name in self.names], [before] * 5)

    def test_other_classes_of_service_stay(self):
        for kind in ("guaranteed", "nolimit"):
            self.start(kind)
            before = self.plane.objects("-n", self.space, "get", "pod", "web-0")[0]["status"]["qosClass"]
            status, said = self.shell(self.steps()[1])
            self.assertEqual(status, 0, said)
            row = json.loads(self.printed("--json"))["containers"][0]["resize"]
            self.plane.kubectl("-n", self.space, "patch", "pod", "web-0", "--subresource", "resize", "--patch", row["patch"])
            found = self.plane.objects("-n", self.space, "get", "pod", "web-0")[0]
            self.assertEqual((found["status"]["qosClass"], before), (before, {"guaranteed": "Guaranteed", "nolimit": "Burstable"}[kind]))
            self.assertEqual("limits" in self.resources("web-0"), kind != "nolimit")
            # What the patch avoids: the server refuses it.
            other = {"memory": "64Mi"} if kind == "guaranteed" else None
            patch = {"spec": {"containers": [{"name": "web", "resources": {"requests": other}}]}}
            refused = self.plane.kubectl("-n", self.space, "patch", "pod", "web-0", "--subresource", "resize", "--patch", json.dumps(patch), check=False)
            self.assertNotEqual(refused.returncode, 0)

    def test_a_pod_that_uses_more_is_left_as_it_is(self):
        self.start("burstable")
        self.use(600 * MIB)
        steps, before = self.steps(), self.resources("web-0")
        status, said = self.shell(steps[2] + steps[3])
        self.assertEqual((status, self.resources("web-0")), (1, before), said)
        self.assertIn(f"web-0: {600 * MIB} bytes are in use", said)

    def test_what_a_node_refuses_is_said(self):
        for reason in ("Infeasible", "Deferred"):
            self.start("burstable")
            steps = self.steps()
            with self.kubelet_that(("PodResizePending", reason, "Node didn't have enough resource: memory")):
                _, said = self.shell(steps[2] + steps[4], patience="3s")
            self.assertIn(f"PodResizePending: {reason}: Node didn't have enough resource", said)
            self.assertIn("timed out", said)
            self.assertEqual(self.resources("web-2")["limits"]["memory"], "1Gi", "the first that does not follow is the last")

    def test_static_pods_and_older_servers_refuse(self):
        self.start("burstable")
        patch = json.loads(self.printed("--json"))["containers"][0]["resize"]["patch"]
        static = pod(container(resources={"requests": {"memory": "768Mi"}, "limits": {"memory": "1Gi"}}), name="static", namespace=self.space,
                     labels={}, annotations={"kubernetes.io/config.mirror": "x"}, nodeName=NODE)
        self.plane.kubectl("create", "-f", "-", given=static)
        refused = self.plane.kubectl("-n", self.space, "patch", "pod", "static", "--subresource", "resize", "--patch", patch, check=False)
        self.assertIn("static pods cannot be resized", refused.stderr)
        # Without the subresource, as on servers before 1.33: the pod's specification may not change.
        refused = self.plane.kubectl("-n", self.space, "patch", "pod", "web-0", "--patch", patch, check=False)
        self.assertIn("Forbidden", refused.stderr)

    def test_new_pods_follow(self):
        self.start("burstable")
        labels = {"app": "web"}
        spec = {"serviceName": "web", "replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container(resources={"requests": {"memory": "768Mi"}, "limits": {"memory": "1Gi"}})]}}}
        self.plane.kubectl("-n", self.space, "create", "-f", "-", given={"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec})
        status, said = self.shell(self.steps()[5])
        self.assertEqual(status, 0, said)
        template = self.plane.objects("-n", self.space, "get", "statefulset", "web")[0]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual((template["image"], template["resources"]["limits"]["memory"]), ("shop", self.limit()))

    def limit(self):
        need = json.loads(self.printed("--json"))["containers"][0]["under_snug"]
        return f"{need['limit_bytes'] / MIB:.0f}Mi"


if __name__ == "__main__":
    unittest.main()
