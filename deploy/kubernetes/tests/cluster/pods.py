"""Pods to submit, and what the policy made of them."""

import json
import unittest

from control_plane import ROOT, wait_for

POLICY = ROOT / "deploy/kubernetes/policy"
LIBRARY = "/opt/snug/libsnug.so"
IMAGE = "registry.example.com/snug:0.2.0"
ASKS = {"snug.dev/inject": "true"}
PLACE = {"name": "snug", "mountPath": "/opt/snug", "readOnly": True}
# The settings of a container that a namespace of PodSecurity's profile "restricted" admits.
RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True, "runAsUser": 10001,
              "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


def container(name="web", **more):
    return {"name": name, "image": "shop", **more}


def pod(*containers, labels=ASKS, annotations=None, namespace="default", name=None, **spec):
    metadata = {"namespace": namespace, "labels": dict(labels), "annotations": dict(annotations or {})}
    metadata.update({"name": name} if name else {"generateName": "web-5d9-"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers) or [container()], **spec}}


def preload(entry):
    return [variable for variable in entry.get("env", []) if variable["name"] == "LD_PRELOAD"]


def has_snug(entry):
    """Whether a container has all that it needs, or nothing at all."""
    found = any(LIBRARY in variable.get("value", "") for variable in preload(entry))
    mounted = [mount for mount in entry.get("volumeMounts", []) if mount["mountPath"] == "/opt/snug"]
    if mounted != ([PLACE] if found else []):
        raise AssertionError(f"half injected: {entry}")
    return found


def injected(found):
    """Whether each container of a pod has snug. If it has, all parts must be there: the volume, its filler, the label."""
    each = [has_snug(entry) for entry in found["spec"]["containers"]]
    volumes = [volume for volume in found["spec"].get("volumes", []) if volume["name"] == "snug"]
    fillers = [entry for entry in found["spec"].get("initContainers", []) if entry["name"] == "snug"]
    copied = any("emptyDir" in volume for volume in volumes)
    label = found["metadata"].get("labels", {}).get("snug.dev/group")
    if (len(volumes), len(fillers), label) != ((1, int(copied), "canary") if any(each) else (0, 0, None)):
        raise AssertionError(f"half injected: {found}")
    return each


def image_of(found):
    """The reference of a pod's image volume."""
    return next((volume["image"]["reference"] for volume in found["spec"].get("volumes", []) if "image" in volume), None)


class Cluster(unittest.TestCase):
    """What tests ask of the control plane that their module starts."""

    plane = None

    @classmethod
    def apply_policy(cls):
        """The policy with the settings of its file; returns when the server has seen it."""
        cls.plane.kubectl("apply", "-k", POLICY)
        wait_for(lambda: image_of(cls.create(pod())[0]) == IMAGE, "the policy applies")

    @classmethod
    def create(cls, given):
        """The pods as the server would keep them. One that is refused raises."""
        return cls.plane.objects("create", "--dry-run=server", "-f", "-", given=given)

    @classmethod
    def admit(cls, given):
        return injected(cls.create(given)[0])

    def namespace(self, name, labels):
        self.plane.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self.addCleanup(self.plane.kubectl, "delete", "namespace", name, "--wait=false")
        wait_for(lambda: self.plane.kubectl("-n", name, "get", "serviceaccount", "default", check=False).returncode == 0, "the account")

    def settings(self, **expressions):
        """Replaces settings of the policy, by their names, until the test ends."""
        self.addCleanup(self.apply_policy)
        places = ["image", "percent", "delivery"]
        patch = [{"op": "replace", "path": f"/spec/variables/{places.index(name)}", "value": {"name": name, "expression": expression}}
                 for name, expression in expressions.items()]
        self.plane.kubectl("patch", "mutatingadmissionpolicy", "snug", "--type", "json", "--patch", json.dumps(patch))

    def everything(self):
        kinds = self.plane.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
        kinds = ",".join(kind for kind in kinds if not kind.startswith(("events", "leases", "componentstatuses")))
        return {(found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"])
                for found in self.plane.objects("get", kinds, "--all-namespaces")}
