"""The manifests against Kubernetes' schemas, the chart's values against its own, and the policy's expressions on pods.

There is no API server here (cluster/ has one): another evaluator of CEL runs the expressions, in which typed objects become maps, and the
result is merged into the pod as a server-side apply would. Needs what release/requirements.txt names.
"""

import copy
import json
import re
import shutil
import subprocess
import sys
import unittest
import unittest.mock
import urllib.request
from pathlib import Path

import cel
import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/kubernetes"
NEWEST, OLDER = "1.36", "1.30"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
LIBRARY = "/opt/snug/libsnug.so"
# By what entries of lists are merged.
KEYS = {"containers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "initContainers": "name"}


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


POLICY = documents("policy/policy.yaml")[0]


def containers(value):
    """All entries of lists named containers, wherever they are."""
    if isinstance(value, list):
        return [container for entry in value for container in containers(entry)]
    if not isinstance(value, dict):
        return []
    own = value.get("containers", [])
    return [*(own if isinstance(own, list) else []), *(container for entry in value.values() for container in containers(entry))]


def as_maps(expression):
    """Typed objects as maps: Object.spec{name: 1} as {'name': 1}."""
    untyped = re.sub(r"\b(Object(\.\w+)*|JSONPatch)\{", "{", expression)
    return re.sub(r"([{,]\s*)([a-zA-Z]\w*):(?!:)", r"\1'\2':", untyped)


def merged(old, new):
    """As a server-side apply merges."""
    result = copy.deepcopy(old)
    for name, value in new.items():
        if isinstance(value, dict):
            result[name] = merged(result.get(name, {}), value)
        elif name in KEYS:
            entries = result.setdefault(name, [])
            for entry in value:
                same = [index for index, other in enumerate(entries) if other[KEYS[name]] == entry[KEYS[name]]]
                if same:
                    entries[same[0]] = merged(entries[same[0]], entry)
                else:
                    entries.append(entry)
        else:
            result[name] = value
    return result


def patched(pod, operations):
    """As RFC 6902 says of "add", which is all that the policy uses."""
    result = copy.deepcopy(pod)
    for operation in operations:
        assert operation["op"] == "add", operation
        *way, last = operation["path"].strip("/").split("/")
        place = result
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place[name]
        if isinstance(place, list):
            place.insert(len(place) if last == "-" else int(last), operation["value"])
        else:
            place[last] = operation["value"]
    return result


def admitted(pod, **settings):
    """The pod as the policy leaves it; settings are expressions. An error raises: the API server would leave the pod alone."""
    spec = POLICY["spec"]
    if not all(cel.evaluate(condition["expression"], {"object": pod}) for condition in spec["matchConditions"]):
        return pod
    for mutation in spec["mutations"]:
        variables = {}
        for variable in spec["variables"]:
            expression = settings.get(variable["name"], variable["expression"])
            variables[variable["name"]] = cel.evaluate(expression, {"object": pod, "variables": variables})
        given = mutation.get("jsonPatch") or mutation["applyConfiguration"]
        result = cel.evaluate(as_maps(given["expression"]), {"object": pod, "variables": variables})
        pod = patched(pod, result) if "jsonPatch" in mutation else merged(pod, result)
    return pod


def pod(*containers, annotations=None, token="kube-api-access-xxxxb", **spec):
    containers = [{"name": "web", "image": "shop"}] if not containers else list(containers)
    volumes = [{"name": token, "emptyDir": {}}] if token else []
    metadata = {"generateName": "web-5d9-", "namespace": "shop", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, "volumes": volumes, **spec}}


def preload(found, container=0):
    return [entry for entry in found["spec"]["containers"][container].get("env", []) if entry["name"] == "LD_PRELOAD"]


class Policy(unittest.TestCase):
    def test_a_plain_pod(self):
        found = admitted(pod())
        self.assertEqual(preload(found), [{"name": "LD_PRELOAD", "value": LIBRARY}])
        self.assertEqual(found["spec"]["volumes"][1]["image"]["reference"], "registry.example.com/snug:0.2.0")
        self.assertEqual(found["spec"]["containers"][0]["volumeMounts"], [{"name": "snug", "mountPath": "/opt/snug", "readOnly": True}])
        self.assertEqual(found["metadata"]["labels"], {"snug.dev/group": "canary"})
        found["metadata"]["name"] = "web-5d9-x"
        kubernetes_validate.validate(found, NEWEST, strict=True)

    def test_again_changes_nothing(self):
        for before in (pod(), pod({"name": "web", "env": [{"name": "LD_PRELOAD", "value": "/lib/other.so"}]})):
            once = admitted(before)
            self.assertNotEqual(once, before)
            self.assertEqual(admitted(once), once)

    def test_what_the_pod_has_stays(self):
        env = [{"name": "A", "value": "1"}, {"name": "LD_PRELOAD", "value": "/lib/other.so"}, {"name": "B", "value": "2"}]
        mounts = [{"name": "data", "mountPath": "/data"}]
        found = admitted(pod({"name": "web", "env": env, "volumeMounts": mounts}))
        self.assertEqual(preload(found), [{"name": "LD_PRELOAD", "value": f"{LIBRARY}:/lib/other.so"}])
        container = found["spec"]["containers"][0]
        self.assertEqual([entry["name"] for entry in container["env"]], ["A", "LD_PRELOAD", "B"])
        self.assertEqual(container["volumeMounts"][0], mounts[0])
        empty = admitted(pod({"name": "web", "env": [{"name": "LD_PRELOAD", "value": ""}]}))
        self.assertEqual(preload(empty)[0]["value"], LIBRARY)

    def test_what_is_left_alone(self):
        elsewhere = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
        ours = {"name": "LD_PRELOAD", "value": "/usr/local/lib/libsnug.so"}
        for which, given in {
            "a variable that comes from elsewhere": pod({"name": "web", "env": [elsewhere]}),
            "a preload of snug": pod({"name": "web", "env": [ours]}),
            "a mount at our place": pod({"name": "web", "volumeMounts": [{"name": "x", "mountPath": "/opt/snug"}]}),
            "Windows": pod(os={"name": "windows"}),
            "nodes with Windows": pod(nodeSelector={"kubernetes.io/os": "windows"}),
            "a volume of our name": pod(volumes=[{"name": "snug", "emptyDir": {}}]),
            "containers of other names": pod(annotations={"snug.dev/containers": "worker"}),
            "a share of none": pod(annotations={"snug.dev/share": "0"}),
        }.items():
            with self.subTest(which):
                self.assertEqual(admitted(given), given)
        mixed = admitted(pod({"name": "web", "env": [elsewhere]}, {"name": "worker"}))
        self.assertEqual((preload(mixed), preload(mixed, 1)[0]["value"]), ([elsewhere], LIBRARY))

    def test_chosen_containers_and_no_init_containers(self):
        given = pod({"name": "web"}, {"name": "web-2"}, {"name": "proxy"}, annotations={"snug.dev/containers": "proxy,web-2"},
                    initContainers=[{"name": "migrate"}], nodeSelector={"disk": "fast"}, os={"name": "linux"})
        found = admitted(given)
        self.assertEqual([bool(preload(found, index)) for index in range(3)], [False, True, True])
        self.assertEqual(found["spec"]["initContainers"], [{"name": "migrate"}])

    def test_a_share_of_the_pods(self):
        def share(percent, **more):
            return sum(bool(preload(admitted(pod(token=f"kube-api-access-xxxx{letter}", **more), percent=percent))) for letter in LETTERS)
        self.assertEqual([share(percent) for percent in ("0", "1", "10", "50", "99", "100")], [0, 1, 3, 14, 27, 27])
        self.assertEqual(share("10", annotations={"snug.dev/share": "50"}), 14)
        places = next(variable for variable in POLICY["spec"]["variables"] if variable["name"] == "places")
        places = cel.evaluate(places["expression"], {})
        self.assertEqual([places[letter] for letter in LETTERS], list(range(27)))
        # Without a token's volume only a pod with a name can be told from the others.
        given = pod(token=None)
        self.assertEqual(admitted(given, percent="50"), given)
        named = [copy.deepcopy(given) for _ in range(10)]
        for index, one in enumerate(named):
            one["metadata"]["name"] = f"db-{index}"
        self.assertEqual([bool(preload(admitted(one, percent="50"))) for one in named].count(True), 3)

    def test_nonsense_raises_and_so_changes_nothing(self):
        self.assertEqual(POLICY["spec"]["failurePolicy"], "Ignore")
        for delivery in ("'image-volume'", "'init-container'"):
            with self.subTest(delivery=delivery), self.assertRaisesRegex(RuntimeError, "'int' error"):
                admitted(pod(annotations={"snug.dev/share": "some"}), delivery=delivery)
            for image in ("''", "' '", "' registry.example.com/snug'"):
                with self.subTest(image=image):
                    self.assertEqual(admitted(pod(), image=image, delivery=delivery), pod())

    def test_an_init_container_that_copies(self):
        same = {"cpu": "1", "memory": "1Gi"}
        given = pod({"name": "web", "resources": {"limits": same, "requests": same}}, initContainers=[{"name": "migrate"}])
        found = admitted(given, delivery="'init-container'")
        self.assertEqual([entry["name"] for entry in found["spec"]["initContainers"]], ["snug", "migrate"])
        self.assertEqual(found["spec"]["initContainers"][0]["resources"], {"limits": same, "requests": same})
        self.assertEqual([volume for volume in found["spec"]["volumes"] if volume["name"] == "snug"], [{"name": "snug", "emptyDir": {"sizeLimit": "32Mi"}}])
        self.assertEqual(preload(found), [{"name": "LD_PRELOAD", "value": LIBRARY}])
        self.assertEqual(admitted(found, delivery="'init-container'"), found)
        bare = admitted({"metadata": {}, "spec": {"containers": [{"name": "web"}]}}, delivery="'init-container'")
        self.assertNotIn("resources", bare["spec"]["initContainers"][0])
        # The same as the patch of a Deployment.
        by_hand = documents("deployment-init-container.yaml")[0]["spec"]["template"]["spec"]["initContainers"][0]
        ours = bare["spec"]["initContainers"][0]
        for name in ("image", "args", "volumeMounts", "securityContext"):
            self.assertEqual(ours[name], by_hand[name])

    def test_without_the_volume_nothing_is_mounted(self):
        """If the first mutation failed, which the server leaves at that, the second must not break the pod."""
        second = {**POLICY["spec"], "mutations": POLICY["spec"]["mutations"][1:]}
        with unittest.mock.patch.dict(POLICY, {"spec": second}):
            self.assertEqual(admitted(pod(), delivery="'init-container'"), pod())


class Manifests(unittest.TestCase):
    def test_the_policy_is_as_the_schema_says(self):
        for name in ("policy/policy.yaml", "policy/bindings.yaml"):
            for document in documents(name):
                with self.subTest(name=name, kind=document["kind"]):
                    kubernetes_validate.validate(document, NEWEST, strict=True)
        wrong = copy.deepcopy(POLICY)
        wrong["spec"]["failurePolicy"] = 1
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, NEWEST, strict=True)

    def test_names_agree(self):
        for binding in documents("policy/bindings.yaml"):
            self.assertEqual(binding["spec"]["policyName"], POLICY["metadata"]["name"])
        values = yaml.safe_load((FOLDER / "chart/values.yaml").read_text())
        settings = {variable["name"]: variable["expression"] for variable in POLICY["spec"]["variables"][:3]}
        self.assertEqual(settings, {"image": f"'{values['image']}'", "percent": "100", "delivery": "'image-volume'"})

    def test_there_is_one_version(self):
        version = (ROOT / "VERSION").read_text().strip()
        chart = yaml.safe_load((FOLDER / "chart/Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        files = [*FOLDER.glob("*.yaml"), *FOLDER.glob("policy/*.yaml"), FOLDER / "chart/values.yaml"]
        named = {tag for file in files for tag in re.findall(r"registry\.example\.com/snug:([\w.]+)", file.read_text())}
        self.assertEqual(named, {version})

    def test_values_of_the_chart(self):
        """The schema takes the values that the chart has, names each of them, and refuses what makes no sense."""
        values = yaml.safe_load((FOLDER / "chart/values.yaml").read_text())
        schema = json.loads((FOLDER / "chart/values.schema.json").read_text())
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.validate(values, schema)
        named = {name: set(entry.get("properties", {})) for name, entry in schema["properties"].items() if name != "global"}
        self.assertEqual(named, {name: set(entry) if isinstance(entry, dict) else set() for name, entry in values.items()})
        for name, key, value in (("policy", "share", 101), ("policy", "share", -1), ("policy", "share", "10"), ("policy", "delivery", "volume"),
                                 ("policy", "shares", 1), ("policy", "namespaces", ["Shop"]), ("exporter", "port", 0), ("monitoring", "interval", "soon"),
                                 ("test", "image", "a b")):
            with self.subTest(key=key, value=value), self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate({**values, name: {**values[name], key: value}}, schema)
        for image in ("", "a'b", "a b", "-a"):
            with self.subTest(image=image), self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate({**values, "image": image}, schema)

    def test_patches_of_a_deployment(self):
        deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "web", "image": "shop", "env": [{"name": "A", "value": "1"}]}, {"name": "proxy", "image": "proxy"}]}}}}
        kubernetes_validate.validate(merged(deployment, documents("exporter-sidecar.yaml")[0]), OLDER, strict=True)
        for name, version in (("deployment-image-volume.yaml", NEWEST), ("deployment-init-container.yaml", OLDER)):
            with self.subTest(name=name):
                found = merged(deployment, documents(name)[0])
                kubernetes_validate.validate(found, version, strict=True)
                template = found["spec"]["template"]["spec"]
                self.assertEqual(preload({"spec": template}), [{"name": "LD_PRELOAD", "value": LIBRARY}])
                self.assertNotIn("env", template["containers"][1])

    def test_the_exporter_answers_its_probes(self):
        """Wherever it serves, also in the chart, whose templates only Helm reads. Beside an application it has no say in whether
        the pod is ready."""
        serving = [container for file in FOLDER.glob("*.yaml") for document in documents(file.name)
                   for container in containers(document) if "exporter" in container.get("args", [])]
        self.assertEqual([container["name"] for container in serving], ["snug-exporter"])
        probed = set(re.findall(r"httpGet: \{path: (\S+), port: (\w+)\}", (FOLDER / "chart/templates/exporter.yaml").read_text()))
        self.assertEqual({port for _, port in probed}, {"metrics"})
        for container in serving:
            self.assertNotIn("readinessProbe", container)
            asked = container["livenessProbe"]["httpGet"]
            self.assertIn(asked["port"], [port["name"] for port in container["ports"]])
            probed.add((asked["path"], asked["port"]))
        exporter = subprocess.Popen([ROOT / "build/snug", "exporter", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (exporter.kill(), exporter.communicate()))
        address = re.match(r"snug: metrics at (http://\S+)/metrics\n", exporter.stderr.readline())[1]
        for path, _ in sorted(probed):
            with self.subTest(path=path), urllib.request.urlopen(address + path, timeout=60) as answer:
                self.assertEqual(answer.status, 200)

    def test_the_analysis(self):
        """Its job is Kubernetes' own; what is around it is Argo's, whose schema is not at hand."""
        template = documents("argo-analysis.yaml")[0]
        job = template["spec"]["metrics"][0]["provider"]["job"]
        kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, **job}, NEWEST, strict=True)
        given = {argument["name"] for argument in template["spec"]["args"]}
        arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
        self.assertEqual(set(re.findall(r"\{\{args\.(\w+)\}\}", " ".join(arguments))), given)
        values = {"prometheus": "http://127.0.0.1:1", "selector": "a=\"b\"", "canary": "c=\"d\"", "wait": "1s"}
        words = [re.sub(r"\{\{args\.(\w+)\}\}", lambda name: values[name[1]], word) for word in arguments]
        done = subprocess.run([ROOT / "build/snug", *words], capture_output=True, text=True)
        self.assertIn("cannot ask Prometheus at http://127.0.0.1:1", done.stderr)

    @unittest.skipUnless(shutil.which("kustomize") or shutil.which("kubectl"), "Debian has neither kustomize nor kubectl")
    def test_kustomize_builds_it(self):
        program = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
        done = subprocess.run([*program, FOLDER / "policy"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = sorted(document["kind"] for document in yaml.safe_load_all(done.stdout))
        self.assertEqual(kinds, ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"])


if __name__ == "__main__":
    sys.exit(unittest.main())
