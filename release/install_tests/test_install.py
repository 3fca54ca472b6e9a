"""Each line of the guide's table of packages, run on a clean system; what its removal leaves; packages for another machine."""

import fnmatch
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from release.install_tests.roots import Root, check, debian
from release.install_tests.test_linux import DIST, RUBY
from release.project import ARCHITECTURES, ROOT

QUIET_APT = "export DEBIAN_FRONTEND=noninteractive; "
PYTHON = "import snug; assert snug.active(); assert '/libsnug.so' in open('/proc/self/maps').read()"
GEM = "exit Snug.active? && File.read('/proc/self/maps').include?('/libsnug.so')"
OTHER = next(one for one in ARCHITECTURES.values() if not one.native)
# Lists and logs of package managers, and what Python compiles of itself.
BOOKS = ("var/lib/apt", "var/lib/dpkg", "var/cache", "var/log", "etc/ld.so.cache", "proc", "dist", "root", "tmp", "venv")


def lines():
    """The commands of install.md's table by the name of their row, the first of each alone and in full."""
    text = (ROOT / "docs/how-to/install.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (.*`.*) \|$", text.split("| for | install |")[1].split("\n\n")[0], re.M)
    return {name: re.findall(r"`([^`]+)`", commands) for name, commands in rows}


class Clean(unittest.TestCase):
    """A Debian with Ruby, Python and a compiler, and what `make dist` built in /dist."""

    def setUp(self):
        self.root = Root(debian())
        self.addCleanup(self.root.remove)
        (self.root.path / "dist").mkdir()
        for path in DIST.iterdir():
            os.link(path, self.root.path / "dist" / path.name)
        self.before = self.files()

    def files(self):
        names = {str(path.relative_to(self.root.path)) for path in self.root.path.rglob("*")}
        return {name for name in names if not name.startswith(BOOKS) and "__pycache__" not in name}

    def assert_nothing_left(self):
        self.root.run("ldconfig")
        self.assertEqual(self.files() - self.before, set())

    def run_in_dist(self, script, network=False):
        """Without a network, since what was built needs none to be installed."""
        return self.root.run(f"cd /dist; {QUIET_APT}{script}", network=network)

    def refused(self, script):
        with self.assertRaises(AssertionError) as caught:
            self.run_in_dist(script)
        return str(caught.exception)


class Lines(Clean):
    def line(self, row):
        return lines()[row][0]

    def test_every_line_has_a_test(self):
        """Rows that other files test: Alpine in test_linux, containers in test_image, Rust in bindings/tests/test_crate, where cargo is."""
        self.assertEqual(set(lines()), {"Debian, Ubuntu", "Fedora, Red Hat", "Alpine", "any Linux", "Python", "Ruby", "Rust", "containers", "Heroku"})

    def test_debian(self):
        self.run_in_dist(self.line("Debian, Ubuntu").replace("apt install", "apt-get -qq install -y --no-install-recommends"))
        self.root.run(f'snug run -- ruby -e "{RUBY}"')
        self.run_in_dist("apt-get -qq purge -y snug libsnug0")
        self.assert_nothing_left()

    def test_an_upgrade_under_a_running_program(self):
        """The file is replaced and not rewritten: the program keeps its own, and goes on."""
        packages = self.line("Debian, Ubuntu").removeprefix("apt install ")
        self.run_in_dist(f"dpkg --install {packages}")
        waiting = f"puts :ready; STDOUT.flush; File.read('/go'); {RUBY}"
        library = "stat --format %i /usr/lib/x86_64-linux-gnu/libsnug.so.0"
        self.run_in_dist(f"""mkfifo /go; before=$({library})
            LD_PRELOAD=/usr/lib/snug/libsnug.so ruby -e "{waiting}" >/said & program=$!
            tries=0; while ! grep -q ready /said 2>/dev/null; do tries=$((tries+1)); test $tries -lt 600; sleep 0.1; done
            dpkg --install {packages}; test $before != $({library})
            echo >/go; wait $program""")

    def test_any_linux(self):
        self.run_in_dist(self.line("any Linux"))
        self.root.run(f'snug run -- ruby -e "{RUBY}"')
        removal = re.search(r"^(tar -tf snug-.*)$", (ROOT / "docs/how-to/roll-out.md").read_text(), re.M)[1]
        self.run_in_dist(removal)
        # Folders that others use, too, stay.
        self.assertEqual([name for name in self.files() - self.before if "snug" in name or not (self.root.path / name).is_dir()], [])

    def test_python(self):
        install, run = lines()["Python"]
        self.root.run("python3 -m venv /venv")
        before = self.venv()
        self.run_in_dist(f"PATH=/venv/bin:$PATH; {install.replace('pip install', 'pip install --quiet --no-index')}")
        self.run_in_dist(f'PATH=/venv/bin:$PATH; {run.split("celery")[0]} python3 -c "{PYTHON}"')
        self.root.run("/venv/bin/pip uninstall --quiet --yes snug")
        self.assertEqual(self.venv() - before, set())
        self.assert_nothing_left()

    def venv(self):
        return {str(path) for path in (self.root.path / "venv").rglob("*") if "__pycache__" not in str(path)}

    def test_ruby(self):
        self.run_in_dist(self.line("Ruby").replace("install", "install --no-document"))
        self.root.run(f'snug run ruby -rsnug -e "{GEM}"')
        self.root.run("gem uninstall --executables --all snug")
        self.assertEqual({name for name in self.files() - self.before if "snug" in name}, set())

    def test_heroku(self):
        archive = next(DIST.glob("snug-*-heroku.tgz")).name
        add, enable = lines()["Heroku"]
        address, setting = add.split()[-1], enable.split()[-1]
        self.assertTrue(fnmatch.fnmatch(archive, address.removeprefix("URL-of-")), address)
        self.run_in_dist(f"""mkdir -p /tmp/buildpack /tmp/app /tmp/cache /tmp/variables; tar -C /tmp/buildpack -xf {archive}
            cd /tmp/buildpack; bin/detect /tmp/app; bin/compile /tmp/app /tmp/cache /tmp/variables
            export HOME=/tmp/app {setting}; . /tmp/app/.profile.d/snug.sh; ruby -e "{RUBY.replace('.so.0', '.so')}" """)
        self.assert_nothing_left()


@unittest.skipUnless(shutil.which("dnf"), "needs dnf")
class Rpm(unittest.TestCase):
    """Into an empty root."""

    def setUp(self):
        self.root = Root()
        self.addCleanup(self.root.remove)
        self.environment = {**os.environ, "HOME": str(self.root.path)}
        self.dnf = ["dnf", "--installroot", str(self.root.path), "--releasever", "40", "--forcearch", "x86_64", "--disablerepo", "*",
                    "--setopt=gpgcheck=0", "--setopt=localpkg_gpgcheck=0", "--assumeyes"]

    def test_the_line_and_back(self):
        patterns = lines()["Fedora, Red Hat"][0].removeprefix("dnf install ").split()
        packages = [str(path) for pattern in patterns for path in sorted(DIST.glob(pattern.removeprefix("./")))]
        self.assertEqual(len(packages), 2)
        check([*self.dnf, "install", *packages], env=self.environment)
        check(["chroot", str(self.root.path), "/usr/bin/snug", "--version"])
        check(["ruby", "-e", RUBY], env={**os.environ, "LD_PRELOAD": str(self.root.path / "usr/lib64/libsnug.so.0")})
        check([*self.dnf, "remove", "snug", "libsnug0"], env=self.environment)
        self.assertEqual([str(path) for path in self.root.path.rglob("*snug*") if "var" not in path.parts], [])

    def test_of_another_machine(self):
        package, = DIST.glob(f"libsnug0-*.{OTHER.name}.rpm")
        ended = subprocess.run([*self.dnf, "install", str(package)], env=self.environment, capture_output=True, text=True)
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(ended.stdout + ended.stderr, "does not have a compatible architecture|intended for a different architecture|nothing provides")


class RubyBuild(Clean):
    """The guide's lines for a Ruby with snug in it, by ruby-build and rbenv of Debian's. Ruby itself would take a quarter of an
    hour: what stands in for it asks the compiler for jemalloc as Ruby's configure does, and installs a program linked with it."""

    CONFIGURE = """#!/bin/sh
set -e
prefix=/usr/local jemalloc=
for word; do case $word in --prefix=*) prefix=${word#--prefix=};; --with-jemalloc) jemalloc=1;; esac; done
[ "$jemalloc" ]
cat >ruby.c <<'END'
#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) { const char *version; size_t size = sizeof version; void *block = malloc(100);
  return !block || mallctl("version", &version, &size, NULL, 0) || puts(version) < 0; }
END
cc $CPPFLAGS ruby.c $LDFLAGS -ljemalloc -o ruby
printf 'all:\ninstall:\n\tinstall -D ruby %s/bin/ruby\n' "$prefix" >Makefile
"""

    def test_ruby_build_and_rbenv(self):
        self.run_in_dist(lines()["any Linux"][0])
        self.run_in_dist("apt-get -qq update; apt-get -qq install -y --no-install-recommends ruby-build rbenv make", network=True)
        source = self.root.path / "srv/ruby-3.3.6"
        source.mkdir(parents=True)
        (source / "configure").write_text(self.CONFIGURE)
        (source / "configure").chmod(0o755)
        self.root.run("tar -C /srv -czf /srv/ruby-3.3.6.tar.gz ruby-3.3.6; mkdir -p /srv/definitions; "
                      "echo 'install_package ruby-3.3.6 http://localhost/ruby-3.3.6.tar.gz standard' >/srv/definitions/3.3.6")
        section = (ROOT / "docs/how-to/roll-out-languages.md").read_text().split("## Ruby that is built with it")[1].split("\n## ")[0]
        export, build, install = (re.search(pattern, section, re.M)[0] for pattern in ("^export CPPFLAGS.*$", "^.* ruby-build .*$", "^.* rbenv .*$"))
        variables = f"export RUBY_BUILD_CACHE_PATH=/srv RUBY_BUILD_DEFINITIONS=/srv/definitions; {export}; "
        self.run_in_dist(f"{variables}{build}; {install}", network=True)
        for ruby in ("/opt/ruby/bin/ruby", "/root/.rbenv/versions/3.3.6/bin/ruby"):
            self.assertIn("snug", self.root.run(ruby))


class OtherMachine(Clean):
    """Each package for another processor says that it is, when it is installed or started."""

    def test_deb(self):
        said = self.refused(f"dpkg --install libsnug0_*_{OTHER.deb}.deb")
        self.assertIn(f"package architecture ({OTHER.deb}) does not match system", said)

    def test_wheel(self):
        self.root.run("python3 -m venv /venv")
        said = self.refused(f"/venv/bin/pip install --no-index snug-*{OTHER.name}*.whl")
        self.assertIn("is not a supported wheel on this platform", said)

    def test_gem(self):
        """RubyGems takes whatever file it is given, and does not find it then: that is all it says. Where it does, as bundler may,
        the command says so: bindings/tests/test_gem.py."""
        self.run_in_dist(f"gem install --local --no-document snug-*-{OTHER.name}-linux.gem")
        self.assertRegex(self.refused("snug run ruby -e 1"), "can't find gem snug|is for another machine")

    def test_tar(self):
        self.run_in_dist(f"tar -C / -xf snug-*-{OTHER.name}.tar.gz")
        self.assertIn("Exec format error", self.refused("bash -c /usr/local/bin/snug"))
        self.assertIn("cannot be preloaded", self.root.run("LD_PRELOAD=/usr/local/lib/libsnug.so ruby -e 1"))


class OldKernel(Clean):
    def test_the_tool_and_the_deb_say_so(self):
        """setarch has this kernel call itself 2.6."""
        packages = " ".join(str(Path("/dist") / path.name) for path in DIST.glob("*snug*_amd64.deb") if path.name.startswith(("snug_", "libsnug0_")))
        said = self.root.run(f"setarch --uname-2.6 dpkg --install {packages}")
        self.assertIn("snug needs Linux 3.10 or newer, and this kernel is 2.6.", said)
        self.assertIn("snug needs Linux 3.10 or newer", self.root.run("setarch --uname-2.6 snug run -- true"))
        self.assertNotIn("3.10", self.root.run("snug run -- true"))


if __name__ == "__main__":
    unittest.main()
