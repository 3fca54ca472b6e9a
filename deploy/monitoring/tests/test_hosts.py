#!/usr/bin/env python3
"""deploy/systemd: the unit as systemd reads it, with the rights that it leaves, and targets in a file on a real Prometheus
server.

Needs build/snug and build/libsnug.so (or SNUG_PROGRAM and SNUG_LIBRARY), and Debian's packages systemd and prometheus; rights
need root. Everything it starts it ends, and its files are in directories that it removes.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from test_monitoring import LIBRARY, MONITORING, PROJECT, SNUG, Exporter, Prometheus, end

SYSTEMD = PROJECT / "deploy/systemd"
UNIT = SYSTEMD / "snug-exporter.service"
# Another user than this one; it need not exist.
OTHER_USER = "23456"
WAITS_S = 60


class Unit(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="snug-hosts-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def verify(self, text):
        path = self.directory / UNIT.name
        # The manual page is not installed here.
        path.write_text(text.replace("Documentation=man:snug-exporter(1)\n", ""))
        return subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_systemd_understands_it(self):
        done = self.verify(UNIT.read_text())
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        wrong = self.verify(UNIT.read_text().replace("ProtectSystem=strict", "ProtectSystem=very"))
        self.assertIn("very", wrong.stderr)

    def test_it_starts_the_tool_wherever_that_is_installed(self):
        """By `make install` in /usr/local/bin, by a package in /usr/bin: systemd's own PATH has both."""
        self.assertIn("\nExecStart=/usr/bin/env snug exporter ", UNIT.read_text())

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_the_rights_that_it_leaves_are_enough(self):
        rights = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.M)[1].lower().replace("cap_", "").split()
        self.assertEqual(sorted(rights), ["dac_read_search", "sys_ptrace"])
        library = shutil.copy(LIBRARY, self.directory / "libsnug.so")
        self.directory.chmod(0o755)
        environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library)}
        as_other = ["setpriv", "--reuid", OTHER_USER, "--clear-groups", "--pdeathsig", "KILL"]
        process = subprocess.Popen([*as_other, "sleep", "1000"], env=environment)
        self.addCleanup(end, process)

        def seen(rights):
            limited = ["setpriv", f"--bounding-set=-all{''.join(f',+{right}' for right in rights)}", "--inh-caps=-all"]
            deadline = time.monotonic() + WAITS_S
            while True:
                done = subprocess.run([*limited, SNUG, "exporter", "--once", "--pid", str(process.pid)], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done)
                # A process has its name before it has the library.
                wanted = "snug_heap_live_bytes{" if rights else "snug_process_resident_bytes"
                if ('role="sleep"' in done.stdout and wanted in done.stdout) or time.monotonic() > deadline:
                    return done.stdout
                time.sleep(0.1)
        text = seen(rights)
        self.assertRegex(text, r'snug_heap_live_bytes\{allocator="snug",group="canary",role="sleep",worker=""\}')
        self.assertIn("\nsnug_exporter_processes_refused 0\n", text)
        self.assertNotIn("snug_heap_live_bytes{", seen([]), "it needs a right")


class Targets(unittest.TestCase):
    def test_targets_in_a_file(self):
        directory = tempfile.mkdtemp(prefix="snug-targets-")
        self.addCleanup(shutil.rmtree, directory)
        exporter = Exporter("--pid", str(os.getpid()))
        self.addCleanup(exporter.end)
        targets = (SYSTEMD / "targets.yml").read_text().replace("app1:9876", exporter.address)
        pathlib.Path(directory, "targets.yml").write_text(re.sub(r"- targets: \[\"app2.*\n.*\n", "", targets))
        configuration = (SYSTEMD / "prometheus.yml").read_text()
        for installed, here in (("snug-targets.yml", f"{directory}/targets.yml"), ("snug-recording.yml", MONITORING / "recording.yml"),
                                ("snug-alerts.yml", MONITORING / "alerts.yml")):
            configuration = configuration.replace(f"/etc/prometheus/{installed}", str(here))
        configuration = configuration.replace("scrape_interval: 15s", "scrape_interval: 1s")
        prometheus = Prometheus(directory, None, configuration)
        self.addCleanup(prometheus.end)
        checked = subprocess.run(["promtool", "check", "config", f"{directory}/prometheus.yml"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked)
        found = prometheus.wait_for('snug_process_resident_bytes{job="snug"}')
        self.assertEqual({one["metric"]["deployment"] for one in found}, {"canary"})


if __name__ == "__main__":
    unittest.main()
