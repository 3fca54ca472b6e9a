"""The commands of the README and of the guide, in a real API server, in the order in which they are written.

What asks Prometheus is run by deploy/monitoring/tests. A stand-in for the kubelet says of each pod of `helm test` that it ended.
"""

import json
import os
import re
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import control_plane
from control_plane import PROGRAMS, ROOT, ControlPlane, wait_for
from pods import Cluster, container, image_of, injected, pod

README, GUIDE = ROOT / "deploy/kubernetes/README.md", ROOT / "docs/how-to/canary.md"


def commands(page):
    """The lines that begin with $ in blocks of ```console, with what continues them."""
    blocks = re.findall(r"^```console[^\n]*\n(.*?)^```", page.read_text(), re.M | re.S)
    return [command.replace("\\\n", " ") for block in blocks for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.M)]


class Commands(Cluster):
    @classmethod
    def setUpClass(cls):
        cls.plane = ControlPlane()
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.start()
        stopped = threading.Event()
        kubelet = threading.Thread(target=cls.end_tests, args=(stopped,))
        cls.addClassCleanup(kubelet.join)
        cls.addClassCleanup(stopped.set)
        kubelet.start()

    @classmethod
    def end_tests(cls, stopped):
        while not stopped.wait(0.5):
            listed = cls.plane.kubectl("-n", "snug-system", "get", "pods", "-o", "json", check=False)
            for found in json.loads(listed.stdout or "{}").get("items", []):
                # As a kubelet would: without snug the program would not be there.
                phase = "Succeeded" if injected(found) == [True] else "Failed"
                cls.plane.kubectl("-n", "snug-system", "patch", "pod", found["metadata"]["name"], "--subresource", "status",
                                  "--patch", json.dumps({"status": {"phase": phase}}), check=False)

    def shell(self, command):
        """What it wrote."""
        environment = {**os.environ, "KUBECONFIG": str(self.plane.configuration), "HOME": str(self.plane.folder), "PATH": f"{PROGRAMS}:/usr/bin:/bin"}
        done = subprocess.run(["bash", "-ec", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * control_plane.PATIENCE_S)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
        return done.stdout

    def snug_of_pods(self):
        """For each pod of the Deployment, whether it has snug."""
        return [injected(found) == [True] for found in self.plane.objects("-n", "shop", "get", "pods") if "deletionTimestamp" not in found["metadata"]]

    def test_the_guide(self):
        self.plane.kubectl("create", "namespace", "shop")
        labels = {"app": "web"}
        spec = {"replicas": 30, "selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}}
        self.plane.kubectl("-n", "shop", "create", "-f", "-", given={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        wait_for(lambda: self.snug_of_pods() == [False] * 30, "pods without snug")
        seen = []
        for command in commands(GUIDE):
            if command.startswith("snug "):
                continue
            # The pause is as long as the server takes here to see the change.
            change, pause, rest = command.partition(" && sleep 5")
            self.shell(change)
            if pause:
                self.follows(change)
            if rest:
                self.shell(rest.removeprefix(" && "))
            seen.append(command)
            if "rollout restart" in command:
                expected = {"10": range(21), "100": [30], None: [0]}[self.share]
                wait_for(lambda expected=expected: len(self.snug_of_pods()) == 30 and sum(self.snug_of_pods()) in expected, command)
        self.assertEqual([command.split()[1] for command in seen], ["install", "test", "label", "--namespace", "--namespace", "upgrade", "--namespace", "uninstall"])

    share = None

    def follows(self, command):
        """Waits until the server has seen what a command of Helm changed."""
        given = re.search(r"policy\.share=(\d+)", command)
        if command.startswith("helm uninstall"):
            self.share = None
            wait_for(lambda: self.admit(pod(annotations={"snug.dev/share": "100"})) == [False], command)
        elif given:
            self.share = given[1]
            wait_for(lambda: self.admit(pod(annotations={"snug.dev/share": "100"})) == [True], command)
            if self.share == "100":
                wait_for(lambda: all(self.admit(pod()) == [True] for _ in range(20)), command)

    def test_the_readme(self):
        for command in commands(README):
            self.shell(command)
            if "helm install" in command or "kubectl apply" in command:
                wait_for(lambda: image_of(self.create(pod())[0]) == "registry.example.com/snug:0.2.0", command)
            elif "uninstall" in command or "kubectl delete" in command:
                wait_for(lambda: self.admit(pod()) == [False], command)

    def test_settings_of_a_kustomization(self):
        text = re.search(r"^```yaml\n(resources.*?)^```", README.read_text(), re.M | re.S)[1]
        folder = self.plane.folder / "settings"
        folder.mkdir()
        policy = os.path.relpath(ROOT / "deploy/kubernetes/policy", folder.resolve())
        (folder / "kustomization.yaml").write_text(text.replace("../snug/deploy/kubernetes/policy", policy))
        self.shell(f"kubectl apply -k {folder}")
        always = pod(annotations={"snug.dev/share": "100"})
        wait_for(lambda: self.admit(always) == [True], "the policy applies")
        self.assertEqual(self.create(always)[0]["spec"]["initContainers"][0]["image"], "registry.example.com/snug:0.2.0")
        self.assertLess(sum(self.admit(pod()) == [True] for _ in range(30)), 25, "a share of ten in a hundred")
        self.shell(f"kubectl delete -k {folder}")
        wait_for(lambda: self.admit(always) == [False], "the policy is gone")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(__file__).parent))
    unittest.main()
