"""Programs in containers with a memory limit: by podman, else by a control group alone, else without any limit."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..workloads.harness import memory

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"

CGROUP_V1 = Path("/sys/fs/cgroup/memory")
CGROUP_V2 = Path("/sys/fs/cgroup")
UNIFIED = Path("/sys/fs/cgroup/unified")  # beside version 1, where crun wants none of it
SHARED_FOLDERS = ("/usr", "/etc", "/var/lib/gems")  # of this machine, to read only
LINKS = ("bin", "sbin", "lib", "lib64")
OWN_NAMESPACE = "SOAK_OWN_NAMESPACE"
START_SECONDS = 60


class ContainerError(Exception):
    """The text says what to do."""


# Seconds since boot at which a slice shall begin, besides as it is: short before milliseconds overflow 31 and 32 bits, and
# years of uptime.
UPTIMES = ((1 << 31) // 1000 - 1200, (1 << 32) // 1000 - 1200, 1200 * 24 * 3600)


def enter_own_namespaces(slices_before):
    """Runs this program again where it may unmount the second hierarchy, which podman's runtime refuses to see, and where
    the time since boot differs from slice to slice."""
    if os.geteuid() != 0 or OWN_NAMESPACE in os.environ or shutil.which("unshare") is None:
        return
    options, script = ["-m"], 'exec "$@"'
    if UNIFIED.is_dir():
        script = f"umount {UNIFIED}; {script}"
    if (turn := slices_before % (len(UPTIMES) + 1)) > 0:
        offset = UPTIMES[turn - 1] - int(time.clock_gettime(time.CLOCK_BOOTTIME))
        clocks = ["-T", f"--monotonic={offset}", f"--boottime={offset}"]
        if offset > 0 and subprocess.run(["unshare", *clocks, "true"], capture_output=True).returncode == 0:
            options += clocks
    os.execvpe("unshare", ["unshare", *options, "sh", "-c", script, "sh", sys.executable, *sys.orig_argv[1:]],
               {**os.environ, OWN_NAMESPACE: "1"})


@contextlib.contextmanager
def chosen():
    """The best kind of container that works here, tried out: an object with `kind` and `start`. Leaving it removes what the
    kinds that were tried made for themselves."""
    with contextlib.ExitStack() as tried:
        for candidate in (Podman(), ControlGroup(), Bare()):
            tried.callback(candidate.remove)
            if candidate.works():
                break
        yield candidate


class Container:
    """A running one: its first process as this machine sees it, and what ends it."""

    def __init__(self, name, pid, launcher, log_path, group):
        self.name, self.pid, self.launcher, self.log_path = name, pid, launcher, log_path
        self.group = group  # its folder in the memory hierarchy; None without a limit

    def processes(self):
        return memory.process_tree(self.pid)

    def running(self):
        return self.launcher.poll() is None

    def limit_bytes(self):
        return _number(self.group, "memory.limit_in_bytes", "memory.max")

    USED_FILES = ("memory.usage_in_bytes", "memory.current")

    def used_bytes(self):
        return _number(self.group, *self.USED_FILES)

    def used_file(self):
        """The file that says how much is used; None: there is no limit."""
        return _file(self.group, *self.USED_FILES)

    def kills(self):
        """How many processes the kernel has OOM-killed here."""
        for name in ("memory.oom_control", "memory.events"):
            if self.group is not None and (self.group / name).exists():
                fields = dict(line.split() for line in (self.group / name).read_text().splitlines())
                return int(fields.get("oom_kill", 0))
        return 0

    def admit_self(self):
        """To be called in a new process: it counts as the container's from now on."""
        if self.group is not None:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def stop(self):
        if self.running():
            self.launcher.terminate()
            try:
                self.launcher.wait(20)
            except subprocess.TimeoutExpired:
                self.launcher.kill()
        return self.launcher.wait()


def _file(group, *names):
    """The first of these files that there is, or None."""
    return next((group / name for name in names if group is not None and (group / name).exists()), None)


def _number(group, *names):
    file = _file(group, *names)
    text = file.read_text().strip() if file is not None else ""
    return int(text) if text.isdigit() else None


def _group_of(pid):
    """The folder of a process in the memory hierarchy."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return CGROUP_V1 / path.lstrip("/")
        if not controllers and not CGROUP_V1.is_dir():
            return CGROUP_V2 / path.lstrip("/")
    return None


def _wait_for(condition, launcher, log_path):
    deadline = time.monotonic() + START_SECONDS
    while not (result := condition()):
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise ContainerError(f"a container did not start:\n{log_path.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return result


class Podman:
    """podman, with this machine's programs inside, so that no image is needed. Its storage is its own: that of root, which
    has one driver for all, is left alone."""

    kind = "podman"
    # Without CAP_SYS_RESOURCE podman's own limits cannot be set; what is asked for must not exceed ours.
    LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")

    def __init__(self):
        self.storage = self.state = None

    def works(self):
        if shutil.which("podman") is None or os.geteuid() != 0:
            return False
        BUILD.mkdir(exist_ok=True)
        self.storage = Path(tempfile.mkdtemp(prefix="soak-containers-", dir=BUILD))
        self.state = Path(tempfile.mkdtemp(prefix="soak-"))  # a --runroot of more than 50 characters is refused
        command = self._command(f"soak-{os.getpid()}-try", 64 << 20, self.storage, {}, self._root(), ["true"])
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.storage).returncode == 0

    def remove(self):
        """Ends what is left of its containers, too."""
        if self.storage is not None and self.state is not None:
            subprocess.run([*self._engine(), "rm", "--force", "--all", "--time", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for folder in filter(None, (self.storage, self.state)):
            try:
                shutil.rmtree(folder)
            except OSError as error:
                print(f"{folder} could not be removed: {error}", file=sys.stderr)
        self.storage = self.state = None

    def start(self, name, command, variables, limit_bytes, directory):
        log_path = directory / f"{name}.log"
        full_name = f"soak-{os.getpid()}-{name}"
        with open(log_path, "wb") as log:
            launcher = subprocess.Popen(
                self._command(full_name, limit_bytes, directory, variables, self._root(), command),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=directory)  # where podman's monitor leaves a file `oom` when the kernel killed something
        pid = _wait_for(lambda: self._pid_of(full_name), launcher, log_path)
        return Container(name, pid, launcher, log_path, _group_of(pid))

    def _pid_of(self, full_name):
        done = subprocess.run([*self._engine(), "inspect", "-f", "{{.State.Pid}}", full_name], capture_output=True, text=True)
        return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0

    def _root(self):
        """An empty root with the links of a merged /usr."""
        root = self.storage / "root"
        for folder in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "root"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for link in LINKS:
            if not (root / link).is_symlink():
                (root / link).symlink_to(f"usr/{link}")
        return root

    def _engine(self):
        return ["podman", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--root", str(self.storage / "containers"),
                "--runroot", str(self.state)]

    def _command(self, full_name, limit_bytes, directory, variables, root, command):
        folders = [f for f in SHARED_FOLDERS if Path(f).is_dir()]
        return [*self._engine(), "run", "--rm", "--replace",
                "--name", full_name, "--network", "none", "--memory", str(limit_bytes), *self.LIMITS, "--workdir", "/",
                *(part for folder in folders for part in ("-v", f"{folder}:{folder}:ro")),
                "-v", f"{ROOT}:{ROOT}:ro", "-v", f"{directory}:{directory}",
                *(part for key, value in variables.items() for part in ("-e", f"{key}={value}")),
                "--rootfs", str(root), *map(str, command)]


class Bare:
    """No container at all: for machines where neither kind can be made."""

    kind = "none"

    def works(self):
        return True

    def remove(self):
        """There is nothing to remove."""

    def start(self, name, command, variables, limit_bytes, directory):
        log_path = directory / f"{name}.log"
        group = self._make_group(name, limit_bytes)
        container = Container(name, 0, None, log_path, group)
        with open(log_path, "wb") as log:
            container.launcher = subprocess.Popen(
                [str(part) for part in command], env={**os.environ, **{k: str(v) for k, v in variables.items()}}, cwd="/",
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=container.admit_self)
        container.pid = container.launcher.pid
        return container

    def _make_group(self, _name, _limit_bytes):
        return None


class ControlGroup(Bare):
    """A control group with a memory limit, without the rest of a container."""

    kind = "control group"

    def works(self):
        try:
            group = self._make_group("try", 64 << 20)
        except OSError:
            return False
        group.rmdir()
        return True

    def _make_group(self, name, limit_bytes):
        first = CGROUP_V1 if CGROUP_V1.is_dir() else CGROUP_V2
        group = first / f"soak-{os.getpid()}-{name}"
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first == CGROUP_V1 else "memory.max")).write_text(str(limit_bytes))
        self._forbid_swap(group, limit_bytes)
        return group

    @staticmethod
    def _forbid_swap(group, limit_bytes):
        """With swap, memory beyond the limit would go there, and nothing would ever be killed."""
        for name, value in [("memory.memsw.limit_in_bytes", limit_bytes), ("memory.swap.max", 0)]:
            if (group / name).exists():
                (group / name).write_text(str(value))
