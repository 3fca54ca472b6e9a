"""deb, rpm and apk: installed from signed repositories, or unpacked, and programs run under them."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest
from pathlib import Path

from release.install_tests.registries import served
from release.install_tests.roots import Root, check, debian
from release.project import ROOT, VERSION

DIST, SITE = ROOT / "build/dist", ROOT / "build/repositories"
PATH_OF_ALL = "/usr/lib/snug/libsnug.so"
# Threads that make and drop strings; it ends well only where the library answers malloc.
RUBY = ("4.times.map { Thread.new { 20000.times.map { |i| ?x * (i % 3000) }.size } }.each(&:join); "
        "exit File.read('/proc/self/maps').include?('/libsnug.so.0')")
STATS = "SNUG=stats_print:1"
APK = shutil.which(os.environ.get("APK", "apk"))


def repository_lines(system, site):
    """The guide's commands for a system that installs from repositories, which are at the address `site`."""
    rows = (ROOT / "docs/how-to/install.md").read_text().split("## Repositories of your own")[1]
    row = re.search(rf"^\| {system} \| (.*) \|$", rows, re.M)[1]
    return [line.replace("https://packages.example.com", site) for line in re.findall(r"`([^`]+)`", row)]


class Published(unittest.TestCase):
    """Everything is signed with a key made for these tests."""

    @classmethod
    def setUpClass(cls):
        check([str(ROOT / "release/publish"), "--new-key", str(ROOT / "build/test-key")])

    def test_the_checksums_hold_and_their_signature_tells_changes(self):
        home = ROOT / "build/test-key"
        check(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=SITE)
        verify = ["gpg", "--homedir", str(home), "--verify", str(SITE / "SHA256SUMS.asc")]
        check([*verify, str(SITE / "SHA256SUMS")])
        changed = SITE / "changed"
        changed.write_text((SITE / "SHA256SUMS").read_text().replace("a", "b", 1))
        self.assertNotEqual(subprocess.run([*verify, str(changed)], capture_output=True).returncode, 0)
        changed.unlink()


class Deb(Published):
    """From the repository, over HTTP."""

    def setUp(self):
        self.root = Root(debian())
        self.addCleanup(self.root.remove)
        shutil.copytree(SITE / "apt", self.root.path / "srv/apt")
        shutil.copy(SITE / "snug.asc", self.root.path / "srv")
        fetch, source, self.update, self.install_line = repository_lines("Debian, Ubuntu", self.enterContext(served(self.root.path / "srv")))
        check(["curl", "--silent", "--fail", *fetch.replace("/etc", f"{self.root.path}/etc", 1).split()[1:]])
        (self.root.path / "etc/apt/sources.list").unlink()
        self.root.run(source)
        shutil.rmtree(self.root.path / "var/lib/apt/lists")

    def test_from_the_repository_to_a_program_and_back(self):
        before = self.files()
        update, install = (line.replace("apt", "apt-get -qq -y") for line in (self.update, self.install_line))
        said = self.root.run(f"export DEBIAN_FRONTEND=noninteractive; {update}; {install}")
        self.assertNotIn("error", said.lower())
        self.assertEqual(self.root.run("snug --version"), f"snug {VERSION}\n")
        self.root.run(f'snug run -- ruby -e "{RUBY}"')
        self.root.run(f'LD_PRELOAD={PATH_OF_ALL} ruby -e "{RUBY}"')
        self.assertIn('"version"', self.root.run(f"{STATS} LD_PRELOAD={PATH_OF_ALL} python3 -c 'print(1)'"))
        self.root.run("test -e /usr/share/man/man1/snug-run.1.gz; test -e /usr/share/bash-completion/completions/snug")
        self.root.run("DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y snug libsnug0; ldconfig")
        self.assertEqual(self.files() - before, set())

    def files(self):
        """What is there, but for apt's and dpkg's own books."""
        books = ("var/lib/apt", "var/lib/dpkg", "var/cache", "var/log", "etc/ld.so.cache", "proc")
        names = {str(path.relative_to(self.root.path)) for path in self.root.path.rglob("*")}
        return {name for name in names if not name.startswith(books)}

    def install(self, *packages):
        self.root.run(f"apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y {' '.join(packages)}")

    def test_apt_refuses_a_repository_that_somebody_changed(self):
        packages = self.root.path / "srv/apt/dists/stable/main/binary-amd64/Packages"
        packages.with_suffix(".gz").unlink()
        packages.write_text(packages.read_text().replace("Package: snug\n", "Package: smug\n"))
        with self.assertRaises(AssertionError):
            self.install("smug")

    def test_lintian_finds_nothing(self):
        # The project has no address yet; who publishes sets DEBEMAIL.
        ignored = "bogus-mail-host,bogus-mail-host-in-debian-changelog"
        for path in sorted(DIST.glob("*_amd64.deb")):
            with self.subTest(path.name):
                self.assertEqual(check(["lintian", "--allow-root", "--fail-on", "error,warning,info", "--display-info", "--suppress-tags", ignored, str(path)]).strip(), "")


class Rpm(Published):
    def install(self, root, site, *packages, checks_index=1):
        """The guide's line, into an empty root, with the repository in site/rpm."""
        line, = repository_lines("Fedora, Red Hat", f"file://{site}")
        return check([*line.split(), *packages, "--installroot", str(root.path), "--releasever", "40", "--forcearch", "x86_64", "--disablerepo", "*",
                      "--enablerepo", "snug", f"--setopt=snug.repo_gpgcheck={checks_index}", "--assumeyes"],
                     env={**os.environ, "HOME": str(root.path)})

    def test_dnf_refuses_packages_that_nobody_signed(self):
        root = Root()
        self.addCleanup(root.remove)
        unsigned = root.path / "srv/rpm"
        unsigned.mkdir(parents=True)
        for path in DIST.glob("*.rpm"):
            shutil.copy(path, unsigned)
        check(["createrepo_c", "--quiet", "--no-database", str(unsigned)])
        shutil.copy(SITE / "snug.asc", root.path / "srv")
        with self.assertRaisesRegex(AssertionError, "is not signed"):
            self.install(root, root.path / "srv", checks_index=0)

    def test_dnf_installs_it(self):
        root = Root()
        self.addCleanup(root.remove)
        self.assertIn("Complete!", self.install(root, SITE, "libsnug-devel"))
        # Nothing else is in there: no shell, no C library.
        tool = check(["chroot", str(root.path), "/usr/bin/snug", "--version"])
        self.assertEqual(tool, f"snug {VERSION}\n")
        library = root.path / "usr/lib64/libsnug.so.0"
        self.assertTrue(os.path.samefile(root.path / PATH_OF_ALL.lstrip("/"), library))
        check(["ruby", "-e", RUBY], env={**os.environ, "LD_PRELOAD": str(library)})


@unittest.skipUnless(APK, "needs apk, which Debian does not have: APK=/path/to/apk, of apk-tools' sources")
class Alpine(Published):
    """By an apk, into a root that has a shell for the packages' scripts."""

    def setUp(self):
        self.root = Root(debian())
        self.addCleanup(self.root.remove)
        self.keys = self.root.path / "etc/apk/keys"
        self.keys.mkdir(parents=True)
        self.before = self.files()
        fetch, repository, self.install_line = repository_lines("Alpine", str(SITE))
        shutil.copy(fetch.split()[-1], self.keys)
        check(["sh", "-c", repository.replace("/etc", f"{self.root.path}/etc")])

    def files(self):
        """What is there, but for apk's own books."""
        names = {str(path.relative_to(self.root.path)) for path in self.root.path.rglob("*")}
        return {name for name in names if not name.startswith(("etc/apk", "usr/lib/apk", "var/lib/apk", "var/cache", "var/log", "proc"))}

    def apk(self, line):
        new = ["--initdb"] if line.startswith("apk add ") else []
        return check([APK, "--root", str(self.root.path), "--arch", "x86_64", "--keys-dir", str(self.keys), *line.split()[1:], *new])

    def use_and_remove(self):
        self.assertEqual(self.root.run("snug --version"), f"snug {VERSION}\n")
        self.root.run(f'snug run -- ruby -e "{RUBY}"')
        self.apk("apk del snug libsnug0")
        self.assertEqual(self.files() - self.before, set())

    def test_from_the_repository_and_back(self):
        self.apk(self.install_line)
        self.use_and_remove()

    def test_the_guides_line_and_back(self):
        line = re.search(r"^\| Alpine \| `(.*)` \|$", (ROOT / "docs/how-to/install.md").read_text(), re.M)[1]
        patterns = [word for word in line.split() if word.startswith("./")]
        self.apk(" ".join(line.split()[:3] + [str(path) for pattern in patterns for path in DIST.glob(pattern[2:])]))
        self.use_and_remove()

    def test_it_refuses_what_another_signed_and_what_was_changed(self):
        changed = self.root.path / "srv/apk"
        shutil.copytree(SITE / "apk", changed)
        package = changed / f"x86_64/libsnug0-{VERSION}.apk"
        content = bytearray(package.read_bytes())
        content[len(content) // 2] ^= 1
        package.write_bytes(content)
        with self.assertRaises(AssertionError):
            self.apk(f"apk add --repositories-file /dev/null --repository {changed} libsnug0")
        (self.keys / "snug.rsa.pub").unlink()
        with self.assertRaisesRegex(AssertionError, "UNTRUSTED"):
            self.apk(self.install_line)


class Apk(unittest.TestCase):
    """Unpacked as apk does, and a program with musl runs under it."""

    def unpack(self, name):
        root = Root()
        self.addCleanup(root.remove)
        with open(DIST / name, "rb") as file:
            content = file.read()
        (root.path / "package").write_bytes(content)
        # Archives for signature, control and data follow one another; tar reads all that follow.
        check(["sh", "-c", "zcat package | tar --ignore-zeros -x"], cwd=root.path)
        return root.path

    def test_it_says_what_it_is(self):
        root = self.unpack(f"snug_{VERSION}_x86_64.apk")
        described = (root / ".PKGINFO").read_text().splitlines()
        for line in ("pkgname = snug", f"pkgver = {VERSION}", "arch = x86_64", f"depend = libsnug0={VERSION}"):
            self.assertIn(line, described)
        self.assertTrue(os.access(root / "usr/bin/snug", os.X_OK))

    def test_a_program_with_musl_runs_under_it(self):
        root = self.unpack(f"libsnug0_{VERSION}_x86_64.apk")
        (root / "p.c").write_text("#include <stdlib.h>\nint main(void) { return !malloc(100); }\n")
        check(["musl-gcc", "-fno-builtin", "-o", "p", "p.c"], cwd=root)
        said = check(["./p"], cwd=root, env={"LD_PRELOAD": str(root / PATH_OF_ALL.lstrip("/")), "SNUG": "stats_print:1"})
        self.assertIn('"version"', said)


class Tar(unittest.TestCase):
    def test_it_is_whole_after_unpacking(self):
        root = Root(debian())
        self.addCleanup(root.remove)
        check(["tar", "-C", str(root.path), "-xf", str(DIST / f"snug-{VERSION}-x86_64.tar.gz")])
        root.run(f'snug run -- ruby -e "{RUBY}"')
        root.run("snug compare --runs 1 --with glibc,snug --out /results -- ruby -e 'sleep 0.5'")
        compared = json.loads((root.path / "results/compare.json").read_text())
        version = root.run("getconf GNU_LIBC_VERSION").split()[-1]
        self.assertEqual([one["version"] for one in compared["allocators"]], [version, VERSION])
        self.assertRegex(root.run("snug compare --list-allocators"), rf"(?m)^glibc +{re.escape(version)} ")

    def test_the_other_architecture_has_the_same_files(self):
        named = [sorted(tarfile.open(DIST / f"snug-{VERSION}-{name}.tar.gz").getnames()) for name in ("x86_64", "aarch64")]
        self.assertEqual(*named)

    def test_the_tool_and_the_library_for_aarch64_run(self):
        root = Root()
        self.addCleanup(root.remove)
        check(["tar", "-C", str(root.path), "-xf", str(DIST / f"snug-{VERSION}-aarch64.tar.gz")])
        top = root.path / "usr/local"
        self.assertEqual(check(["qemu-aarch64", str(top / "bin/snug"), "--version"]), f"snug {VERSION}\n")
        (root.path / "p.c").write_text("#include <stdlib.h>\nint main(void) { return !malloc(100); }\n")
        check(["aarch64-linux-gnu-gcc", "-fno-builtin", "-o", "p", "p.c"], cwd=root.path)
        said = check(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={top / 'lib/libsnug.so.0'}", "-E", "SNUG=stats_print:1", "./p"],
                     cwd=root.path)
        self.assertIn('"version"', said)


class Bytes(unittest.TestCase):
    def test_another_tree_gives_the_same(self):
        """Compiled anew from a copy elsewhere, at a path of another length, whose files are dated to now."""
        root = Root()
        self.addCleanup(root.remove)
        copy = root.path / "somewhere/else"
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
        date = check(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]).strip()
        check(["make", "dist"], cwd=copy, env={**os.environ, "SOURCE_DATE_EPOCH": date})
        ours, theirs = ((Path(tree) / "build/dist/SHA256SUMS").read_text().splitlines() for tree in (ROOT, copy))
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
