"""The policy in a real API server: what becomes of pods that are created, and whether each is admitted.

`make test-kubernetes` compiles the server first. No kubelet is there: that a kubelet mounts the volume is not tested.
"""

import copy
import json
import sys
import unittest
from pathlib import Path

from control_plane import ControlPlane, wait_for
from pods import ASKS, IMAGE, LIBRARY, POLICY, RESTRICTED, Cluster, container, injected, pod, preload


def setUpModule():
    Cluster.plane = ControlPlane()
    unittest.addModuleCleanup(Cluster.plane.stop)
    Cluster.plane.start()
    Cluster.apply_policy()


class Chosen(Cluster):
    def test_a_pod_that_asks(self):
        found = self.create(pod())[0]
        self.assertEqual(injected(found), [True])
        self.assertEqual(preload(found["spec"]["containers"][0]), [{"name": "LD_PRELOAD", "value": LIBRARY}])
        volume = next(volume for volume in found["spec"]["volumes"] if volume["name"] == "snug")
        self.assertEqual(volume["image"], {"reference": IMAGE, "pullPolicy": "IfNotPresent"})

    def test_pods_that_do_not(self):
        self.assertEqual(self.admit(pod(labels={})), [False])
        self.assertEqual(self.admit(pod(labels={"snug.dev/inject": "false"})), [False])
        self.assertEqual(self.admit(pod(labels={"snug.dev/inject": "yes"})), [False])

    def test_a_namespace_that_asks(self):
        self.namespace("asks", ASKS)
        wait_for(lambda: self.admit(pod(namespace="asks", labels={})) == [True], "the namespace's label applies")
        self.assertEqual(self.admit(pod(namespace="asks")), [True], "by both bindings")
        self.assertEqual(self.admit(pod(namespace="asks", labels={"snug.dev/inject": "false"})), [False])

    def test_windows(self):
        self.assertEqual(self.admit(pod(os={"name": "windows"})), [False])
        self.assertEqual(self.admit(pod(nodeSelector={"kubernetes.io/os": "windows"})), [False])
        self.assertEqual(self.admit(pod(os={"name": "linux"}, nodeSelector={"kubernetes.io/os": "linux", "disk": "fast"})), [True])

    def test_containers_by_annotation(self):
        three = [container(name) for name in ("web", "web-2", "proxy")]
        self.assertEqual(self.admit(pod(*three)), [True, True, True])
        self.assertEqual(self.admit(pod(*three, annotations={"snug.dev/containers": "proxy,web-2"})), [False, True, True])
        self.assertEqual(self.admit(pod(*three, annotations={"snug.dev/containers": "none"})), [False, False, False])

    def test_init_containers_stay_as_they_are(self):
        given = [container("migrate", env=[{"name": "A", "value": "1"}]), container("mesh", restartPolicy="Always")]
        found = self.create(pod(initContainers=given))[0]
        self.assertEqual(injected(found), [True])
        for entry in found["spec"]["initContainers"]:
            self.assertNotIn("/opt/snug", json.dumps(entry))

    def test_pods_that_controllers_make(self):
        self.namespace("made", ASKS)
        wait_for(lambda: self.admit(pod(namespace="made", labels={})) == [True], "the namespace's label applies")
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()]}}
        common = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        stateful = {**common, "serviceName": "db", "podManagementPolicy": "Parallel"}
        for kind, spec in (("Deployment", common), ("StatefulSet", stateful)):
            name = kind.lower()
            self.plane.kubectl("create", "-f", "-", given={"apiVersion": "apps/v1", "kind": kind, "spec": spec,
                                                           "metadata": {"name": name, "namespace": "made"}})

            def made(name=name):
                pods = self.plane.objects("-n", "made", "get", "pods")
                return [found for found in pods if found["metadata"]["name"].startswith(name)]
            wait_for(lambda made=made: len(made()) == 4, f"the {kind} makes its pods")
            self.assertEqual([injected(found) for found in made()], [[True]] * 4, kind)


class LeftAsItIs(Cluster):
    def test_a_preload_of_the_pod_stays_behind_ours(self):
        env = [{"name": "A", "value": "1"}, {"name": "LD_PRELOAD", "value": "/lib/other.so"}, {"name": "B", "value": "$(A)"}]
        entry = self.create(pod(container(env=env)))[0]["spec"]["containers"][0]
        self.assertEqual(entry["env"], [env[0], {"name": "LD_PRELOAD", "value": f"{LIBRARY}:/lib/other.so"}, env[2]])
        entry = self.create(pod(container(env=[{"name": "LD_PRELOAD", "value": ""}])))[0]["spec"]["containers"][0]
        self.assertEqual(preload(entry)[0]["value"], LIBRARY)

    def test_a_preload_from_elsewhere_is_not_touched(self):
        elsewhere = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
        found = self.create(pod(container(env=[elsewhere]), container("worker")))[0]
        self.assertEqual(injected(found), [False, True])
        self.assertEqual(found["spec"]["containers"][0]["env"], [elsewhere])

    def test_places_that_are_taken(self):
        mine = [{"name": "x", "emptyDir": {}}]
        taken = self.create(pod(container(volumeMounts=[{"name": "x", "mountPath": "/opt/snug"}]), volumes=mine))[0]
        self.assertEqual(preload(taken["spec"]["containers"][0]), [])
        named = self.create(pod(volumes=[{"name": "snug", "emptyDir": {}}]))[0]
        self.assertEqual(preload(named["spec"]["containers"][0]), [])

    def test_variables_and_mounts_of_the_pod(self):
        env = [{"name": "A", "value": "1"}, {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
        given = container(env=env, envFrom=[{"configMapRef": {"name": "c"}}], ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                          volumeMounts=[{"name": "data", "mountPath": "/data"}], command=["web"], args=["--fast"])
        request = pod(given, volumes=[{"name": "data", "emptyDir": {}}], hostNetwork=False)
        request["metadata"]["labels"]["app"] = "web"
        with_snug = self.create(request)[0]
        request["metadata"]["labels"]["snug.dev/inject"] = "false"
        without = self.create(request)[0]
        self.assertEqual((injected(with_snug), injected(without)), ([True], [False]))
        self.assertEqual(self.stripped(with_snug), self.stripped(without))

    def stripped(self, found):
        """The pod without what we put into it, and without what is random."""
        result = copy.deepcopy(found)
        result["metadata"] = {"labels": {name: value for name, value in found["metadata"]["labels"].items() if not name.startswith("snug.dev/")}}
        spec = result["spec"]
        spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] == "data"]
        for entry in spec["containers"]:
            entry["env"] = [variable for variable in entry["env"] if variable["name"] != "LD_PRELOAD"]
            entry["volumeMounts"] = [mount for mount in entry["volumeMounts"] if mount["mountPath"] == "/data"]
        return result

    def test_a_second_time_changes_nothing(self):
        for given in (container(), container(env=[{"name": "LD_PRELOAD", "value": "/lib/other.so"}])):
            once = self.create(pod(given))[0]
            self.assertEqual(injected(once), [True])
            again = copy.deepcopy(once)
            for name in ("name", "uid", "creationTimestamp", "managedFields", "resourceVersion"):
                again["metadata"].pop(name, None)
            self.assertEqual(self.create(again)[0]["spec"], once["spec"])

    def test_read_only_roots_and_users_that_are_not_root(self):
        found = self.create(pod(container(securityContext=RESTRICTED), securityContext={"fsGroup": 10001}))[0]
        self.assertEqual(injected(found), [True])
        self.assertEqual(found["spec"]["containers"][0]["securityContext"], RESTRICTED)
        self.assertEqual(found["spec"]["securityContext"], {"fsGroup": 10001})

    def test_a_namespace_that_restricts_pods(self):
        self.namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})

        def refused():
            done = self.plane.kubectl("create", "--dry-run=server", "-f", "-", given=pod(namespace="restricted"), check=False)
            return "violates PodSecurity" in done.stderr
        wait_for(refused, "other pods are refused")
        self.assertEqual(self.admit(pod(container(securityContext=RESTRICTED), namespace="restricted")), [True])

    def test_a_variable_that_is_named_twice_stays_so(self):
        twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        found = self.create(pod(container(env=twice)))[0]
        self.assertEqual(injected(found), [True])
        env = found["spec"]["containers"][0]["env"]
        self.assertEqual([variable for variable in env if variable["name"] == "A"], twice)


class Copied(Cluster):
    """The delivery by an init container."""

    def setUp(self):
        self.settings(delivery="'init-container'")
        wait_for(lambda: self.filler(self.create(pod())[0]), "pods get an init container")

    def filler(self, found):
        first = found["spec"].get("initContainers", [{"name": None}])[0]
        return first if first["name"] == "snug" else None

    def test_a_pod_that_asks(self):
        found = self.create(pod())[0]
        self.assertEqual(injected(found), [True])
        filler = self.filler(found)
        self.assertEqual((filler["image"], filler["args"], filler.get("resources")), (IMAGE, ["install", "/opt/snug"], {}))
        volume = next(volume for volume in found["spec"]["volumes"] if volume["name"] == "snug")
        self.assertEqual(volume["emptyDir"], {"sizeLimit": "32Mi"})

    def test_other_init_containers_come_after_it(self):
        given = [container("migrate"), container("mesh", restartPolicy="Always")]
        found = self.create(pod(initContainers=given))[0]
        self.assertEqual(injected(found), [True])
        self.assertEqual([entry["name"] for entry in found["spec"]["initContainers"]], ["snug", "migrate", "mesh"])
        for entry in found["spec"]["initContainers"][1:]:
            self.assertNotIn("/opt/snug", json.dumps(entry))

    def test_pods_that_get_nothing_get_no_init_container(self):
        elsewhere = {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
        for given in (pod(labels={}), pod(os={"name": "windows"}), pod(annotations={"snug.dev/share": "0"}), pod(container(env=[elsewhere])),
                      pod(annotations={"snug.dev/containers": "none"}), pod(annotations={"snug.dev/share": "some"})):
            with self.subTest(given=given):
                self.assertEqual(self.admit(given), [False])

    def test_a_preload_of_the_pod_stays_behind_ours(self):
        entry = self.create(pod(container(env=[{"name": "LD_PRELOAD", "value": "/lib/other.so"}])))[0]["spec"]["containers"][0]
        self.assertEqual(preload(entry)[0]["value"], f"{LIBRARY}:/lib/other.so")

    def test_a_second_time_changes_nothing(self):
        once = self.create(pod(initContainers=[container("migrate")]))[0]
        self.assertEqual(injected(once), [True])
        again = copy.deepcopy(once)
        for name in ("name", "uid", "creationTimestamp", "managedFields", "resourceVersion"):
            again["metadata"].pop(name, None)
        self.assertEqual(self.create(again)[0]["spec"], once["spec"])

    def test_it_asks_for_what_the_pod_asks_for(self):
        """So neither the pod's class of service nor what it takes of a node or a quota changes."""
        same = {"cpu": "2", "memory": "1Gi"}
        for resources, qos in (({"requests": same, "limits": same}, "Guaranteed"), ({"requests": same}, "Burstable"), ({}, "BestEffort")):
            with self.subTest(qos=qos):
                found = self.create(pod(container(resources=resources)))[0]
                self.assertEqual((injected(found), found["status"]["qosClass"]), ([True], qos))
                self.assertEqual(self.filler(found)["resources"], resources)

    def test_quotas_and_limits_of_a_namespace(self):
        self.namespace("limited", {"pod-security.kubernetes.io/enforce": "restricted"})
        limits = {"type": "Container", "min": {"memory": "64Mi", "cpu": "100m"}, "max": {"memory": "2Gi", "cpu": "4"},
                  "default": {"memory": "512Mi", "cpu": "1"}, "defaultRequest": {"memory": "256Mi", "cpu": "500m"}}
        hard = {"requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "2", "limits.memory": "2Gi"}
        for kind, spec in (("LimitRange", {"limits": [limits]}), ("ResourceQuota", {"hard": hard})):
            self.plane.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": kind, "spec": spec,
                                                           "metadata": {"name": "limits", "namespace": "limited"}})
        little = container(securityContext=RESTRICTED, resources={"requests": {"memory": "32Mi"}})

        def refused():
            done = self.plane.kubectl("create", "--dry-run=server", "-f", "-", given=pod(little, namespace="limited"), check=False)
            return "per Container is 64Mi" in done.stderr
        wait_for(refused, "limits apply")
        found = self.create(pod(container(securityContext=RESTRICTED), namespace="limited"))[0]
        self.assertEqual(injected(found), [True])
        self.assertEqual(self.filler(found)["resources"], {"limits": limits["default"], "requests": limits["defaultRequest"]})


class Settings(Cluster):
    def test_shares(self):
        many = {"apiVersion": "v1", "kind": "List", "items": [pod(labels={**ASKS, "test": "share"}) for _ in range(100)]}
        self.settings(percent="0")
        wait_for(lambda: self.admit(pod()) == [False], "no pod is chosen")
        self.assertEqual(sum(injected(found)[0] for found in self.create(many)), 0)
        self.settings(percent="50")
        wait_for(lambda: sum(injected(found)[0] for found in self.create(many)), "some pods are chosen")
        # Of 27 letters 14: 52 of 100 to be expected. Seven standard deviations, of 5 pods each, are not by chance.
        count = sum(injected(found)[0] for found in self.create(many))
        self.assertTrue(17 < count < 87, count)
        self.assertEqual(self.admit(pod(annotations={"snug.dev/share": "100"})), [True])
        self.assertEqual(self.admit(pod(annotations={"snug.dev/share": "0"})), [False])

    def test_a_share_of_pods_with_names(self):
        def chosen(*names, **more):
            return [self.admit(pod(name=name, annotations={"snug.dev/share": "50"}, automountServiceAccountToken=False, **more)) for name in names]
        names = [f"db-{index}" for index in range(10)]
        self.assertEqual([found == [True] for found in chosen(*names)], [letter in "013" for letter in "0123456789"])
        # No name, no token: nothing tells them apart.
        self.assertEqual(chosen(None), [[False]])

    def test_nonsense_stops_no_pod(self):
        for share in ("some", "", "-5", "50%", "1e3", "99999999999999999999"):
            with self.subTest(annotation=share):
                self.assertEqual(self.admit(pod(annotations={"snug.dev/share": share})), [False])
        for data in ({"image": "''"}, {"image": "' '"}, {"image": f"' {IMAGE}'"}, {"percent": "-5"}):
            with self.subTest(settings=data):
                self.settings(**data)
                wait_for(lambda: self.admit(pod()) == [False], f"{data} applies")
                self.apply_policy()

    def test_settings_that_are_no_expressions_are_refused(self):
        for data in ({"percent": "'all'"}, {"percent": ""}, {"percent": "100 %"}, {"image": IMAGE}):
            with self.subTest(settings=data), self.assertRaisesRegex(AssertionError, "is invalid"):
                self.settings(**data)
        self.assertEqual(self.admit(pod()), [True])


class Deleted(Cluster):
    """In a control plane of its own, so that all that is there is known."""

    @classmethod
    def setUpClass(cls):
        cls.plane = ControlPlane()
        cls.addClassCleanup(cls.plane.stop)
        cls.plane.start()

    def test_delete_leaves_nothing(self):
        before = self.everything()
        self.apply_policy()
        self.assertIn(("MutatingAdmissionPolicy", None, "snug"), self.everything() - before)
        self.plane.kubectl("delete", "-k", POLICY)
        self.assertEqual(self.everything() - before, set())
        wait_for(lambda: self.admit(pod()) == [False], "pods are as they were")
        self.apply_policy()  # and comes back


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(__file__).parent))
    unittest.main()
