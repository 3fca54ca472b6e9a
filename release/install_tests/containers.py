"""An engine of containers with the image of snug and a clean Debian in it, in a storage of its own."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import unittest

from release.install_tests.roots import TREES, check, debian
from release.project import ROOT, VERSION

# Several tests of a guide's Dockerfile build it of a Debian that lies here: nothing is fetched.
STORAGE = TREES / "containers"
# No network, and no limits beyond those of this machine's own users.
QUIET = ["--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
UNDER_SNUG = "exit File.read('/proc/self/maps').include?('/libsnug.so') && (1..9).map { Thread.new { ?x * 9000 } }.map(&:value).size == 9"
# podman's runtime refuses to see the second hierarchy of control groups beside the first.
UNIFIED = "/sys/fs/cgroup/unified"
WITHOUT_UNIFIED = ["unshare", "--mount", "sh", "-c", f'if [ -d {UNIFIED} ]; then umount {UNIFIED}; fi; exec "$@"', "sh"]


@functools.cache
def run_root():
    """podman refuses one of more than 50 characters, as a folder below a checkout may have."""
    path = tempfile.mkdtemp(prefix="snug-podman-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def options():
    """podman's options for the storage: layers laid over each other, or copied where the file system can't do that, as within another
    container. Copies of all layers are some 20 GB to write and to remove."""
    store = ["--root", str(STORAGE), "--runroot", run_root(), "--cgroup-manager", "cgroupfs"]
    overlay = ["--storage-driver", "overlay", *store]
    works = subprocess.run([*WITHOUT_UNIFIED, "podman", *overlay, "info"], capture_output=True).returncode == 0
    shutil.rmtree(STORAGE, ignore_errors=True)
    return overlay if works else ["--storage-driver", "vfs", *store]


def engine(*words):
    return check([*WITHOUT_UNIFIED, "podman", *options(), *map(str, words)])


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("podman"), "needs root and podman")
class Containers(unittest.TestCase):
    """Has snug:VERSION and clean-debian while its tests run."""

    @classmethod
    def setUpClass(cls):
        options()
        shutil.rmtree(STORAGE, ignore_errors=True)
        STORAGE.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, STORAGE)
        engine("load", "--input", ROOT / f"build/dist/snug-{VERSION}-image.tar")
        engine("import", debian(), "localhost/clean-debian")

    def folder(self, name):
        path = STORAGE / name
        path.mkdir()
        return path
