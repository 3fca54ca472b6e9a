"""Clean root file systems, and programs that run in them."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from release.project import ROOT

TREES = ROOT / "build/roots"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "ruby python3-venv gcc libc6-dev redis-server"


def debian(codename="bookworm", packages=PACKAGES):
    """The path of a tar archive of a Debian, made once by debootstrap: with Ruby, Python, a compiler and Redis, or with other `packages`, or none."""
    archive = TREES / f"{codename}-{'packages' if packages == PACKAGES else packages.replace(' ', '-') or 'bare'}.tar"
    if not archive.exists():
        TREES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TREES) as folder:
            tree = Path(folder) / "tree"
            check(["debootstrap", "--variant=minbase", codename, str(tree), MIRROR])
            shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
            check(["chroot", str(tree), "sh", "-c", "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && "
                   f"apt-get -qq install -y --no-install-recommends {packages} && apt-get clean"])
            check(["tar", "-C", str(tree), "-cf", f"{folder}/tar", "."])
            Path(folder, "tar").rename(archive)
    return archive


def check(command, **options):
    """Runs a command and returns what it wrote, errors too; raises with that if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=1800, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout[-3000:]}")
    return result.stdout


class Root:
    """A root file system in a folder of its own, of an archive or empty; remove() takes it away."""

    def __init__(self, archive=None):
        TREES.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(dir=TREES, prefix="run-"))
        self.path.chmod(0o755)
        if archive:
            check(["tar", "-C", str(self.path), "-xf", str(archive)])
        (self.path / "proc").mkdir(exist_ok=True)

    def run(self, script, shell="/bin/sh", network=True):
        """Runs a script of the shell inside, with processes and mounts of its own, and with or without a network; returns what it wrote."""
        inside = ["chroot", str(self.path), shell, "-ec", script]
        return check(["unshare", *([] if network else ["--net"]), "--mount", "--pid", "--fork", f"--mount-proc={self.path}/proc", *inside],
                     env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"})

    def remove(self):
        shutil.rmtree(self.path)
