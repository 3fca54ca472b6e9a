"""An engine of containers with the image of snug and a clean Debian in it, in a storage of its own."""

import os
import shutil
import unittest

from packages.project import ROOT, VERSION
from packages.release_tests.roots import TREES, check, debian

# Several tests of a guide's Dockerfile build it of a Debian that lies here: nothing is fetched.
STORAGE = TREES / "containers"
ENGINE = ["podman", "--root", str(STORAGE), "--runroot", str(STORAGE / "run"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
# No network, and no limits beyond those of this machine's own users.
QUIET = ["--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
UNDER_SNUG = "exit File.read('/proc/self/maps').include?('/libsnug.so') && (1..9).map { Thread.new { ?x * 9000 } }.map(&:value).size == 9"
# podman's runtime refuses to see the second hierarchy of control groups beside the first.
UNIFIED = "/sys/fs/cgroup/unified"
WITHOUT_UNIFIED = ["unshare", "--mount", "sh", "-c", f'if [ -d {UNIFIED} ]; then umount {UNIFIED}; fi; exec "$@"', "sh"]


def engine(*words):
    return check([*WITHOUT_UNIFIED, *ENGINE, *map(str, words)])


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("podman"), "needs root and podman")
class Containers(unittest.TestCase):
    """Has snug:VERSION and clean-debian while its tests run."""

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(STORAGE, ignore_errors=True)
        STORAGE.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, STORAGE)
        engine("load", "--input", ROOT / f"build/dist/snug-{VERSION}-image.tar")
        engine("import", debian(), "localhost/clean-debian")

    def folder(self, name):
        path = STORAGE / name
        path.mkdir()
        return path
