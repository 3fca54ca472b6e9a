"""The gem's hooks for Resque and for backends of Active Job, and its metrics, under snug.

Active Job is Debian's. Resque, Solid Queue, prometheus-client and yabeda are not there: where Ruby finds them, as in folders
that SNUG_TEST_RUBYLIB names, they are used, else what stands in for them here and calls hooks as they do.
"""

import json
import os
import subprocess
import unittest
from pathlib import Path

from bindings.tests import test_gem_hooks
from bindings.tests.test_wheel_hooks import missing
from release.project import ROOT
from release.tests.staged import CLEAN, installed, temporary

STAND_INS = Path(__file__).resolve().parent / "stand_ins"
LIBRARIES = [str(ROOT / "bindings/gem/lib"), *filter(None, [os.environ.get("SNUG_TEST_RUBYLIB")])]
JOBS = """require "json"
require "snug"
$stdout.sync = true
""" + test_gem_hooks.STATE.replace("major: GC", "compacted: GC.stat(:compact_count), major: GC")
RESQUE = JOBS + """require "resque"
require "snug/resque"
Resque.redis = Redis.new(url: ENV["REDIS"]) if ENV["REDIS"]
class Work
  @queue = :all
  def self.perform(leave)
    puts state
    garbage if leave
  end
end
if ARGV == ["work"]
  worker = Resque::Worker.new("all")
  worker.prepare if worker.respond_to?(:prepare)
  worker.work(0.1)
else
  Resque.enqueue(Work, ARGV == ["leave"])
end
"""
# Reads commands: a job in the queue, a job that is not, and a long one.
ACTIVE_JOB = JOBS + """require "active_job"
require "snug/active_job"
ActiveJob::Base.queue_adapter = :async
ActiveJob::Base.logger = nil
class Work < ActiveJob::Base
  def perform(leave)
    puts state
    garbage if leave
  end
end
class Long < ActiveJob::Base
  def perform
    puts state
    sleep 0.1 until File.exist?("go")
    puts state
  end
end
$stdin.each_line do |line|
  case line.chomp
  when "ask" then Work.perform_later(false)
  when "leave" then Work.perform_later(true)
  when "leave now" then Work.perform_now(true)
  when "long" then Long.perform_later
  end
end
"""
SOLID_QUEUE = JOBS + """require "active_job"
require "solid_queue"
require "snug/solid_queue"
SolidQueue::Supervisor.new.start { puts state }
"""
METRICS = """require "snug/prometheus"
require "prometheus/client/formats/text"
puts Prometheus::Client::Formats::Text.marshal(Prometheus::Client.registry)
"""
YABEDA = """require "snug/yabeda"
Yabeda.configure! if Yabeda.respond_to?(:configure!)
Yabeda.collectors.each(&:call)
puts Yabeda.metrics.map { |_, metric| "#{metric.group}_#{metric.name}_#{metric.unit} #{metric.get}" }
"""


def found(library):
    """Whether Ruby finds the library itself."""
    script = f"require '{library}'"
    return subprocess.run(["ruby", "-e", script], env={**CLEAN, "RUBYLIB": ":".join(LIBRARIES)}, capture_output=True).returncode == 0


def libraries(*names):
    """RUBYLIB with the gem, and with stand-ins for those of the names that Ruby does not find."""
    return ":".join(LIBRARIES + [str(STAND_INS / name) for name in names if not found(name)])


class Jobs(test_gem_hooks.RubyServers):
    def says(self):
        """The states that jobs have printed."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith('{"pid"') and line.endswith("\n")]

    def job(self, begin):
        """Begins a job, and returns what it prints."""
        before = len(self.says())
        begin()
        return self.wait("a job", lambda: self.says()[before:])[0]


class Resque(Jobs):
    def setUp(self):
        super().setUp()
        (self.folder / "app.rb").write_text(RESQUE)
        self.variables = {"RUBYLIB": libraries("resque"), "QUEUE_FOLDER": str(self.folder)}
        if found("resque"):
            if missing("redis-server"):
                self.skipTest(missing("redis-server"))
            self.start("redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", library=False)
            self.wait("redis", (self.folder / "redis.sock").exists)
            self.variables["REDIS"] = f"unix://{self.folder}/redis.sock"

    def enqueue(self, *words):
        subprocess.run(["ruby", "-W0", "app.rb", *words], cwd=self.folder, env={**CLEAN, **self.variables}, check=True, timeout=120)

    def test_a_worker_prepares_the_heap_before_its_first_fork(self):
        self.start("ruby", "app.rb", "work", **self.variables)
        states = [self.job(self.enqueue) for _ in range(2)]
        self.assertNotEqual(states[0]["pid"], states[1]["pid"])
        self.assertEqual([state["compacted"] for state in states], [1, 1])

    def test_a_worker_that_forks_for_no_job_purges_when_its_queue_is_empty(self):
        self.start("ruby", "app.rb", "work", FORK_PER_JOB="false", **self.variables)
        self.assert_purged(lambda: self.job(self.enqueue), lambda: self.job(lambda: self.enqueue("leave")))

    def test_hooks_that_fail_leave_the_worker_alone(self):
        (self.folder / "app.rb").write_text(RESQUE.replace("require \"resque\"", "def Snug.purge = raise('of a test')\nrequire \"resque\"", 1))
        self.start("ruby", "app.rb", "work", FORK_PER_JOB="false", **self.variables)
        self.job(self.enqueue)
        self.wait("the hook's words", lambda: "the server goes on: RuntimeError: of a test" in self.log.read_text())
        self.job(self.enqueue)


class ActiveJob(Jobs):
    def setUp(self):
        super().setUp()
        (self.folder / "app.rb").write_text(ACTIVE_JOB)
        pipe = self.folder / "commands"
        os.mkfifo(pipe)
        self.start("sh", "-c", f"exec ruby -W0 app.rb <{pipe}", SNUG_COLLECT_SECONDS="0.1")
        self.commands = open(pipe, "w")
        self.addCleanup(self.commands.close)

    def send(self, command):
        print(command, file=self.commands, flush=True)

    def test_it_purges_when_idle(self):
        self.assert_purged(lambda: self.job(lambda: self.send("ask")), lambda: self.job(lambda: self.send("leave")))

    @unittest.skipIf(os.cpu_count() == 1, "Active Job has one thread for each CPU, and this needs two")
    def test_it_does_not_while_a_job_runs(self):
        before = self.job(lambda: self.send("long"))
        self.job(lambda: self.send("leave"))
        for _ in range(2):
            self.pause()
        after = self.job((self.folder / "go").touch)
        self.assertEqual(before["purged"], after["purged"])

    def test_a_job_that_was_in_no_queue_begins_no_idle_moment(self):
        first = self.job(lambda: self.send("leave now"))
        for _ in range(2):
            self.pause()
        self.assertEqual(self.job(lambda: self.send("leave now"))["purged"], first["purged"])


class SolidQueue(Jobs):
    def test_the_supervisor_prepares_the_heap_before_it_forks(self):
        if found("solid_queue"):
            self.skipTest("Solid Queue itself needs a database; this test is about its stand-in")
        (self.folder / "app.rb").write_text(SOLID_QUEUE)
        self.start("ruby", "-W0", "app.rb", RUBYLIB=libraries("solid_queue"))
        self.assertEqual(self.wait("a worker", self.says)[0]["compacted"], 1)


class Metrics(unittest.TestCase):
    def says(self, script, library, **variables):
        environment = {**CLEAN, "RUBYLIB": libraries(library), "LD_PRELOAD": str(installed() / "lib/libsnug.so.0"), **variables}
        ended = subprocess.run(["ruby", "-W0", "-e", script], cwd=temporary(self), env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return dict(line.rsplit(" ", 1) for line in ended.stdout.splitlines() if line and not line.startswith("#"))

    def test_prometheus_client_shows_the_heap(self):
        values = self.says(METRICS, "prometheus/client")
        names = {name.partition("{pid=")[0] for name in values}
        self.assertEqual(names, {f"snug_heap_{part}_bytes" for part in ("live", "requested", "cached", "slab_free", "dirty", "metadata", "resident")})
        self.assertGreater(min(float(value) for name, value in values.items() if "live" in name), 1_000_000)
        self.assertEqual(self.says(METRICS, "prometheus/client", LD_PRELOAD=""), {})

    def test_yabeda_shows_the_heap(self):
        values = self.says(YABEDA, "yabeda")
        self.assertGreater(float(values["snug_heap_live_bytes"]), 1_000_000)
        self.assertEqual(len(values), 7)
        self.assertEqual(set(self.says(YABEDA, "yabeda", LD_PRELOAD="").values()) - {""}, set())


if __name__ == "__main__":
    unittest.main()
