"""Control groups named as a kubelet names them, and a folder with what the exporter reads of the host of such pods."""

import os
import pathlib
import shutil
import tempfile
import time

WAITS_S = 120
NAMESPACE = "shop"


def memory_root():
    """Where control groups that count memory can be made; None: nowhere."""
    for root, version in (("/sys/fs/cgroup/memory", 1), ("/sys/fs/cgroup", 2)):
        controllers = pathlib.Path(root, "cgroup.subtree_control")
        counts = version == 1 or (controllers.exists() and "memory" in controllers.read_text().split())
        if counts and os.access(root, os.W_OK) and pathlib.Path(root, "cgroup.procs").exists():
            return pathlib.Path(root), version
    return None


class PodGroups:
    """The control groups of some pods, below `top`, and `host`, the folder for the exporter's option --host. `remove` takes
    all of it away, once the processes in it have ended.

    OSError: no control group can be made here."""

    def __init__(self):
        root = memory_root()
        if root is None or os.geteuid() != 0:
            raise OSError("needs root and the memory controller")
        root, version = root
        self.limit_file = "memory.limit_in_bytes" if version == 1 else "memory.max"
        self.top = root / f"snug-test-{os.getpid()}"
        self._groups = []
        self._make(self.top)
        self.host = pathlib.Path(tempfile.mkdtemp(prefix="snug-host-"))
        (self.host / "sys/fs").mkdir(parents=True)
        (self.host / "sys/fs/cgroup").symlink_to("/sys/fs/cgroup")
        self._logs = self.host / "var/log/containers"
        self._logs.mkdir(parents=True)

    def pod(self, identifier):
        """Makes the group of a pod. Returns its path."""
        path = self.top / "kubepods-burstable.slice" / f"kubepods-burstable-pod{identifier.replace('-', '_')}.slice"
        self._make(path)
        return path

    def container(self, pod, identifier, names=None):
        """Makes the group of a container, of 64 hexadecimal digits, in the group of its pod. Returns its path.
        `names`: of the pod and the container, if the exporter is to find them."""
        path = pod / f"cri-containerd-{identifier}.scope"
        self._make(path)
        if names:
            (self._logs / f"{names[0]}_{NAMESPACE}_{names[1]}-{identifier}.log").symlink_to("/var/log/pods/of-no-importance")
        return path

    def _make(self, path):
        for directory in [*reversed(path.parents), path]:
            if self.top in [directory, *directory.parents] and not directory.exists():
                directory.mkdir()
                self._groups.append(directory)
                if (directory.parent / "cgroup.subtree_control").exists() and directory != self.top:
                    (directory.parent / "cgroup.subtree_control").write_text("+memory")

    def remove(self):
        """A group is busy until the kernel has forgotten its last process."""
        shutil.rmtree(self.host)
        deadline = time.monotonic() + WAITS_S
        for group in reversed(self._groups):
            while True:
                try:
                    group.rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
