#!/usr/bin/env python3
"""The black box in containers with a memory limit: the kernel kills a program, and `snug blame` names the line in the next
container. What runs inside are this machine's programs, so no image is needed."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import applications

ROOT = Path(__file__).resolve().parents[2]

SNUG = ROOT / "build/snug"
LIBRARY = ROOT / "build/libsnug.so"
UNIFIED = Path("/sys/fs/cgroup/unified")  # beside version 1, where podman's runtime wants none of it
SHARED_FOLDERS = [folder for folder in ("/usr", "/etc", "/var/lib/gems") if Path(folder).is_dir()]
LIMIT_BYTES = 200 << 20
PORT = 3000  # in a network of its own
END_SECONDS = 600
KILLED = 137  # by SIGKILL, as shells count

WORKER = """KEPT = []
def leak
  KEPT << "x" * 50_000
end
def work
  Array.new(200) { |i| "y" * i }.size
end
worker = fork { loop { leak; work; sleep 0.001 } }
_, status = Process.wait2(worker)
puts "the worker was killed by #{status.termsig}"
600.times { break if Dir["VOLUME/*"].any? { |file| File.binread(file).include?('"for_memory":true') }; sleep 0.1 }
exit 7
"""
BURST = """KEPT = []
def burst
  KEPT << "x" * 4_000_000
end
sleep 1
loop { burst; sleep 0.01 }
"""
LOAD = f"""require "net/http"
begin
  Net::HTTP.start("127.0.0.1", {PORT}) {{ |http| loop {{ http.get("/") }} }}
rescue StandardError
  sleep 0.2
  retry
end
"""


def line_of(text, pattern):
    return next(number for number, line in enumerate(text.splitlines(), 1) if re.search(pattern, line))


class Containers:
    """Runs commands in containers that share a folder, which is theirs at the same path."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "root"
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "root"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (self.root / link).symlink_to(f"usr/{link}")

    def podman(self, *words):
        """A podman command, where it sees one hierarchy of control groups alone."""
        command = ["podman", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
                   "--root", str(self.folder / "storage"), "--runroot", str(self.folder / "state"), *words]
        if UNIFIED.is_dir():
            return ["unshare", "-m", "sh", "-c", f'umount {UNIFIED}; exec "$@"', "sh", *command]
        return command

    def command(self, name, words, variables=(), workdir="/"):
        mounts = [part for folder in SHARED_FOLDERS for part in ("-v", f"{folder}:{folder}:ro")]
        mounts += ["-v", f"{ROOT}:{ROOT}:ro", "-v", f"{self.folder}:{self.folder}"]
        limits = ["--memory", str(LIMIT_BYTES), "--memory-swap", str(LIMIT_BYTES), "--ulimit", "nofile=1024:1024",
                  "--ulimit", "nproc=1000:1000"]
        settings = [part for key, value in dict(variables).items() for part in ("-e", f"{key}={value}")]
        return self.podman("run", "--rm", "--name", name, "--network", "none", *limits, "--workdir", str(workdir), *mounts,
                           "-e", f"SNUG_LIBRARY={LIBRARY}", "-e", "NO_COLOR=1", *settings, "--rootfs", str(self.root),
                           *map(str, words))

    def run(self, name, words, **more):
        return subprocess.run(self.command(name, words, **more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=END_SECONDS, cwd=self.folder)  # podman's helper leaves a file there after an OOM kill


def containers_work():
    """Whether podman can limit memory here."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        return False
    with tempfile.TemporaryDirectory(prefix="snug-black-box.") as folder:
        return Containers(Path(folder)).run("snug-black-box-try", ["true"]).returncode == 0


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@unittest.skipUnless(shutil.which("podman"), "podman is not installed")
@unittest.skipUnless(containers_work(), "podman can't limit memory here")
class BlackBox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="snug-black-box.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.containers = Containers(self.folder)
        self.volume = self.folder / "volume"
        self.volume.mkdir()
        self.name = f"{self.folder.name.replace('.', '-')}"
        remove = self.containers.podman("rm", "-f", "--ignore", self.name)
        self.addCleanup(subprocess.run, remove, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def under_watch(self, *program):
        return [SNUG, "run", "--black-box", self.volume, "--", *program]

    def blame(self):
        """The answer in the next container."""
        ended = self.containers.run(self.name, [SNUG, "blame", self.volume, "--json"])
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return json.loads(ended.stdout)

    def assert_named(self, answer, path, line):
        """Most of what is live was allocated at this line, and no other line has more."""
        totals = {}
        for site in answer["sites"]:
            frame = next((frame for frame in site["frames"] if frame["line"] > 0), site["frames"][0])
            key = (frame["file"], frame["line"])
            totals[key] = totals.get(key, 0) + site["bytes"]
        self.assertEqual(max(totals, key=totals.get), (str(path), line), totals)
        self.assertGreater(totals[(str(path), line)], 0.3 * LIMIT_BYTES, totals)

    def script(self, text):
        path = self.folder / "script.rb"
        path.write_text(text)
        return path

    def test_a_rails_application_that_is_the_first_process(self):
        application = self.folder / "shop"
        applications.write(application)
        path = application / "config/application.rb"
        path.write_text(path.read_text().replace('"order" * 5_000', '"order" * 10_000'))
        variables = {"SHOP_LEAKS": "1", "HOME": application}
        server = ["bin/rails", "server", "-e", "production", "-p", str(PORT), "-b", "127.0.0.1"]
        begun = subprocess.Popen(self.containers.command(self.name, self.under_watch(*server), variables=variables,
                                                         workdir=application), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        inspect = self.containers.podman("inspect", "-f", "{{.State.Pid}}", self.name)
        deadline = time.monotonic() + END_SECONDS
        pid = ""
        while not (pid.isdigit() and int(pid)) and time.monotonic() < deadline and begun.poll() is None:
            pid = subprocess.run(inspect, capture_output=True, text=True).stdout.strip()
            time.sleep(0.1)
        load = subprocess.Popen(["nsenter", "-t", pid, "-n", "ruby", "-e", LOAD], stdin=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        try:
            output, _ = begun.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            begun.kill()
            self.fail(f"nobody killed it in {END_SECONDS} s:\n{begun.communicate()[0]}")
        finally:
            load.kill()
            load.wait()
        self.assertEqual(begun.returncode, KILLED, output)
        answer = self.blame()
        self.assertFalse(answer["is_watched"])
        self.assertIn("most likely", answer["answer"])
        self.assertGreaterEqual(answer["black_box"]["used_bytes"], 0.9 * LIMIT_BYTES)
        self.assertEqual(answer["black_box"]["limit_bytes"], LIMIT_BYTES)
        self.assert_named(answer, path, line_of(path.read_text(), "KEPT <<"))

    def test_a_forked_worker(self):
        script = self.script(WORKER.replace("VOLUME", str(self.volume)))
        ended = self.containers.run(self.name, self.under_watch("ruby", script))
        self.assertEqual((ended.returncode, ended.stdout), (7, "the worker was killed by 9\n"), ended.stderr)
        answer = self.blame()
        accused = [process for process in answer["black_box"]["processes"] if process["pid"] in answer["accused"]]
        self.assertEqual([process["ending"]["for_memory"] for process in accused], [True], answer["answer"])
        self.assertNotEqual(accused[0]["pid"], answer["black_box"]["pid"])
        self.assert_named(answer, script, line_of(WORKER, "KEPT <<"))

    def test_a_burst(self):
        script = self.script(BURST)
        ended = self.containers.run(self.name, self.under_watch("ruby", script))
        self.assertEqual(ended.returncode, KILLED, ended.stdout + ended.stderr)
        self.assert_named(self.blame(), script, line_of(BURST, "KEPT <<"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
