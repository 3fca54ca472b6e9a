"""The gems, installed into a folder: the tool, the functions, the warning in Rails, the plugin of Puma."""

import shutil
import unittest

from release import gems
from release.project import VERSION
from release.tests.staged import ARCHITECTURE, installed, run, temporary

FILLED = "held = Array.new(20000) { |i| 'x' * 3000 }; "
# The part of a Rails application that a Railtie needs.
RAILS = """require "logger"; require "rails"; require "snug"
class App < Rails::Application; config.eager_load = false; config.logger = Logger.new($stdout); end
App.initialize!
"""
PUMA = """workers 1
preload_app!
bind "unix://%s/puma.sock"
raise_exception_on_sigterm false
plugin :snug
app { |_| [200, {}, ["ok"]] }
on_worker_boot { puts "worker, #{GC.stat(:compact_count).positive?}, #{Snug.active?}"; $stdout.flush; Process.kill(:TERM, Process.ppid) }
"""


class Gems(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary(cls)
        cls.of_platform = gems.build(ARCHITECTURE, installed(), cls.folder / "work", cls.folder)
        cls.of_sources = gems.build_source(cls.folder / "work", cls.folder)

    def install(self, gem):
        """Installs a gem into a folder of its own; returns the variables with which Ruby finds it, and the folder."""
        home = temporary(self)
        variables = {"GEM_HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"}
        ended = run("gem", "install", "--local", "--no-document", gem, **variables)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return variables, home

    def succeed(self, *command, **variables):
        ended = run(*command, **variables)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def test_both_gems_run_programs_under_snug(self):
        for gem in (self.of_platform, self.of_sources):
            with self.subTest(gem.name):
                variables, _ = self.install(gem)
                said = self.succeed("snug", "run", "ruby", "-rsnug", "-e", "puts Snug.active?, Snug.version", **variables)
                self.assertEqual(said.split(), ["true", VERSION])
                path = self.succeed("snug", "path", **variables).strip()
                self.assertEqual(self.succeed("ruby", "-rsnug", "-e", "p Snug.active?", LD_PRELOAD=path, **variables), "true\n")
                self.assertEqual(run("snug", "run", "no-such-program", **variables).returncode, 127)

    def test_the_gem_of_a_platform_has_the_tool_and_the_other_says_that_it_has_none(self):
        variables, _ = self.install(self.of_platform)
        self.assertEqual(self.succeed("snug", "--version", **variables), f"snug {VERSION}\n")
        variables, _ = self.install(self.of_sources)
        ended = run("snug", "check", "1", **variables)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("compiled without the tool", ended.stderr)

    def test_functions(self):
        variables, _ = self.install(self.of_platform)
        script = FILLED + "puts Snug.stats[:live_allocated_bytes]; held = nil; GC.start; puts Snug.purge"
        live, given = map(int, self.succeed("snug", "run", "ruby", "-rsnug", "-e", script, SNUG="purge_cpu_percent:0,background:0", **variables).split())
        self.assertGreater(live, 60_000_000)
        self.assertGreater(given, 40_000_000)
        ended = run("ruby", "-rsnug", "-e", "p Snug.active?; Snug.stats", **variables)
        self.assertEqual(ended.stdout, "false\n")
        self.assertIn("snug is not this process's allocator; start it by `bundle exec snug run PROGRAM`", ended.stderr)

    def test_rails_says_so_when_it_is_not_active(self):
        variables, home = self.install(self.of_platform)
        (home / "app.rb").write_text(RAILS)
        warning = "snug is in the Gemfile but not active: start it by `bundle exec snug run PROGRAM`, or with LD_PRELOAD=/"
        self.assertIn(warning, self.succeed("ruby", home / "app.rb", **variables))
        self.assertNotIn("not active", self.succeed("ruby", home / "app.rb", SNUG_QUIET="1", **variables))
        self.assertNotIn("not active", self.succeed("snug", "run", "ruby", home / "app.rb", **variables))

    def test_puma_prepares_the_heap_before_it_forks(self):
        variables, home = self.install(self.of_platform)
        (home / "puma.rb").write_text(PUMA % home)
        said = self.succeed("snug", "run", "puma", "-C", home / "puma.rb", **variables)
        self.assertIn("worker, true, true\n", said)

    def test_the_tool_of_another_machine_is_named(self):
        variables, home = self.install(self.of_platform)
        tool, = home.rglob("lib/snug/snug")
        content = bytearray(tool.read_bytes())
        content[18:20] = b"\xf3\0"  # RISC-V
        tool.write_bytes(content)
        ended = run("snug", "run", "ruby", "-e", "1", **variables)
        self.assertEqual(ended.returncode, 125)
        self.assertIn("is for another machine: the gem's name says for which, and this is ", ended.stderr)

    def test_bundler_finds_it(self):
        variables, home = self.install(self.of_platform)
        (home / "Gemfile").write_text('gem "snug"\n')
        said = self.succeed("bundle", "exec", "--gemfile", home / "Gemfile", "snug", "run", "ruby", "-rsnug", "-e", "p Snug.active?",
                            **variables | {"HOME": str(home)})
        self.assertEqual(said, "true\n")

    def test_bundler_starts_puma_with_hooks_that_no_line_names(self):
        variables, home = self.install(self.of_platform)
        (home / "Gemfile").write_text('gem "snug"\ngem "puma"\n')
        (home / "puma.rb").write_text(PUMA.replace("plugin :snug\n", "") % home)
        in_bundle = "bundle", "exec", "--gemfile", home / "Gemfile", "snug", "run"
        variables["HOME"] = str(home)
        self.assertIn("worker, true, true\n", self.succeed(*in_bundle, "puma", "-C", home / "puma.rb", **variables))
        asked = "ruby", "-e", "p defined?(Snug::Auto), ENV['SNUG_HOOKS'], ENV['RUBYOPT'].to_s.include?('auto')"
        self.assertEqual(self.succeed(*in_bundle, *asked, **variables), '"constant"\nnil\nfalse\n')
        self.assertEqual(self.succeed(*in_bundle, "--no-hooks", *asked, **variables), 'nil\n"0"\nfalse\n')

    def test_without_a_compiler_the_gem_of_the_sources_says_so(self):
        home = temporary(self)
        ended = run("gem", "install", "--local", "--no-document", self.of_sources, GEM_HOME=str(home), CC="no-such-compiler")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("a C compiler is needed; no-such-compiler was not found", ended.stdout + ended.stderr)
        shutil.rmtree(home / "gems", ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
