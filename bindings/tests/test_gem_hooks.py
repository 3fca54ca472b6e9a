"""The gem's hooks in real servers: Puma and Sidekiq of Debian's, under snug.

The library gives nothing back by itself here (purge_cpu_percent:0, background:0), so that what was purged, the hooks purged.
"""

import unittest

from bindings.tests import test_wheel_hooks
from bindings.tests.test_wheel_hooks import missing
from release.project import ROOT

# What says of its process how often all was collected, and leaves memory behind that is free and resident.
STATE = """def state = JSON.generate(pid: Process.pid, major: GC.stat(:major_gc_count), purged: Snug.active? ? Snug.stats[:purged_bytes] : nil)
def garbage = Array.new(200) { "x" * 300_000 }.size
"""
PUMA = """require "json"
threads 2, 2
plugin :snug
raise_exception_on_sigterm false
""" + STATE + """app do |env|
  body = state
  garbage if env["PATH_INFO"] == "/garbage"
  [200, { "Content-Length" => body.bytesize.to_s, "Connection" => "close" }, [body]]
end
"""
SIDEKIQ = """require "json"
require "snug/sidekiq"
Sidekiq.configure_server { |config| config.redis = { url: ENV["REDIS"] } }
Sidekiq.configure_client { |config| config.redis = { url: ENV["REDIS"] } }
Redis.silence_deprecations = true
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


@unittest.skipIf(missing("sidekiq", "redis-server"), missing("sidekiq", "redis-server"))
class Sidekiq(RubyServers):
    def setUp(self):
        super().setUp()
        (self.folder / "app.rb").write_text(SIDEKIQ)
        self.start("redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", library=False)
        self.wait("redis", (self.folder / "redis.sock").exists)
        self.redis = f"unix://{self.folder}/redis.sock"
        self.start("sidekiq", "-c", "2", "-r", "./app.rb", REDIS=self.redis)

    def job(self, name, argument, states=1):
        """What a job says of its process when it begins, and at its end if it says it twice."""
        script = (f"require './app'; {name}.perform_async({argument}); "
                  f"puts Sidekiq.redis {{ |redis| Array.new({states}) {{ redis.blpop('states', timeout: 60)[1] }} }}")
        environment = {**test_wheel_hooks.CLEAN, "RUBYLIB": str(ROOT / "bindings/gem/lib"), "REDIS": self.redis}
        ended = test_wheel_hooks.subprocess.run(["ruby", "-W0", "-e", script], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, f"{ended.stderr}\n{self.log.read_text()}")
        found = [test_wheel_hooks.json.loads(line) for line in ended.stdout.splitlines()]
        return found[0] if states == 1 else found

    def test_it_purges_when_idle_and_never_in_a_job(self):
        self.assert_purged(lambda: self.job("Work", "false"), lambda: self.job("Work", "true"))
        self.job("Work", "true")
        # Longer than what counts as idle, while no other job runs.
        before, after = self.job("Long", 3, states=2)
        self.assertEqual(before["purged"], after["purged"])


if __name__ == "__main__":
    unittest.main()
