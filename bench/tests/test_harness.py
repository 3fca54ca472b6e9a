"""Tests of what the workload drivers share. Run: tools/run_unittests.py bench/tests (standard library only)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

from bench import compare
from bench.workloads import catalog
from bench.workloads.harness import environment, memory, metrics, options, redis, session

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "bench/workloads"

# A driver that starts a server and a helper, prints what they see, and then does what its argument says.
DRIVER = """
import json, os, sys, time
from bench.workloads.harness import session
from pathlib import Path

def body(run):
    show = [sys.executable, "-c", "import json, os, time; print(json.dumps(dict(os.environ)), flush=True); time.sleep(60)"]
    helper, server = run.start_helper("helper", show), run.start_server(show, EXTRA="1")
    for process in (helper, server):
        run.wait_until(lambda: process.log_path.read_text().endswith("\\n"), "starting")
    run.note_server_processes()
    print(json.dumps({"directory": str(run.directory), "pids": [helper.popen.pid, server.popen.pid],
                       "helper": json.loads(helper.log_path.read_text()),
                       "server": json.loads(server.log_path.read_text())}), flush=True)
    if sys.argv[1] == "wait":
        time.sleep(60)
    if sys.argv[1] == "crash":
        os.kill(server.popen.pid, 11)
        server.popen.wait(10)
        run.check_running()
    return {"things_per_s": 1.23456, "errors": int(sys.argv[1] == "errors") + run.stop_server()}

sys.exit(session.run("test", body))
"""


def start_driver(action, **variables):
    return subprocess.Popen([sys.executable, "-c", DRIVER, action], cwd=ROOT, env={**os.environ, **variables},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def exists(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class EnvironmentTest(unittest.TestCase):
    def test_allocator_variables_are_told_from_others(self):
        mine = {"LD_PRELOAD": "x", "MALLOC_ARENA_MAX": "2", "MALLOC_CONF": "a:1", "SNUG": "verbose:1",
                "SNUG_LIBRARY": "/l", "TCMALLOC_RELEASE_RATE": "1", "MIMALLOC_VERBOSE": "1", "GLIBC_TUNABLES": "g"}
        others = {"PATH": "/bin", "LD_LIBRARY_PATH": "/l", "SNUGGLE": "1", "HOME": "/"}
        self.assertEqual(environment.split({**mine, **others}), (mine, others))


class HooksTest(unittest.TestCase):
    def test_each_allocator_twice(self):
        self.assertEqual(compare.with_hooks(["glibc,jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:0", "./x.so:A=1,snug"]), [
            "glibc", "glibc:BENCH_HOOKS=1", "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:0",
            "jemalloc:BENCH_HOOKS=1:MALLOC_CONF=narenas:2,dirty_decay_ms:0", "./x.so:A=1", "./x.so:BENCH_HOOKS=1:A=1",
            "snug", "snug:BENCH_HOOKS=1"])

    def test_by_hand_too_where_much_is_forked(self):
        self.assertEqual(compare.with_hooks(["glibc:A=1"], ("by_hand", "1")), ["glibc:A=1", "glibc:BENCH_HOOKS=by_hand:A=1", "glibc:BENCH_HOOKS=1:A=1"])

    def test_what_teams_run_where_much_is_forked(self):
        tuned = "MALLOC_CONF=narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0"
        self.assertEqual(compare.for_forks((), python=True), [
            "glibc", f"jemalloc:{tuned}", "glibc:BENCH_HOOKS=by_hand", f"jemalloc:BENCH_HOOKS=by_hand:{tuned}",
            f"jemalloc:BENCH_HOOKS=by_hand:PYTHONMALLOC=malloc:{tuned}", "snug", "snug:BENCH_HOOKS=1:PYTHONMALLOC=malloc"])
        self.assertEqual(compare.for_forks((), python=False), [
            "glibc", f"jemalloc:{tuned}", "glibc:BENCH_HOOKS=by_hand", f"jemalloc:BENCH_HOOKS=by_hand:{tuned}", "snug", "snug:BENCH_HOOKS=1"])
        self.assertEqual(compare.for_forks(["snug"], python=False), ["snug", "snug:BENCH_HOOKS=by_hand", "snug:BENCH_HOOKS=1"])

    def test_what_a_server_with_hooks_gets(self):
        parser = options.parser("x", "of a test", "things", 10, 1)
        self.assertEqual(options.hook_variables(options.parse(parser, ["--quick"])), {})
        variables = options.hook_variables(options.parse(parser, ["--quick", "--hooks"]))
        self.assertEqual(variables["SNUG_IDLE_SECONDS"], 1)
        self.assertTrue((variables["RUBYLIB"] / "snug/sidekiq.rb").exists() and (variables["PYTHONPATH"] / "snug/celery.py").exists())
        by_hand = options.parse(parser, ["--hooks", "by_hand"])
        self.assertEqual(options.hook_variables(by_hand), {"BENCH_BY_HAND": 1})
        self.assertEqual(options.python_variables(by_hand, "/a", "/b")["PYTHONPATH"], "/a:/b")
        with mock.patch.dict(os.environ, {"BENCH_HOOKS": "0"}):
            self.assertFalse(options.parse(options.parser("x", "of a test", "things", 10, 1), []).hooks)


class MetricsTest(unittest.TestCase):
    def test_percentiles(self):
        values = [float(value) for value in range(100, 0, -1)]
        self.assertEqual(metrics.percentile(values, 50), 50)
        self.assertEqual(metrics.percentile(values, 99), 99)
        self.assertEqual(metrics.percentile([7.0], 99), 7)
        self.assertEqual(metrics.percentile([], 50), 0)


class SessionTest(unittest.TestCase):
    def seen(self, driver):
        return json.loads(driver.stdout.readline())

    def test_only_the_server_gets_the_allocator(self):
        driver = start_driver("end", MALLOC_ARENA_MAX="2", SNUG="verbose:1")
        seen = self.seen(driver)
        output, _ = driver.communicate()
        self.assertEqual((seen["server"]["MALLOC_ARENA_MAX"], seen["server"]["SNUG"]), ("2", "verbose:1"))
        self.assertEqual(seen["server"]["EXTRA"], "1")
        for name in ("MALLOC_ARENA_MAX", "SNUG", environment.SET_ASIDE):
            self.assertNotIn(name, seen["helper"])
        self.assertIn("snug-metric: things_per_s=1.23\nsnug-metric: errors=0\n", output)
        self.assertEqual(driver.returncode, 0)

    def test_errors_make_the_run_fail(self):
        driver = start_driver("errors")
        output, _ = driver.communicate()
        self.assertIn("snug-metric: errors=1\n", output)
        self.assertEqual(driver.returncode, 1)

    def test_a_server_that_crashes_is_reported(self):
        driver = start_driver("crash")
        _, errors = driver.communicate()
        self.assertIn("server ended by itself, killed by SIGSEGV", errors)
        self.assertEqual(driver.returncode, 1)

    def test_signals_leave_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            driver = start_driver("wait")
            seen = self.seen(driver)
            driver.send_signal(number)
            driver.communicate()
            self.assertEqual(driver.returncode, 128 + number)
            self.assertFalse(os.path.exists(seen["directory"]))
            self.assertFalse(any(exists(pid) for pid in seen["pids"]))

    def test_a_killed_driver_takes_its_processes_along(self):
        driver = start_driver("wait")
        seen = self.seen(driver)
        driver.kill()
        driver.communicate()
        deadline = time.monotonic() + 10
        while any(exists(pid) for pid in seen["pids"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(any(exists(pid) for pid in seen["pids"]))
        shutil.rmtree(seen["directory"])

    def test_missing_programs_are_named(self):
        with self.assertRaisesRegex(session.WorkloadError, "/nowhere/puma is missing; run: tools/install-deps bench"):
            session.require_program("/nowhere/puma")


class MemoryTest(unittest.TestCase):
    def test_the_tree_holds_children_and_not_the_dead(self):
        shell = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"])
        try:
            deadline = time.monotonic() + 10
            while len(memory.process_tree(shell.pid)) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            tree = memory.process_tree(shell.pid)
            self.assertEqual(len(tree), 3)
            self.assertIn("idle_pss_mb", memory.idle_metrics(shell.pid))
        finally:
            for pid in tree:
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while memory.process_tree(shell.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(memory.process_tree(shell.pid), [])
        shell.wait()
        self.assertGreater(memory.idle_metrics(os.getpid())["idle_rss_mb"], 1)

    def test_a_watch_sees_what_processes_share_once(self):
        script = "import os, time; held = bytearray(b'x' * 60_000_000); [os.fork() and 0 for _ in range(2)]; print(flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as program:
            for _ in range(4):
                program.stdout.readline()
            with mock.patch.object(memory, "WATCH_SECONDS", 0.05), memory.Watch(program.pid) as watch:
                deadline = time.monotonic() + 60
                while len(watch.seen_mb) < 3 and time.monotonic() < deadline:
                    time.sleep(0.05)
            os.killpg(program.pid, signal.SIGKILL)
        found = watch.metrics()["anonymous_pss_mb"]
        self.assertTrue(60 < found < 180, found)

    def test_the_oldest_is_who_started_first(self):
        first = subprocess.Popen(["sleep", "60"])
        time.sleep(0.1)  # start times are in ticks
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as last:
                last.write(str(max(300, first.pid - 1000)))  # from here on numbers come again
        except OSError:
            print("numbers can't come again here: of two processes the later one has the higher", file=sys.stderr)
        second = subprocess.Popen(["sleep", "60"])
        try:
            self.assertEqual(memory.oldest([second.pid, first.pid]), first.pid)
        finally:
            for process in (first, second):
                process.kill()
                process.wait()
        self.assertIsNone(memory.oldest([first.pid, second.pid]))

    def test_what_workers_wrote_for_themselves(self):
        writes = "import os, time; x = bytearray(30 << 20); os.fork(); y = bytearray(9 << 20); print(flush=True); time.sleep(60)"
        parent = subprocess.Popen([sys.executable, "-c", writes], stdout=subprocess.PIPE)
        parent.stdout.readline(), parent.stdout.readline()
        try:
            found = memory.idle_metrics(parent.pid)
            self.assertEqual(list(found), ["idle_pss_mb", "idle_anonymous_pss_mb", "worker_private_mb"])
            self.assertTrue(9.4 < found["worker_private_mb"] < 20, found)
            self.assertEqual(list(memory.idle_metrics(memory.process_tree(parent.pid)[1])), ["idle_rss_mb"])
        finally:
            for pid in memory.process_tree(parent.pid):
                os.kill(pid, signal.SIGKILL)
            parent.communicate()

    def test_the_reserved_range(self):
        header = "{:x}-{:x} {}p 00000000 00:00 {} {}\nSize: 4 kB\nPrivate_Dirty: {} kB\n"
        gib, mib = 1 << 30, 1 << 20
        for name in ("", "[anon:snug heap]"):  # whether the kernel names anonymous memory
            tables = [(gib + i * 4 * mib, gib + (i * 4 + 1) * mib, "rw-", 0, name, 1) for i in range(5)]
            arena = (90 * gib, 90 * gib + mib, "rw-", 0, "", 3), (90 * gib + mib, 90 * gib + 64 * mib, "---", 0, "", 0)
            rest = ((100 * gib, 101 * gib, "rw-", 0, "", 300), (101 * gib, 102 * gib, "r--", 7, "/lib/libsnug.so", 0),
                    (102 * gib, 103 * gib, "---", 0, "", 0))
            text = "".join(header.format(*mapping) for mapping in (
                *tables, (3 * gib, 4 * gib, "rw-", 0, name, 20), (4 * gib, 4 * gib + 100 * mib, "---", 0, name, 0), *arena, *rest))
            mappings = memory.parse_smaps(text)
            self.assertEqual([mapping["private_dirty"] >> 10 for mapping in mappings], [1] * 5 + [20, 0, 3, 0, 300, 0, 0])
            self.assertEqual(memory.reserved_range(mappings), (gib, 4 * gib + 100 * mib))
            self.assertIsNone(memory.reserved_range(mappings[7:]))
            self.assertIsNone(memory.reserved_range([mapping for mapping in mappings if not mapping["file"].startswith("/")]))


@unittest.skipUnless(os.access(redis.REDIS_SERVER, os.X_OK), "redis-server is not installed")
class RedisTest(unittest.TestCase):
    def test_commands_and_answers(self):
        with session.Session("test", {}) as run:
            client, _ = redis.start(run)
            self.assertEqual(client.pipeline([("RPUSH", "l", "a"), ("RPUSH", "l", b"\r\n\x00")]), [1, 2])
            self.assertEqual(client.command("LRANGE", "l", 0, -1), [b"a", b"\r\n\x00"])
            self.assertIsNone(client.command("GET", "nothing"))
            with self.assertRaises(ConnectionError):
                client.command("NO-SUCH-COMMAND")
            client.close()


class CatalogTest(unittest.TestCase):
    def test_every_workload_can_be_started(self):
        for workload in catalog.WORKLOADS:
            self.assertTrue(os.access(workload.command_line()[0], os.X_OK), workload.name)
            self.assertIs(catalog.find(workload.name), workload)

    def test_what_forks_much_is_measured_apart(self):
        self.assertNotIn("celery_heavy", [workload.name for workload in catalog.by_default()])
        self.assertEqual([workload.name for workload in catalog.forking()],
                         ["rails_puma_cluster", "celery_heavy", "celery_heavy_24", "gunicorn_heavy", "rails_puma_cluster_8"])

    def test_no_driver_matches_the_expression_of_its_server(self):
        for workload in catalog.WORKLOADS:
            if workload.only:
                self.assertNotIn(workload.only, " ".join(workload.command_line()))


if __name__ == "__main__":
    unittest.main()
