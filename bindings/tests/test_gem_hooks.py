"""The gem's hooks in real servers: Puma and Sidekiq of Debian's, under snug.

The library gives nothing back by itself here (purge_cpu_percent:0, background:0), so that what was purged, the hooks purged.
"""

import json
import shutil
import unittest
from pathlib import Path

from bindings.tests import test_wheel_hooks
from bindings.tests.test_wheel_hooks import missing
from release.project import ROOT
from release.tests.staged import installed

# What says of its process how often all was collected, and leaves memory behind that is free and resident.
STATE = """def state
  JSON.generate(pid: Process.pid, major: GC.stat(:major_gc_count), purged: defined?(Snug) && Snug.active? ? Snug.stats[:purged_bytes] : nil,
                hooks: defined?(Snug::Hooks) ? Snug::Hooks.state : nil, seen: defined?(SEEN) ? SEEN : nil, options: ENV["RUBYOPT"])
end
def garbage = Array.new(200) { "x" * 300_000 }.size
"""
SHOP = """SEEN = []
module Shop
  def self.fill = SEEN << "fill"
  def self.leave = exit(3)
  def self.deep = deep
end
class Job
  def perform = SEEN << "job"
end
"""
SERVER = """require "json"
threads 2, 2
raise_exception_on_sigterm false
require "./shop"
""" + STATE + """app do |env|
  body = state
  SEEN << env.values_at("rack.url_scheme", "HTTP_HOST", "PATH_INFO", "QUERY_STRING").join(" ") if env["REMOTE_ADDR"] == "127.0.0.1"
  garbage if env["PATH_INFO"] == "/garbage"
  raise "of a test" if env["PATH_INFO"] == "/fails"
  sleep 60 if env["PATH_INFO"] == "/slow"
  (SEEN << "open").then { $left = Socket.tcp_server_sockets("127.0.0.1", 0) } if env["PATH_INFO"] == "/opens"
  [200, { "Content-Length" => body.bytesize.to_s, "Connection" => "close" }, [body]]
end
"""
PUMA = SERVER.replace("threads", "plugin :snug\nthreads", 1)
CLUSTER = "workers 2\npreload_app!\nbefore_fork { SEEN << 'before_fork' }\n"
SIDEKIQ = """require "json"
require "sidekiq"
require "./shop"
Sidekiq.configure_server { |config| config.redis = { url: ENV["REDIS"] } }
Sidekiq.configure_client { |config| config.redis = { url: ENV["REDIS"] } }
Redis.silence_deprecations = true if defined?(Redis.silence_deprecations)
""" + STATE + """class Work
  include Sidekiq::Worker
  def perform(leave)
    body = state
    garbage if leave
    Sidekiq.redis { |redis| redis.rpush("states", body) }
  end
end
class Long
  include Sidekiq::Worker
  def perform(seconds)
    before = state
    Sidekiq.redis { |redis| redis.rpush("states", before) }
    sleep seconds
    after = state
    Sidekiq.redis { |redis| redis.rpush("states", after) }
  end
end
"""


class RubyServers(test_wheel_hooks.Servers):
    def setUp(self):
        super().setUp()
        (self.folder / "shop.rb").write_text(SHOP)

    def start(self, *command, **variables):
        return super().start(*command, **{"RUBYLIB": str(ROOT / "bindings/gem/lib"), **variables})

    def assert_purged(self, ask, leave):
        first = self.wait("an answer", ask)
        leave()
        self.wait("a purge when idle", lambda: self.pause() or ask()["purged"] - first["purged"] > 20_000_000)
        self.assertGreater(ask()["major"], first["major"])

    @staticmethod
    def pause():
        test_wheel_hooks.time.sleep(0.9)


@unittest.skipIf(missing("puma"), missing("puma"))
class Puma(RubyServers):
    def puma(self, text=PUMA, *options, **variables):
        (self.folder / "puma.rb").write_text(text)
        return self.start("puma", "-C", "puma.rb", "-b", f"unix://{self.folder}/http.sock", *options, **variables)

    def test_it_purges_when_idle_with_and_without_workers(self):
        for text in (PUMA, PUMA + "workers 1\npreload_app!\n"):
            with self.subTest(text[-20:]):
                server = self.puma(text)
                self.assert_purged(self.get, lambda: self.get("/garbage"))
                self.end(server)
                (self.folder / "http.sock").unlink(missing_ok=True)

    def test_hooks_that_fail_leave_the_server_alone(self):
        broken = "require 'snug'\ndef Snug.purge = raise('of a test')\n"
        self.puma(broken + PUMA + "workers 1\npreload_app!\n", SNUG_IDLE_SECONDS="a while")
        self.wait("an answer", self.get)
        self.get("/garbage")
        self.wait("the idle hook's words", lambda: "the server goes on: RuntimeError: of a test" in self.log.read_text())
        self.assertIn("SNUG_IDLE_SECONDS=a while is not a number from 0 up, so it stays 2", self.log.read_text())
        self.assertIsNotNone(self.get())


    def by_the_gem(self, text, *options, **variables):
        """As `snug run` of the gem starts it: the tool itself is left out, which the installed gem's tests have."""
        (self.folder / "puma.rb").write_text(text)
        (self.folder / "gem/lib/snug").mkdir(parents=True)
        shutil.copytree(ROOT / "bindings/gem", self.folder / "gem", dirs_exist_ok=True)
        for source, name in (("bin/snug", "snug"), ("lib/libsnug.so.0", "libsnug.so")):
            (self.folder / "gem/lib/snug" / name).symlink_to(installed() / source)
        return self.start("ruby", "-I", self.folder / "gem/lib", self.folder / "gem/exe/snug", "run", *options, "puma", "-C", "puma.rb", "-b",
                          f"unix://{self.folder}/http.sock", library=False, RUBYLIB="", SNUG="purge_cpu_percent:0,background:0", **variables)

    def test_the_gem_switches_them_on_without_a_line_anywhere(self):
        for text in (SERVER, SERVER + CLUSTER):
            with self.subTest(text[-20:]):
                server = self.by_the_gem(text)
                self.assert_purged(self.get, lambda: self.get("/garbage"))
                self.assertIsNone(self.get()["options"])
                self.end(server)
                (self.folder / "http.sock").unlink(missing_ok=True)
                shutil.rmtree(self.folder / "gem")
        self.assert_said()

    def test_it_leaves_them_out_if_asked_to(self):
        for words, variables in (("--no-hooks",), {}), ((), {"SNUG_HOOKS": "0"}):
            with self.subTest(words):
                server = self.by_the_gem(SERVER + CLUSTER, *words, **variables)
                self.assertIsNone(self.wait("an answer", self.get)["hooks"])
                self.end(server)
                (self.folder / "http.sock").unlink(missing_ok=True)
                shutil.rmtree(self.folder / "gem")
        self.assert_said(0)

    def test_the_gem_in_an_application_switches_them_on_under_snug(self):
        self.puma(SERVER.replace("threads", "require 'snug'\nthreads", 1) + CLUSTER)
        state = self.wait("an answer", self.get)["hooks"]
        self.assert_said()
        # As another process reads it.
        page = json.loads(self.page_of(state["pid"]))
        self.assertEqual(page, {name: value for name, value in state.items() if name != "copied_bytes"})
        self.assertFalse(page["immortal"])
        self.assertGreater(page["shared_bytes"], 5_000_000)
        self.assertLess(state["copied_bytes"], page["shared_bytes"])

    def page_of(self, pid):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith("/dev/zero (deleted)"):
                with open(f"/proc/{pid}/mem", "rb") as memory:
                    memory.seek(int(line.split("-")[0], 16))
                    text = memory.read(4096)
                if text.startswith(b"snug hooks 1\n"):
                    return text.partition(b"\n")[2].rstrip(b"\0").decode()
        raise AssertionError("there is no page")

    def test_the_gem_in_an_application_does_nothing_under_other_allocators(self):
        (self.folder / "puma.rb").write_text(SERVER.replace("threads", "require 'snug'\nthreads", 1) + CLUSTER)
        self.start("puma", "-C", "puma.rb", "-b", f"unix://{self.folder}/http.sock", library=False)
        self.assertIsNone(self.wait("an answer", self.get)["hooks"])

    def test_a_warm_up_is_seen_by_workers_and_its_failures_are_harmless(self):
        self.puma(PUMA + CLUSTER, SNUG_WARM_UP="/a?b=c /fails Shop.leave Shop.deep Shop.fill Job No.such https://shop.example/b /opens")
        self.assertEqual(self.wait("an answer", self.get)["seen"], [
            "http 127.0.0.1 /a b=c", "http 127.0.0.1 /fails ", "fill", "job", "https shop.example /b ", "http 127.0.0.1 /opens ", "open", "before_fork"])
        for words in ("the warm-up goes on without /fails: RuntimeError: of a test", "the warm-up goes on without No.such: NameError",
                      "the warm-up goes on without Shop.leave: SystemExit", "the warm-up goes on without Shop.deep: SystemStackError",
                      "the warm-up left 1 sockets open"):
            self.assertIn(words, self.log.read_text())

    def test_a_warm_up_ends_in_time(self):
        self.puma(PUMA + CLUSTER, SNUG_WARM_UP="/a /slow /b", SNUG_WARM_UP_SECONDS="1")
        self.assertEqual(self.wait("an answer", self.get)["seen"], ["http 127.0.0.1 /a ", "http 127.0.0.1 /slow ", "before_fork"])
        self.assertIn("the warm-up ended after 1 s, with 1 of 3 done: /a", self.log.read_text())

    def test_no_warm_up_by_paths_without_preload(self):
        self.puma(PUMA + "workers 1\n", SNUG_WARM_UP="/a")
        self.assertEqual(self.wait("an answer", self.get)["seen"], [])


@unittest.skipIf(missing("sidekiq", "redis-server"), missing("sidekiq", "redis-server"))
class Sidekiq(RubyServers):
    def setUp(self):
        super().setUp()
        (self.folder / "app.rb").write_text(SIDEKIQ)
        self.start("redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", library=False)
        self.wait("redis", (self.folder / "redis.sock").exists)
        self.redis = f"unix://{self.folder}/redis.sock"
        # The gem is in the application, and nothing else says anything of it.
        self.start("sidekiq", "-c", "2", "-r", "./app.rb", REDIS=self.redis, SNUG_WARM_UP="Job No.such", RUBYOPT="-rsnug")

    def job(self, name, argument, states=1):
        """What a job says of its process when it begins, and at its end if it says it twice."""
        script = (f"require './app'; {name}.perform_async({argument}); "
                  f"puts Sidekiq.redis {{ |redis| Array.new({states}) {{ (1..600).find {{ $got = redis.lpop('states') or sleep(0.1) && nil }} && $got }} }}")
        environment = {**test_wheel_hooks.CLEAN, "RUBYLIB": str(ROOT / "bindings/gem/lib"), "REDIS": self.redis}
        ended = test_wheel_hooks.subprocess.run(["ruby", "-W0", "-e", script], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, f"{ended.stderr}\n{self.log.read_text()}")
        found = [test_wheel_hooks.json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]  # it logs there, too
        return found[0] if states == 1 else found

    def test_it_purges_when_idle_and_never_in_a_job(self):
        self.assert_purged(lambda: self.job("Work", "false"), lambda: self.job("Work", "true"))
        self.job("Work", "true")
        # Longer than what counts as idle, while no other job runs.
        before, after = self.job("Long", 3, states=2)
        self.assertEqual(before["purged"], after["purged"])
        # Before the first job, in the process that runs them.
        self.assertEqual(before["seen"], ["job"])
        self.assertIn("the warm-up goes on without No.such: NameError", self.log.read_text())


if __name__ == "__main__":
    unittest.main()
