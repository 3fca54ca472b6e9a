"""A control plane of Kubernetes on 127.0.0.1: etcd, API server, controllers. No kubelet: pods are admitted, none runs.

Its programs are compiled by `make test-kubernetes`; its files are in a temporary folder, its ports are free ones.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = ROOT / "build/cluster/bin"
PATIENCE_S = 180
# What makes pods and accounts, and what takes away a namespace with all that is in it.
CONTROLLERS = "namespace-controller,serviceaccount-controller,deployment-controller,replicaset-controller,statefulset-controller,garbage-collector-controller"

sys.path.insert(0, str(ROOT / "tools"))
from ports import free_port  # noqa: E402


def wait_for(condition, what):
    """Waits until the condition is true, and returns what it returned."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited for {PATIENCE_S} s: {what}")
        time.sleep(0.1)


class ControlPlane:
    """`stop` ends it, whether or not `start` came to its end. `more` are arguments of the API server."""

    def __init__(self, *more):
        self._more = more
        self._folder = tempfile.TemporaryDirectory(prefix="snug-cluster-")
        self.folder = Path(self._folder.name)
        self.configuration = self.folder / "kubeconfig"
        self._processes = []

    def start(self):
        etcd, peers, port = free_port(), free_port(), free_port()
        key, tokens, folder = self.folder / "accounts.key", self.folder / "tokens", self.folder
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text("of-the-tests,tests,tests,system:masters\n")
        self._configure(port)
        self._run("etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync", "--listen-client-urls", f"http://127.0.0.1:{etcd}",
                  "--advertise-client-urls", f"http://127.0.0.1:{etcd}", "--listen-peer-urls", f"http://127.0.0.1:{peers}",
                  "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}", "--initial-cluster", f"default=http://127.0.0.1:{peers}")
        self._run("kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{etcd}", "--cert-dir", folder / "certificates",
                  "--bind-address", "127.0.0.1", "--secure-port", str(port), "--token-auth-file", tokens,
                  "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none",
                  "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
                  "--service-account-signing-key-file", key, *self._more)
        self._wait(lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0, "the API server is ready")
        self._run("kube-controller-manager", "--kubeconfig", self.configuration, "--controllers", CONTROLLERS,
                  "--leader-elect=false", "--secure-port", "0", "--kube-api-qps", "200", "--kube-api-burst", "400")
        self._wait(lambda: self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, "the controllers work")

    def stop(self):
        for process in reversed(self._processes):
            self._end(process)
        self._folder.cleanup()

    def kubectl(self, *words, given=None, check=True):
        """What has ended; `given` is an object for its input. Unless `check` is false, a failure raises."""
        text = None if given is None else json.dumps(given)
        done = subprocess.run([PROGRAMS / "kubectl", "--kubeconfig", self.configuration, *words], input=text, capture_output=True,
                              text=True, env={**os.environ, "HOME": str(self.folder)}, timeout=PATIENCE_S)
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(map(str, words))}: {done.stderr}")
        return done

    def objects(self, *words, given=None):
        """The objects that kubectl answers with."""
        text = self.kubectl(*words, "-o", "json", given=given).stdout.lstrip()
        found = []
        while text:  # one after the other, or a list of them
            one, end = json.JSONDecoder().raw_decode(text)
            found += one["items"] if one["kind"] == "List" else [one]
            text = text[end:].lstrip()
        return found

    def _configure(self, port):
        self.configuration.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "tests", "user": {"token": "of-the-tests"}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}]}))

    def _end(self, process):
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, program, *arguments):
        with open(self.folder / f"{program}.log", "ab") as log:
            # They end with us, whatever ends us.
            words = ["setpriv", "--pdeathsig", "KILL", PROGRAMS / program, *arguments]
            self._processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder))

    def _wait(self, condition, what):
        def met():
            for process in self._processes:
                if process.poll() is not None:
                    program = Path(process.args[3]).name
                    raise AssertionError(f"{program} ended:\n" + (self.folder / f"{program}.log").read_text()[-3000:])
            return condition()
        wait_for(met, what)
