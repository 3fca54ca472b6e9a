"""The chart in a real API server: installed, upgraded, rolled back, tested and uninstalled by Helm.

No kubelet: where `helm test` waits for its pod to end, the test says in the kubelet's place that it has.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import control_plane
import yaml
from control_plane import PROGRAMS, ROOT, ControlPlane, wait_for
from pods import ASKS, IMAGE, RESTRICTED, Cluster, container, image_of, injected, pod

CHART = ROOT / "deploy/kubernetes/chart"
COMPONENT = ROOT / "deploy/kubernetes/component"
KINDS = ROOT / "build/cluster/kinds"
BETA = "admissionregistration.k8s.io/v1beta1"


def setUpModule():
    # Of the beta, too, as in 1.34 and 1.35.
    Cluster.plane = ControlPlane("--runtime-config", f"{BETA}=true")
    unittest.addModuleCleanup(Cluster.plane.stop)
    Cluster.plane.start()
    Cluster.plane.kubectl("create", "namespace", "snug-system")
    for file in sorted(KINDS.glob("*.yaml")):
        Cluster.plane.kubectl("create", "-f", file)


class Chart(Cluster):
    def helm(self, *words, check=True):
        """What has ended. Unless `check` is false, a failure raises."""
        folder = self.plane.folder
        environment = {"KUBECONFIG": str(self.plane.configuration), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([PROGRAMS / "helm", *words], capture_output=True, text=True, env=environment,
                              timeout=2 * control_plane.PATIENCE_S)
        if check and done.returncode != 0:
            raise AssertionError(f"helm {' '.join(map(str, words))}: {done.stderr}")
        return done

    def install(self, *values):
        self.helm("upgrade", "--install", "snug", CHART, "--namespace", "snug-system", *values)
        self.addCleanup(self.uninstall)

    def uninstall(self):
        if self.helm("status", "snug", "--namespace", "snug-system", check=False).returncode == 0:
            self.helm("uninstall", "snug", "--namespace", "snug-system")
        wait_for(lambda: self.admit(pod()) == [False], "the policy is gone")

    def becomes(self, expected, what, given=None):
        wait_for(lambda: self.admit(given or pod()) == [expected], what)


class Installed(Chart):
    def test_from_nothing_and_back(self):
        """And again: what comes back works at once."""
        before = self.everything()
        for _ in range(2):
            self.install()
            self.becomes(True, "the policy applies")
            self.assertEqual({kind for kind, _, _ in self.everything() - before},
                             {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Secret"})
            self.uninstall()
            self.assertEqual(self.everything() - before, set())

    def test_upgrades_and_rollback(self):
        self.install("--set", "image=registry.example.com/first:1", "--set", "policy.share=0")
        self.assertEqual(self.admit(pod(annotations={"snug.dev/share": "0"})), [False])
        self.becomes(True, "the policy applies", pod(annotations={"snug.dev/share": "100"}))
        self.assertEqual(self.admit(pod()), [False])
        self.install("--reuse-values", "--set", "policy.share=100")
        self.becomes(True, "the share is a hundred")
        self.assertEqual(image_of(self.create(pod())[0]), "registry.example.com/first:1")
        self.helm("rollback", "snug", "--namespace", "snug-system")
        self.becomes(False, "the share is none again")
        self.install("--set", f"image={IMAGE}", "--set", "policy.delivery=init-container")
        self.becomes(True, "the policy applies")
        found = self.create(pod())[0]
        self.assertEqual(found["spec"]["initContainers"][0]["image"], IMAGE)
        # What the guide says of going back for all, whatever annotations say.
        self.install("--reuse-values", "--set", "policy.enabled=false")
        self.becomes(False, "the policy is gone", pod(annotations={"snug.dev/share": "100"}))

    def test_some_namespaces(self):
        self.install("--set", "policy.namespaces={shop,asks}")
        for name, labels in (("shop", {}), ("asks", ASKS), ("other", ASKS)):
            self.namespace(name, labels)
        self.becomes(True, "a pod that asks", pod(namespace="shop"))
        self.becomes(True, "a namespace that asks", pod(namespace="asks", labels={}))
        self.assertEqual(self.admit(pod(namespace="shop", labels={})), [False])
        self.assertEqual(self.admit(pod(namespace="other")), [False])

    def test_the_beta(self):
        """As Helm installs it in 1.34, where the first version is not there."""
        rendered = self.helm("template", "snug", CHART, "--api-versions", f"{BETA}/MutatingAdmissionPolicy",
                             "--set", "policy.delivery=init-container").stdout
        self.assertIn(f"apiVersion: {BETA}\n", rendered)
        self.assertNotIn("admissionregistration.k8s.io/v1\n", rendered)
        file = self.plane.folder / "beta.yaml"
        file.write_text("\n---\n".join(part for part in rendered.split("\n---\n") if "helm.sh/hook" not in part))
        self.plane.kubectl("create", "-f", file)
        self.addCleanup(wait_for, lambda: self.admit(pod()) == [False], "the policy is gone")
        self.addCleanup(self.plane.kubectl, "delete", "-f", file)
        self.becomes(True, "the policy applies")

    def test_a_cluster_without_policies(self):
        done = self.helm("template", "snug", CHART, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("it needs Kubernetes 1.36", done.stderr)
        self.helm("template", "snug", CHART, "--set", "policy.enabled=false", "--set", "exporter.enabled=true")


class Tested(Chart):
    """`helm test`."""

    def ended(self, phase):
        """Runs `helm test`, says of its pod that it ended so, and returns that pod and what Helm made of it."""
        results = []
        thread = threading.Thread(target=lambda: results.append(self.helm("test", "snug", "--namespace", "snug-system", check=False)))
        thread.start()
        self.addCleanup(thread.join)

        def pods():
            return [found for found in self.plane.objects("-n", "snug-system", "get", "pods") if found["status"]["phase"] == "Pending"]
        found, = wait_for(pods, "Helm makes the pod")
        self.plane.kubectl("-n", "snug-system", "patch", "pod", found["metadata"]["name"], "--subresource", "status",
                           "--patch", json.dumps({"status": {"phase": phase}}))
        thread.join()
        return found, results[0]

    def test_its_pod_is_one_that_asks(self):
        self.install("--set", "policy.share=0")
        self.becomes(True, "the policy applies", pod(annotations={"snug.dev/share": "100"}))
        self.plane.kubectl("label", "namespace", "snug-system", "pod-security.kubernetes.io/enforce=restricted")
        self.addCleanup(self.plane.kubectl, "label", "namespace", "snug-system", "pod-security.kubernetes.io/enforce-")
        found, done = self.ended("Succeeded")
        self.assertEqual((injected(found), done.returncode), ([True], 0), done.stderr)
        self.assertIn("Phase:          Succeeded", done.stdout)
        self.assertEqual(found["spec"]["containers"][0]["command"][0], "/opt/snug/snug")
        self.assertEqual(self.plane.objects("-n", "snug-system", "get", "pods"), [], "it is deleted")
        found, done = self.ended("Failed")
        self.assertNotEqual(done.returncode, 0)
        self.plane.kubectl("-n", "snug-system", "delete", "pod", found["metadata"]["name"], "--force")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become the user of the pod")
    def test_what_its_pod_runs(self):
        """As that user without rights: it ends well under the library, and not without."""
        rendered = yaml.safe_load_all(self.helm("template", "snug", CHART, "--api-versions", f"{BETA}/MutatingAdmissionPolicy").stdout)
        found = next(document for document in rendered if document["kind"] == "Pod")["spec"]["containers"][0]
        volume = self.plane.folder / "volume"
        volume.mkdir()
        self.plane.folder.chmod(0o755)
        subprocess.run([ROOT / "build/snug", "install", volume], check=True, capture_output=True)
        command = [word.replace("/opt/snug", str(volume)) for word in found["command"]]
        user = str(found["securityContext"]["runAsUser"])
        rights = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
        for preload, code in ((f"{volume}/libsnug.so", 0), ("", 1)):
            with self.subTest(preload=preload):
                done = subprocess.run([*rights, *command], capture_output=True, text=True, cwd="/", timeout=control_plane.PATIENCE_S,
                                      env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": preload})
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)


class Values(Chart):
    def test_values_that_make_no_sense_are_refused(self):
        for value, says in (("policy.share=101", "at '/policy/share': maximum"), ("policy.share=-1", "at '/policy/share': minimum"),
                            ("policy.share=some", "at '/policy/share': got string"), ("policy.delivery=volume", "at '/policy/delivery': value must be one of"),
                            ("image=", "at '/image'"), ("image=a b", "at '/image'"), ("image=a'+b", "at '/image'"), ("polcy.share=1", "'polcy' not allowed"),
                            ("policy.namespaces={Shop}", "at '/policy/namespaces/0'"), ("exporter.port=0", "at '/exporter/port'"),
                            ("monitoring.interval=soon", "at '/monitoring/interval'")):
            with self.subTest(value=value):
                done = self.helm("template", "snug", CHART, "--set", "policy.enabled=false", "--set", value, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(says, done.stderr)

    def test_a_monitor_of_nothing_is_refused(self):
        done = self.helm("template", "snug", CHART, "--set", "policy.enabled=false", "--set", "monitoring.podMonitor=true", check=False)
        self.assertIn("add --set exporter.enabled=true", done.stderr)

    def test_lint_and_package(self):
        self.helm("lint", "--strict", CHART)
        self.helm("package", CHART, "--destination", self.plane.folder)
        archive, = self.plane.folder.glob("snug-*.tgz")
        names = subprocess.run(["tar", "-tvf", archive], capture_output=True, text=True, check=True).stdout
        # What is a link in the repository is a file there.
        self.assertRegex(names, r"(?m)^-.* snug/files/policy\.yaml$")
        self.assertRegex(names, r"(?m)^-.* snug/files/alerts\.yml$")
        self.assertRegex(names, r"(?m)^-.* snug/files/recording\.yml$")
        self.helm("template", "snug", archive, "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")


class Exporter(Chart):
    def test_the_daemon_set_is_admitted_and_asks_for_the_least(self):
        self.install("--set", "policy.enabled=false", "--set", "exporter.enabled=true", "--set", "exporter.tolerations[0].operator=Exists")
        found, = self.plane.objects("-n", "snug-system", "get", "daemonsets")
        spec = found["spec"]["template"]["spec"]
        self.assertEqual((spec["hostPID"], spec.get("hostNetwork", False)), (True, False))
        mounts = spec["containers"][0]["volumeMounts"]
        self.assertEqual({mount["mountPath"] for mount in mounts if mount["readOnly"]}, {"/host/sys/fs/cgroup", "/host/var/log/containers"})
        self.assertEqual({f"/host{volume['hostPath']['path']}" for volume in spec["volumes"]}, {mount["mountPath"] for mount in mounts})
        self.assertFalse(spec["automountServiceAccountToken"])
        self.assertEqual(spec["tolerations"], [{"operator": "Exists"}])
        context = spec["containers"][0]["securityContext"]
        self.assertEqual(context["capabilities"], {"add": ["SYS_PTRACE", "DAC_READ_SEARCH"], "drop": ["ALL"]})
        self.assertNotIn("privileged", context)
        for probe in ("readinessProbe", "livenessProbe"):
            self.assertEqual(spec["containers"][0][probe]["httpGet"]["path"], "/", probe)
        self.known_to_the_tool(spec["containers"][0]["args"])

    def known_to_the_tool(self, arguments):
        done = subprocess.run([ROOT / "build/snug", *arguments, "--once"], capture_output=True, text=True, timeout=control_plane.PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("snug_build_info{", done.stdout)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to take capabilities from it")
    def test_what_it_asks_for_is_what_it_needs(self):
        """With the capabilities of the chart it reads the heap of another user's process; with none it does not."""
        shown = self.helm("show", "values", CHART).stdout
        context = yaml.safe_load(shown)["exporter"]["securityContext"]
        self.assertEqual((context["runAsUser"], context["allowPrivilegeEscalation"], context["capabilities"]["drop"]), (0, False, ["ALL"]))
        added = "".join(f",+{name.lower()}" for name in context["capabilities"]["add"])
        with self.program("45123") as pid:
            enough, none = (self.exported(pid, "--bounding-set", bounding) for bounding in (f"-all{added}", "-all"))
        live = re.search(r'^snug_heap_live_bytes\{allocator="snug".*\} (\S+)$', enough, re.M)
        self.assertGreater(float(live[1]), 20e6)
        self.assertIn("\nsnug_exporter_processes_refused 0\n", enough)
        self.assertNotIn("\nsnug_heap_live_bytes{", none)
        self.assertNotIn("\nsnug_exporter_processes_refused 0\n", none)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become another user")
    def test_a_sidecar_needs_no_rights(self):
        """It reads processes of its user: their heaps only where nodes permit that."""
        patch = yaml.safe_load((ROOT / "deploy/kubernetes/exporter-sidecar.yaml").read_text())
        sidecar, = patch["spec"]["template"]["spec"]["containers"]
        self.known_to_the_tool(sidecar["args"])
        user = str(sidecar["securityContext"]["runAsUser"])
        with self.program(user) as pid:
            found = self.exported(pid, "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set", "-all")
        self.assertIn("\nsnug_process_proportional_bytes{", found)
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        free = not scope.exists() or scope.read_text().strip() == "0"
        self.assertEqual("\nsnug_heap_live_bytes{" in found, free)

    @contextlib.contextmanager
    def program(self, user):
        """The process of that user's program, which holds 20 MB under snug."""
        program = "import sys; kept = [bytearray(1000) for _ in range(20000)]; print('ready', flush=True); sys.stdin.read()"
        # The library's own folder may be one that others can't enter.
        library = self.plane.folder / "libsnug.so"
        library.write_bytes((ROOT / "build/libsnug.so").read_bytes())
        self.plane.folder.chmod(0o755)
        words = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "python3", "-c", program]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
                              env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(library)}) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            yield process.pid
            process.stdin.close()

    def exported(self, pid, *rights):
        tool = self.plane.folder / "snug"
        shutil.copyfile(ROOT / "build/snug", tool)
        tool.chmod(0o755)
        words = ["setpriv", *rights, "--inh-caps", "-all", "--no-new-privs", tool, "exporter", "--once", "--pid", str(pid)]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=control_plane.PATIENCE_S).stdout

    def test_sidecar_and_its_monitor(self):
        """In a namespace that restricts pods, by kubectl's own patch."""
        self.namespace("shop-restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
        labels = {"app": "web"}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [container(securityContext=RESTRICTED)]}}}
        self.plane.kubectl("-n", "shop-restricted", "create", "-f", "-", given={
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        folder = ROOT / "deploy/kubernetes"
        self.plane.kubectl("-n", "shop-restricted", "patch", "deployment", "web", "--patch-file", folder / "exporter-sidecar.yaml")
        monitor = self.plane.objects("create", "--dry-run=server", "--validate=strict", "-f", folder / "exporter-sidecar-monitor.yaml")[0]
        wanted = ",".join(f"{name}={value}" for name, value in monitor["spec"]["selector"]["matchLabels"].items())

        def found():
            return self.plane.objects("-n", "shop-restricted", "get", "pods", "--selector", wanted)
        wait_for(lambda: len(found()) == 1, "a pod with the sidecar is admitted")
        ports = [port["name"] for entry in found()[0]["spec"]["containers"] for port in entry.get("ports", [])]
        self.assertEqual(ports, [monitor["spec"]["podMetricsEndpoints"][0]["port"]])


class KindsOfOthers(Chart):
    """What we write for others, in a server that has their own definitions, and refuses fields that they do not name."""

    def strictly(self, file, *words, text=None):
        if text is not None:
            file.write_text(text)
        return self.plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", file, *words, check=False)

    def test_prometheus_operator(self):
        self.install("--set", "policy.enabled=false", "--set", "exporter.enabled=true", "--set", "monitoring.podMonitor=true",
                     "--set", "monitoring.rules=true", "--set", "monitoring.labels.release=prometheus")
        monitor, rule = (self.plane.objects("-n", "snug-system", "get", kind)[0] for kind in ("podmonitors", "prometheusrules"))
        for found in (monitor, rule):
            self.assertEqual(found["metadata"]["labels"]["release"], "prometheus")
        daemon_set, = self.plane.objects("-n", "snug-system", "get", "daemonsets")
        template = daemon_set["spec"]["template"]
        wanted = monitor["spec"]["selector"]["matchLabels"]
        self.assertEqual(wanted, {name: template["metadata"]["labels"][name] for name in wanted})
        self.assertEqual([port["name"] for port in template["spec"]["containers"][0]["ports"]], [monitor["spec"]["podMetricsEndpoints"][0]["port"]])
        written = [yaml.safe_load(file.read_text())["groups"] for file in sorted((CHART / "files").glob("*.yml"))]
        self.assertEqual(rule["spec"]["groups"], [group for groups in written for group in groups])

    def test_argo_and_flagger(self):
        for name in ("argo-analysis.yaml", "flagger-metric.yaml"):
            with self.subTest(name=name):
                text = (ROOT / "deploy/kubernetes" / name).read_text()
                self.assertEqual(self.strictly(ROOT / "deploy/kubernetes" / name).stderr, "")
                wrong = self.strictly(self.plane.folder / name, text=text.replace("  provider:", "  provder:"))
                self.assertIn('unknown field "spec', wrong.stderr)


class Component(Chart):
    def test_all_workloads_of_a_kustomization_ask(self):
        self.install()
        self.becomes(True, "the policy applies")
        self.namespace("shop", {})
        folder = self.plane.folder / "shop"
        folder.mkdir()
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()]}}}
        (folder / "web.yaml").write_text(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}))
        components = str(Path("..", *[".."] * (len(folder.parts) - 2), COMPONENT.relative_to("/")))
        (folder / "kustomization.yaml").write_text(json.dumps({"namespace": "shop", "resources": ["web.yaml"], "components": [components]}))
        self.plane.kubectl("apply", "-k", folder)
        def pods():
            return self.plane.objects("-n", "shop", "get", "pods")
        wait_for(lambda: len(pods()) == 2, "the pods")
        self.assertEqual([injected(found) for found in pods()], [[True], [True]])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(__file__).parent))
    unittest.main()
