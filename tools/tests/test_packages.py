"""What make says of missing packages, who installs them, and that apt knows each."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL_DEPS = ROOT / "tools/install-deps"
GROUPS = ("library", "build", "check", "demo", "test", "servers", "programs", "bench", "soak", "dist", "kubernetes", "jemalloc_users", "system", "vm")
# What make and tools/install-deps themselves use; no compiler, no Rust.
COMMANDS = ("make", "bash", "sh", "sed", "sort", "tr", "grep", "mkdir", "touch", "dirname", "find", "mktemp", "tail", "rm", "install", "sleep")
# A Debian 13 with nothing installed, where apt "installs" by writing down what it was asked for.
# It speaks German unless it is asked not to.
APT_CACHE = """#!/bin/bash
if [ "${LC_ALL:-}" = C ]; then word=Candidate none='(none)'; else word=Installationskandidat none='(keine)'; fi
case $2 in
  cargo) echo "  $word: 1.85.1+dfsg1-1" ;;
  libmimalloc3 | gcc) echo "  $word: 1" ;;
  *) echo "  $word: $none" ;;
esac
"""
DPKG_QUERY = "#!/bin/sh\nexit 1\n"
# While it installs, it notes what Debian's packages would ask about their services: the policy of init's scripts, and presets.
# It fails as often as LOCKED says, with what apt says of the lock LOCK, or at once if FAILS is set.
APT_GET = """#!/bin/bash
echo "$@" >>"$APT_LOG"
if [ -n "${FAILS:-}" ]; then echo "E: $FAILS"; exit 100; fi
if [ "$(grep -c . "$APT_LOG")" -le "${LOCKED:-0}" ]; then
  echo "E: Could not get lock $LOCK. It is held by process 4711 (unattended-upgr)"
  echo "E: Unable to lock directory ${LOCK%/*}/"
  exit 100
fi
case " $* " in *' install '*)
  "$DPKG_ROOT/usr/sbin/policy-rc.d" redis-server start
  echo "policy $?" >>"$APT_LOG.services"
  sed 's/^/preset /' "$DPKG_ROOT"/run/systemd/system-preset/*.preset >>"$APT_LOG.services"
esac
[ -z "${ENDED:-}" ] || kill -TERM $PPID
"""
ID = "#!/bin/sh\necho 0\n"
SLEEP = '#!/bin/sh\necho "$@" >>"$APT_LOG.slept"\n'
POLICY, PRESETS = "usr/sbin/policy-rc.d", "run/systemd/system-preset"


class BareSystem:
    """A folder that stands for PATH, and a copy of what make needs of the repository."""

    def __init__(self, folder):
        self.path, self.project, self.log, self.root = folder / "bin", folder / "project", folder / "apt.log", folder / "root"
        self.path.mkdir()
        self.root.mkdir()
        for command in COMMANDS:
            (self.path / command).symlink_to(shutil.which(command))
        for name, script in (("apt-cache", APT_CACHE), ("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET), ("id", ID), ("env", ""), ("dpkg", "")):
            if script:
                (self.path / name).write_text(script)
                (self.path / name).chmod(0o755)
            else:
                (self.path / name).symlink_to(shutil.which(name))
        (self.project / "build").mkdir(parents=True)
        for name in ("Makefile", "VERSION", "core", "bench", "tools", "crates", "Cargo.toml", "Cargo.lock", "release", "deploy"):
            (self.project / name).symlink_to(ROOT / name)
        # A tree of its own for the one script that finds its folder by its place.
        (self.project / "tools").unlink()
        shutil.copytree(ROOT / "tools", self.project / "tools", ignore=shutil.ignore_patterns("__pycache__"))

    def make(self, *goals):
        return self.run("make", *goals)

    def run(self, *command, **variables):
        environment = {"PATH": str(self.path), "HOME": "/nonexistent", "APT_LOG": str(self.log), "DPKG_ROOT": str(self.root), **variables}
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True)

    def asked_for(self):
        """What apt-get was told to install."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [word for line in lines if " install " in line for word in line.partition("recommends ")[2].split()]

    def noted(self, what):
        """Lines of what apt-get noted of services, or of how long was slept."""
        path = self.log.with_name(f"apt.log.{what}")
        return path.read_text().splitlines() if path.exists() else []

    def files(self):
        """All that is in the root that Debian's tools work on."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())


class OnBareSystem(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.system = BareSystem(Path(folder.name))


class Packages(OnBareSystem):
    def test_a_build_says_what_is_missing_and_installs_nothing(self):
        for goals, missing in ((("all",), "binutils cargo gcc libc6-dev rustc"), (("library",), "binutils gcc libc6-dev"),
                               (("tool",), "binutils cargo gcc libc6-dev rustc"), (("install-library",), "binutils gcc libc6-dev")):
            with self.subTest(goals):
                ended = self.system.make(*goals)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(f"missing packages: {missing}\n", ended.stderr)
                self.assertIn("to install them: ", ended.stderr)
                self.assertEqual(self.system.asked_for(), [])
        self.assertIn("to install them: make deps\n", self.system.make("all").stderr)

    def test_make_deps_installs_what_a_build_needs(self):
        self.system.make("deps")
        self.assertEqual(self.system.asked_for(), ["binutils", "cargo", "gcc", "libc6-dev", "rustc"])

    def test_make_demo_and_make_test_install_by_themselves(self):
        for goal, package in (("demo", "ruby-concurrent"), ("test", "valgrind"), ("test-programs", "gcc"), ("bench", "gcc")):
            with self.subTest(goal):
                self.system.log.unlink(missing_ok=True)
                self.system.make("--keep-going", goal)
                self.assertIn(package, self.system.asked_for())

    def test_names_are_those_of_the_release(self):
        listed = self.system.run("tools/install-deps", "--list", "test").stdout.split()
        self.assertIn("libmimalloc3", listed)
        self.assertNotIn("libmimalloc2.0", listed)

    def test_an_unknown_group_is_refused(self):
        self.assertEqual(self.system.run("tools/install-deps", "all").returncode, 2)


class Services(OnBareSystem):
    """What comes with a package neither starts nor is enabled, whatever the package is; and what the user set stays."""

    def test_packages_are_told_to_start_and_enable_nothing(self):
        for variables, code in (({}, 1), ({"ENDED": "1"}, 143)):
            with self.subTest(variables):
                ended = self.system.run("tools/install-deps", "library", **variables)
                self.assertEqual(ended.returncode, code, ended.stderr)
                self.assertEqual(self.system.files(), [])
        self.assertEqual(self.system.noted("services"), ["policy 101", "preset disable *"])
        self.assertIn("services among them stay off", self.system.run("tools/install-deps", "library").stdout)

    def test_nothing_is_left_of_what_failed(self):
        ended = self.system.run("tools/install-deps", "library", FAILS="Unable to fetch some archives")
        self.assertEqual((ended.returncode, ended.stderr), (1, "E: Unable to fetch some archives\n"))
        self.assertEqual(self.system.files(), [])

    def test_what_an_earlier_one_left_goes_and_what_is_the_users_stays(self):
        policy = self.system.root / POLICY
        policy.parent.mkdir(parents=True)
        install = (ROOT / "tools/install-deps").read_text()
        mark = re.search(r"^policy_mark='(.*)'$", install, re.M)[1]
        policy.write_text(f"#!/bin/sh\n{mark}\nexit 101\n")
        self.system.run("tools/install-deps", "library")
        self.assertEqual(self.system.files(), [])
        policy.write_text("#!/bin/sh\nexit 104\n")
        policy.chmod(0o755)
        presets = self.system.root / PRESETS
        (presets / "50-mine.preset").write_text("enable mine.service\n")
        self.system.run("tools/install-deps", "library")
        self.assertEqual(self.system.noted("services")[-3:], ["policy 104", "preset enable mine.service", "preset disable *"])
        self.assertEqual(self.system.files(), [f"{PRESETS}/50-mine.preset", POLICY])
        self.assertEqual(policy.read_text(), "#!/bin/sh\nexit 104\n")

    @unittest.skipUnless(shutil.which("systemctl"), "systemd is not installed")
    def test_systemd_heeds_it(self):
        """As Debian's packages ask it: new units stay off but for those that a preset of the user's or of systemd names."""
        self.system.run("tools/install-deps", "library")
        preset = [line.removeprefix("preset ") for line in self.system.noted("services") if line.startswith("preset ")]
        root, links = self.system.root, self.system.root / "etc/systemd/system"
        units = root / "usr/lib/systemd/system"
        for folder in (units, links, root / PRESETS, root / "etc/systemd/system-preset"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("new.service", "new.socket", "new.timer", "new@.service", "wanted.service"):
            (units / name).write_text("[Install]\nWantedBy=multi-user.target\nDefaultInstance=1\n")
        (links / "wanted.target.wants").mkdir()
        (links / "wanted.target.wants/before.service").symlink_to("/usr/lib/systemd/system/before.service")
        (root / "etc/systemd/system-preset/50-mine.preset").write_text("enable wanted.service\n")

        def enabled():
            for name in sorted(path.name for path in units.iterdir()):
                subprocess.run(["systemctl", f"--root={root}", "--system", "--preset-mode=enable-only", "preset", name], capture_output=True)
            return sorted(path.name for path in links.glob("*.wants/*"))
        (root / PRESETS / "99-ours.preset").write_text("\n".join(preset))
        self.assertEqual(enabled(), ["before.service", "wanted.service"])
        (root / PRESETS / "99-ours.preset").unlink()
        self.assertEqual(enabled(), ["before.service", "new.service", "new.socket", "new.timer", "new@1.service", "wanted.service"])


class Locks(OnBareSystem):
    """Another apt may hold any of its locks for minutes, as Debian's own upgrades do after a boot."""

    LOCKS = ("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock", "/var/lib/dpkg/lock-frontend")

    def setUp(self):
        super().setUp()
        (self.system.path / "sleep").unlink()
        (self.system.path / "sleep").write_text(SLEEP)
        (self.system.path / "sleep").chmod(0o755)

    def test_it_waits_for_each_and_says_so_once(self):
        for lock in self.LOCKS:
            with self.subTest(lock):
                self.system.log.unlink(missing_ok=True)
                ended = self.system.run("tools/install-deps", "library", LOCKED="3", LOCK=lock)
                self.assertEqual(self.system.asked_for(), ["binutils", "gcc", "libc6-dev"])
                waits = [line for line in ended.stderr.splitlines() if "waiting" in line]
                self.assertEqual(waits, ["tools/install-deps: another program uses apt; waiting for it, up to 10 minutes: "
                                         f"Could not get lock {lock}. It is held by process 4711 (unattended-upgr)"])

    def test_it_ends(self):
        ended = self.system.run("tools/install-deps", "library", LOCKED="1000000", LOCK=self.LOCKS[0])
        self.assertEqual(ended.returncode, 1)
        self.assertIn(f"still, after 10 minutes: Could not get lock {self.LOCKS[0]}. It is held by process 4711", ended.stderr)
        self.assertEqual(sum(map(int, self.system.noted("slept"))), 600)
        self.assertEqual(self.system.asked_for(), [])

    def test_other_failures_are_final(self):
        ended = self.system.run("tools/install-deps", "library", FAILS="Temporary failure resolving 'deb.debian.org'")
        self.assertEqual((ended.returncode, ended.stderr), (1, "E: Temporary failure resolving 'deb.debian.org'\n"))
        self.assertEqual(self.system.noted("slept"), [])


@unittest.skipUnless(shutil.which("apt-cache"), "needs Debian")
class Apt(unittest.TestCase):
    def test_apt_knows_each_package_of_this_system(self):
        names = subprocess.run([INSTALL_DEPS, "--list", *GROUPS], capture_output=True, text=True, check=True).stdout.split()
        self.assertGreater(len(names), 30)
        policy = subprocess.run(["apt-cache", "policy", *names], capture_output=True, text=True).stdout
        found = re.findall(r"^(\S+):\n(?:  Installed: [^(\s].*|  Installed: .*\n  Candidate: [^(\s].*)", policy, re.M)
        self.assertEqual(set(names) - {name.partition(":")[0] for name in found}, set())


class Install(unittest.TestCase):
    def install(self, goal, folder, umask=-1, **environment):
        # The tool as `make` builds it: the release's takes minutes more.
        return subprocess.run(["make", "--no-print-directory", goal, f"DESTDIR={folder}", "TOOL=build/snug"], cwd=ROOT,
                              capture_output=True, text=True, umask=umask, env={**os.environ, **environment})

    def files(self, folder):
        return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir() or path.is_symlink())

    def test_uninstall_takes_all_away_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.install("install", folder)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            installed = self.files(folder)
            for name in ("bin/snug", "lib/libsnug.so", "share/man/man1/snug-check.1", "share/fish/vendor_completions.d/snug.fish"):
                self.assertIn(f"usr/local/{name}", installed)
            others = ["usr/local/bin/snugger", "usr/local/share/man/man1/snuggle.1", "usr/local/lib/libsnugger.so"]
            for name in others:
                Path(folder, name).touch()
            self.assertEqual(self.install("uninstall", folder).returncode, 0)
            self.assertEqual(self.files(folder), sorted(others))

    def test_all_users_can_read_it_whatever_the_umask(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.install("install", folder, umask=0o077)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            below = list(Path(folder).rglob("*"))
            self.assertGreater(len(below), 20)
            needed = {path: 0o555 if path.is_dir() else 0o444 for path in below}
            self.assertEqual([path for path, bits in needed.items() if path.stat().st_mode & bits != bits], [])

    def test_the_library_is_installed_without_rust(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.install("install-library", folder, CARGO="false")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual([name.removeprefix("usr/local/") for name in self.files(folder)],
                             ["include/snug.h", "include/snug/jemalloc/jemalloc.h", "include/snug_counters.h", "include/snug_malloc.h",
                              "lib/cmake/snug/snugConfig.cmake", "lib/cmake/snug/snugConfigVersion.cmake",
                              "lib/libsnug-prefixed.a", "lib/libsnug.a", "lib/libsnug.so", "lib/libsnug.so.0", "lib/libsnug.so.debug", "lib/pkgconfig/snug-prefixed.pc", "lib/pkgconfig/snug.pc",
                              "lib/snug/libjemalloc.so", "lib/snug/libjemalloc.so.2", "lib/snug/pkgconfig/jemalloc.pc",
                              "share/man/man3/snug.3"])
            loaded = subprocess.run(["/bin/true"], env={"LD_PRELOAD": f"{folder}/usr/local/lib/libsnug.so", "SNUG": "verbose:1"},
                                    capture_output=True, text=True)
            self.assertIn("snug", loaded.stderr)

    def test_debug_information_is_beside_the_library_and_found_by_it(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.install("install-library", folder).returncode, 0)
            libraries = Path(folder, "usr/local/lib")
            sections = subprocess.run(["readelf", "-SW", "--string-dump=.gnu_debuglink", libraries / "libsnug.so.0"],
                                      capture_output=True, text=True, errors="replace", check=True).stdout
            self.assertNotIn(".debug_info", sections)
            self.assertIn("libsnug.so.debug", sections)
            sections = subprocess.run(["readelf", "-SW", libraries / "libsnug.so.debug"], capture_output=True, text=True, check=True).stdout
            self.assertIn(".debug_info", sections)
            sections = subprocess.run(["readelf", "-SW", libraries / "snug/libjemalloc.so.2"], capture_output=True, text=True, check=True).stdout
            self.assertNotRegex(sections, r"\.debug_info|\.symtab")
            described = (libraries / "pkgconfig/snug.pc").read_text()
            self.assertIn("prefix=/usr/local\n", described)
            self.assertIn(f"Version: {(ROOT / 'VERSION').read_text().strip()}\n", described)

    PREFIXED_PROGRAM = """
#include <snug.h>
#include <snug_malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  struct snug_stats before, after;
  snug_stats(&before, sizeof before);
  void *theirs = malloc(5000000), *ours = snug_malloc(5000000);
  snug_stats(&after, sizeof after);
  printf("%d\\n", (int)((after.live_allocated_bytes - before.live_allocated_bytes) / 1000000));
  free(theirs), snug_free(ours);
  return 0;
}
"""

    def test_a_program_is_linked_with_the_prefix_as_pkg_config_says(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.install("install-library", folder).returncode, 0)
            usr, program = Path(folder, "usr/local"), Path(folder, "program")
            described = subprocess.run(["pkg-config", "--cflags", "--libs", f"--define-variable=prefix={usr}", "snug-prefixed"],
                                       env={**os.environ, "PKG_CONFIG_PATH": str(usr / "lib/pkgconfig")}, capture_output=True, text=True)
            self.assertEqual(described.returncode, 0, described.stderr)
            command = ["gcc", "-O0", "-x", "c", "-o", str(program), "-", *described.stdout.split()]
            linked = subprocess.run(command, input=self.PREFIXED_PROGRAM, capture_output=True, text=True)
            self.assertEqual(linked.returncode, 0, linked.stderr)
            ended = subprocess.run([program], env={}, capture_output=True, text=True)
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "5\n", ""))

    CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(snug %s REQUIRED)
foreach(kind snug static prefixed)
  add_executable(${kind} ${kind}.c)
  target_link_libraries(${kind} snug::${kind})
endforeach()
"""
    OWN_PROGRAM = """
#include <snug.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  struct snug_stats stats;
  void *block = malloc(5000000);
  snug_stats(&stats, sizeof stats);
  printf("%d\\n", (int)(stats.live_allocated_bytes / 1000000));
  free(block);
  return 0;
}
"""

    def test_cmake_finds_the_libraries_and_programs_are_linked(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.install("install-library", folder).returncode, 0)
            usr, source = Path(folder, "usr/local"), Path(folder, "consumer")
            source.mkdir()
            for name in ("snug.c", "static.c"):
                (source / name).write_text(self.OWN_PROGRAM)
            (source / "prefixed.c").write_text(self.PREFIXED_PROGRAM)

            def configure(version, build):
                (source / "CMakeLists.txt").write_text(self.CMAKE_PROJECT % version)
                return subprocess.run(["cmake", "-S", source, "-B", source / build, f"-DCMAKE_PREFIX_PATH={usr}",
                                       "-DCMAKE_BUILD_TYPE=Debug"], capture_output=True, text=True)

            version = (ROOT / "VERSION").read_text().strip()
            newer = configure("99.0", "newer")
            self.assertNotEqual(newer.returncode, 0)
            self.assertIn(version, newer.stderr)
            configured = configure(version, "build")
            self.assertEqual(configured.returncode, 0, configured.stderr)
            built = subprocess.run(["cmake", "--build", source / "build"], capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
            for kind, printed, needed in (("snug", "5\n", True), ("static", "5\n", False), ("prefixed", "5\n", False)):
                ended = subprocess.run([source / "build" / kind], env={}, capture_output=True, text=True)
                self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, printed, ""), kind)
                dynamic = subprocess.run(["readelf", "-d", source / "build" / kind], capture_output=True, text=True).stdout
                self.assertEqual("[libsnug.so.0]" in dynamic, needed, kind)
            (usr / "lib/libsnug.a").unlink()
            missing = configure(version, "missing")
            self.assertNotEqual(missing.returncode, 0)
            self.assertRegex(missing.stderr, r"libsnug\.a is missing;\s+install\s+snug's\s+library")

    # As Ruby's configure --with-jemalloc looks: the header, then whether malloc_conf links without and with -ljemalloc.
    CONFIGURE_PROGRAM = """
#include <stdio.h>
#include <jemalloc/jemalloc.h>
int main(void) {
  if (malloc_conf) printf("malloc_conf=%s\\n", malloc_conf);
  const char *version;
  size_t bytes = sizeof version;
  if (mallctl("version", &version, &bytes, NULL, 0) == 0) puts(version);
  return 0;
}
"""

    def test_programs_made_for_jemalloc_are_compiled_and_linked(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.install("install-library", folder).returncode, 0)
            usr, program = Path(folder, "usr/local"), Path(folder, "program")
            described = (usr / "lib/snug/pkgconfig/jemalloc.pc").read_text().replace("${prefix}", str(usr))
            described = described.replace("${libdir}", f"{usr}/lib/snug").replace("${includedir}", f"{usr}/include/snug")
            flags = [word for line in described.splitlines() if line.startswith(("Libs:", "Cflags:")) for word in line.split()[1:]]
            compile_with = ["gcc", "-x", "c", "-o", str(program), "-", *[flag for flag in flags if flag != "-ljemalloc"]]
            without = subprocess.run(compile_with, input=self.CONFIGURE_PROGRAM, capture_output=True, text=True)
            self.assertIn("undefined reference to `malloc_conf'", without.stderr)
            linked = subprocess.run([*compile_with, "-ljemalloc"], input=self.CONFIGURE_PROGRAM, capture_output=True, text=True)
            self.assertEqual(linked.returncode, 0, linked.stderr)
            needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True).stdout
            self.assertIn("[libjemalloc.so.2]", needed)
            ran = subprocess.run([program], capture_output=True, text=True)
            self.assertRegex(ran.stdout, r"^5\.3\.1-\S*snug\S*\n$")


if __name__ == "__main__":
    unittest.main()
