"""The packages for Debian as its maintainers would test them: by piuparts and autopkgtest, in clean systems."""

import shutil
import subprocess
import unittest
from pathlib import Path

from release.install_tests.registries import served
from release.install_tests.roots import Root, check, debian
from release.install_tests.test_linux import DIST, SITE, Published
from release.project import ROOT, VERSION

TESTS = ROOT / "release/linux/tests"
# autopkgtest wants a source package; only the names are read.
SOURCE = "Source: snug\n\n" + "\n".join(f"Package: {name}\nArchitecture: any\n" for name in ("libsnug0", "libsnug-dev", "snug", "snug-jemalloc"))


def packages(*names):
    return [str(DIST / f"{name}_{VERSION}_amd64.deb") for name in names]


class Debian(Published):
    def setUp(self):
        self.root = Root(debian())
        self.addCleanup(self.root.remove)

    def test_piuparts(self):
        """Installed from the repository, removed, purged: nothing is left, and nothing of others has changed."""
        site = self.enterContext(served(SITE))
        (self.root.path / "etc/apt/sources.list.d/snug.list").write_text(f"deb [trusted=yes] {site}/apt stable main\n")
        work = self.root.path.with_name(f"{self.root.path.name}-piuparts")
        work.mkdir()
        self.addCleanup(shutil.rmtree, work)
        said = check(["piuparts", "--apt", "--existing-chroot", str(self.root.path), "--hard-link", "--keep-sources-list", "--distribution", "bookworm",
                      "--no-eatmydata", "--no-upgrade-test", "--log-level", "info", "--tmpdir", str(work), "snug", "libsnug-dev"])
        self.assertIn("PASS: All tests.", said)

    def test_autopkgtest(self):
        source, out = self.root.path / "srv/source", self.root.path / "srv/out"
        shutil.copytree(TESTS, source / "debian/tests")
        (source / "debian/control").write_text(SOURCE)
        (source / "debian/changelog").write_text(f"snug ({VERSION}) unstable; urgency=medium\n\n  * Tests.\n\n -- x <x@localhost>  Thu, 01 Jan 1970 00:00:00 +0000\n")
        mounted = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root.path}/proc"]
        ended = subprocess.run([*mounted, "autopkgtest", "--no-built-binaries", "--output-dir", str(out), *packages("libsnug0", "snug", "libsnug-dev", "snug-jemalloc"),
                                str(source), "--", "chroot", str(self.root.path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800)
        summary = dict(line.split()[:2] for line in Path(out, "summary").read_text().splitlines()) if (out / "summary").exists() else {}
        names = [line.split()[1] for line in (TESTS / "control").read_text().splitlines() if line.startswith("Tests:")]
        self.assertEqual(summary, dict.fromkeys(names, "PASS"), ended.stdout[-5000:])


if __name__ == "__main__":
    unittest.main()
