#!/usr/bin/env python3
"""`snug exporter` against a real Prometheus server: what it exports, what it costs, and that the rules and the dashboard
in deploy/monitoring/ ask for what there is.

  deploy/monitoring/tests/test_monitoring.py            all tests
  deploy/monitoring/tests/test_monitoring.py -k cost    some

Needs build/snug and build/libsnug.so (or SNUG_PROGRAM and SNUG_LIBRARY), and Debian's package prometheus. Everything it starts
it ends, and its files are in a directory that it removes.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

PROJECT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(PROJECT / "tools"))
from ports import free_port

MONITORING = PROJECT / "deploy/monitoring"
SNUG = os.environ.get("SNUG_PROGRAM", str(PROJECT / "build/snug"))
LIBRARY = os.environ.get("SNUG_LIBRARY", str(PROJECT / "build/libsnug.so"))
# A worker: some live memory, and some work every 20 ms.
WORKER = """
import time
kept = [bytes(1000) for _ in range(20000)]
while True:
    list(bytes(50000) for _ in range(50))
    time.sleep(0.02)
"""
SLEEPER = "import time; kept = [bytes(1000) for _ in range(5000)]; time.sleep(1000)"
SCRAPES = 30
SCRAPE_INTERVAL_S = 15
# What the exporter may spend on PSS beside what its readings cost: PSS_SHARE in crates/snug-live/src/watch.rs.
PSS_SHARE = 0.005


def start_worker(title, program, preload=True, settings=None):
    """A Python program under a title, as a server would give itself one. `settings`: of snug."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "SNUG")}
    # Python looks for its modules beside the program of its title, which may be installed for another Python.
    environment["PYTHONHOME"] = f"{sys.base_prefix}:{sys.base_exec_prefix}"
    if preload:
        environment["LD_PRELOAD"] = LIBRARY
    if settings is not None:
        environment["SNUG"] = settings
    # Should this test be killed, they go with it.
    dies_with_us = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\n"
    return subprocess.Popen([title, "-c", dies_with_us + program], executable=sys.executable, env=environment)


def end(process):
    process.kill()
    process.wait()


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


class Exporter:
    """A running `snug exporter`."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", SNUG, "exporter", "--listen", "127.0.0.1:0", *arguments], stderr=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a job in the background ignores it
        line = self.process.stderr.readline()
        found = re.search(r"http://(\S+)/metrics", line)
        if found is None:
            end(self.process)
            raise AssertionError(f"the exporter said: {line}")
        self.address = found[1]

    def metrics(self):
        return get(f"http://{self.address}/metrics")

    def end(self):
        end(self.process)
        self.process.stderr.close()


class Prometheus:
    """A running server that scrapes one exporter, with its files in a directory."""

    def __init__(self, directory, target, text=None):
        """`text`: the configuration, instead of one that scrapes `target`."""
        self.port = free_port()
        configuration = pathlib.Path(directory, "prometheus.yml")
        configuration.write_text(text or f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{MONITORING}/recording.yml, {MONITORING}/alerts.yml]
scrape_configs:
  - job_name: snug
    static_configs: [{{targets: ["{target}"]}}]
""")
        self.log = open(pathlib.Path(directory, "log"), "w")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"], stderr=self.log, stdout=self.log)

    def query(self, expression):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            answer = json.loads(get(url))
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []  # it still reads its files
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []  # not up yet
        return answer["data"]["result"]

    def wait_for(self, expression):
        for _ in range(1200):
            result = self.query(expression)
            if result:
                return result
            time.sleep(0.1)
        raise AssertionError(f"no answer to {expression} within 120 s")

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="snug-monitoring-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.workers_started_s = time.time()
        cls.workers = [start_worker("puma: cluster worker 0: 1 [shop]", WORKER, settings="profile:65536"),
                       start_worker("puma: cluster worker 1: 1 [shop]", WORKER),
                       start_worker("puma: cluster worker 2: 1 [shop]", WORKER, preload=False)]
        for worker in cls.workers:
            cls.addClassCleanup(end, worker)
        pids = [word for worker in cls.workers for word in ("--pid", str(worker.pid))]
        cls.exporter = Exporter(*pids, "--cache", "0.5", "--sites", "2")
        cls.addClassCleanup(cls.exporter.end)
        cls.prometheus = Prometheus(cls.directory, cls.exporter.address)
        cls.addClassCleanup(cls.prometheus.end)
        cls.prometheus.wait_for("count(snug_heap_live_bytes > 20e6) == 2")
        # Rates need some scrapes.
        cls.prometheus.wait_for("rate(snug_process_cpu_seconds_total[1m])")

    def test_metrics_are_well_formed(self):
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.exporter.metrics(), capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        one = subprocess.run([SNUG, "stats", str(self.workers[0].pid), "--prometheus"], capture_output=True, text=True, check=True)
        checked = subprocess.run(["promtool", "check", "metrics"], input=one.stdout, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        self.assertIn('role="puma worker",worker="0"', one.stdout)
        self.assertNotIn('worker="1"', one.stdout)
        self.assertRegex(one.stdout, r"\nsnug_heap_purge_budget_ratio\{.*\} 0\.01\n")

    def test_values_are_those_of_the_processes(self):
        stats = json.loads(subprocess.run([SNUG, "stats", str(self.workers[0].pid), "--json"], capture_output=True, check=True).stdout)
        selected = '{role="puma worker",worker="0",allocator="snug",job="snug"}'
        for name, expected in (("snug_heap_live_bytes", stats["heap"]["live_allocated_bytes"]),
                               ("snug_process_resident_bytes", stats["rss_bytes"])):
            value = float(self.prometheus.wait_for(name + selected)[0]["value"][1])
            self.assertAlmostEqual(value, expected, delta=0.25 * expected, msg=name)
        pid = self.prometheus.wait_for("snug_process_pid" + selected)[0]["value"][1]
        self.assertEqual(int(pid), self.workers[0].pid)
        started = float(self.prometheus.wait_for("snug_process_start_time_seconds" + selected)[0]["value"][1])
        self.assertLess(abs(self.workers_started_s - started), 60)
        self.assertGreater(float(self.prometheus.wait_for("snug_process_proportional_bytes" + selected)[0]["value"][1]), 1e6)

    def test_other_allocators_have_what_can_be_known(self):
        selected = '{role="puma worker",worker="2",allocator="glibc"}'
        self.assertTrue(self.prometheus.wait_for("snug_process_resident_bytes" + selected))
        self.assertEqual(self.prometheus.query("snug_heap_live_bytes" + selected), [])
        self.assertNotIn("snug_glibc_", self.exporter.metrics())
        one = subprocess.run([SNUG, "stats", str(self.workers[2].pid), "--prometheus"], capture_output=True, text=True, check=True)
        live = float(re.search(r"^snug_glibc_live_bytes\{.*\} (\S+)", one.stdout, re.M)[1])
        self.assertTrue(10e6 < live < 100e6, live)
        version = self.prometheus.wait_for('snug_process_info{allocator="glibc"}')[0]["metric"]["version"]
        self.assertRegex(version, r"^2\.")

    def test_sites_are_few_and_their_bytes_plausible(self):
        """Sites of the worker that samples. One line keeps 20 MB; another drops what it allocates at once."""
        top = self.prometheus.wait_for("snug_site_live_bytes > 10e6")
        self.assertEqual([found["metric"]["worker"] for found in top], ["0"])
        self.assertNotEqual(top[0]["metric"]["site"], "other")
        self.assertLess(float(top[0]["value"][1]), 40e6)
        sites = re.findall(r'^snug_site_live_bytes\{.*role="puma worker",worker="(\d)",site="(.*)"\}', self.exporter.metrics(), re.M)
        self.assertTrue(2 <= len(sites) <= 3, sites)
        self.assertEqual(({worker for worker, _ in sites}, sites[-1][1]), ({"0"}, "other"))

    def test_rules_hold(self):
        for command in (["check", "rules", "recording.yml", "alerts.yml"], ["test", "rules", "recording_test.yml", "alerts_test.yml"]):
            done = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def exported(self):
        return set(re.findall(r"^# TYPE (\S+)", self.exporter.metrics(), re.M))

    def absent_here(self):
        """Metrics that this machine may lack: a limit, or all of the control group where its files are not mounted. And those
        that only `snug stats` has, or servers whose hooks of the wheel or the gem are on."""
        absent = {"snug_cgroup_memory_limit_bytes", "snug_glibc_live_bytes", "snug_glibc_resident_bytes"}
        absent |= {"snug_hooks_shared_bytes", "snug_hooks_immortal_objects", "snug_hooks_copied_bytes"}
        if not any(name.startswith("snug_cgroup_") for name in self.exported()):
            absent |= {"snug_cgroup_memory_bytes", "snug_cgroup_memory_working_bytes"}
        return absent

    def test_rules_and_dashboard_name_metrics_that_exist(self):
        exported = self.exported() | self.absent_here()
        for path in [*sorted(MONITORING.glob("*.yml")), MONITORING / "dashboard.json"]:
            named = set(re.findall(r"\bsnug_(?:process|heap|cgroup|exporter)_\w+", path.read_text()))
            self.assertTrue(named, path)
            self.assertEqual(named - exported, set(), path.name)

    def test_metrics_are_documented(self):
        documented = set(re.findall(r"`(snug_\w+[a-z])`", (MONITORING / "README.md").read_text()))
        self.assertEqual(self.exported() - documented, set())
        self.assertEqual(documented - self.exported(), self.absent_here() - self.exported())

    def test_every_panel_of_the_dashboard_has_an_answer(self):
        dashboard = json.loads((MONITORING / "dashboard.json").read_text())
        variables = {"job": ".*", "role": ".*", "split": "allocator", "canary": "snug", "baseline": "glibc", "__rate_interval": "1m"}
        hours = "process:snug_live_growth"  # which takes hours: test_recording.py
        self.assertEqual({variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval"}, set(variables) | {"datasource"})
        identifiers = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                expression = re.sub(r"\$(\w+)", lambda found: variables[found[1]], target["expr"])
                if hours in expression or "limit_bytes" in expression or ("cgroup" in expression and not self.prometheus.query(expression)):
                    self.prometheus.query(expression)  # parses; a machine without limits has no answer
                else:
                    self.assertTrue(self.prometheus.wait_for(expression), f"{panel['title']}: {expression}")

    def rules(self):
        groups = json.loads(get(f"http://127.0.0.1:{self.prometheus.port}/api/v1/rules"))["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def test_rules_are_evaluated(self):
        """But for those of growth, whose first turn may be five minutes away."""
        self.assertIn("SnugMemoryLeak", {rule["name"] for rule in self.rules()})
        deadline = time.monotonic() + 120
        while any(rule["health"] == "unknown" and "growth" not in rule["name"] for rule in self.rules()):
            self.assertLess(time.monotonic(), deadline, self.rules())
            time.sleep(0.1)
        self.assertEqual({rule["health"] for rule in self.rules()} - {"unknown"}, {"ok"}, self.rules())

    def test_recorded_sums_are_those_of_the_processes(self):
        for name in ("memory_bytes:sum", "live_bytes:sum", "not_live_bytes:sum", "purge_cores:rate5m", "cpu_cores:rate5m", "restarts:1h"):
            for level in ("container", "app"):
                self.assertTrue(self.prometheus.wait_for(f'{level}:snug_{name}{{allocator="snug"}}'), name)
        sums = [float(self.prometheus.wait_for(query)[0]["value"][1]) for query in
                ('sum(app:snug_live_bytes:sum{allocator="snug"})', 'sum(snug_heap_live_bytes{allocator="snug"})')]
        self.assertAlmostEqual(sums[0], sums[1], delta=0.25 * sums[1])

    def test_roles_by_rule(self):
        jobs = start_worker("gunicorn", "import time; time.sleep(1000)")
        try:
            for _ in range(100):  # until it has executed its program
                lines = subprocess.run([SNUG, "exporter", "--once", "--pid", str(jobs.pid), "--role",
                                        "time.sleep=jobs 7"], capture_output=True, text=True, check=True).stdout
                if 'role="jobs"' in lines:
                    break
                time.sleep(0.05)
        finally:
            end(jobs)
        self.assertIn('role="jobs",worker="7"', lines)

    def test_it_answers_only_what_it_has(self):
        self.assertIn("/metrics", get(f"http://{self.exporter.address}/"))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(f"http://{self.exporter.address}/etc/passwd")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        second = subprocess.run([SNUG, "exporter", "--listen", self.exporter.address], capture_output=True, text=True, timeout=30)
        self.assertEqual(second.returncode, 1)
        self.assertIn("cannot listen on", second.stderr)

    def test_ctrl_c_ends_it(self):
        exporter = Exporter("--pid", str(self.workers[0].pid))
        exporter.process.send_signal(signal.SIGINT)
        exporter.process.wait(timeout=10)
        exporter.process.stderr.close()


class Cost(unittest.TestCase):
    def test_cost_is_below_one_percent_of_a_core_for_50_processes(self):
        processes = [start_worker(f"puma: cluster worker {number}: 1 [shop]", SLEEPER) for number in range(50)]
        exporter = None
        try:
            exporter = Exporter(*[word for process in processes for word in ("--pid", str(process.pid))], "--cache", "0")

            def used():
                return float(re.search(r"^snug_exporter_cpu_seconds_total (\S+)", exporter.metrics(), re.M)[1])

            # Until all have started, and what is learnt once has been learnt.
            deadline = time.monotonic() + 120
            while len(re.findall(r"^snug_heap_live_bytes\{", exporter.metrics(), re.M)) < 50:
                self.assertLess(time.monotonic(), deadline, "not all 50 processes are seen")
                time.sleep(0.5)
            for _ in range(3):
                exporter.metrics()
            before = used()
            for _ in range(SCRAPES - 1):
                exporter.metrics()
            each_s = (used() - before) / SCRAPES
        finally:
            if exporter is not None:
                exporter.end()
            for process in processes:
                end(process)
        share = each_s / SCRAPE_INTERVAL_S + PSS_SHARE
        print(f"\n  a scrape of 50 processes takes {each_s * 1000:.1f} ms of CPU time: at one in {SCRAPE_INTERVAL_S} s "
              f"{each_s / SCRAPE_INTERVAL_S:.3%} of a core, and at most {PSS_SHARE:.1%} for PSS", file=sys.stderr)
        self.assertLess(share, 0.01)


if __name__ == "__main__":
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        sys.exit("prometheus is missing: apt install prometheus (tools/install-deps test)")
    # Ended by a time limit, it still ends what it started.
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)
    program = unittest.main(verbosity=1, exit=False)
    result = program.result
    failed = len(result.failures) + len(result.errors)
    print(f"monitoring: {result.testsRun - failed} passed, {failed} failed")
    sys.exit(0 if failed == 0 else 1)
