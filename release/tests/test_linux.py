"""The scripts of Debian's packages, and a package with them that dpkg installs below a folder and removes."""

import os
import re
import shutil
import subprocess
import unittest
import unittest.mock

from release import linux_packages
from release.project import ROOT, VERSION
from release.tests import staged

SCRIPTS = ROOT / "release/linux"
OURS = ("/usr/lib/snug/libsnug.so", "/usr/lib/x86_64-linux-gnu/libsnug.so.0", "/lib/aarch64-linux-gnu/libsnug.so.0", "libsnug.so.0",
        "/usr/lib/snug/libjemalloc.so.2", "/usr/lib/other.so:/usr/lib/snug/libsnug.so", "/usr/lib/other.so /usr/lib/snug/libsnug.so")
OTHERS = ("/opt/snug/libsnug.so", "/usr/local/lib/libsnug.so", "/opt/usr/lib/snug/libsnug.so", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
          "/usr/lib/libsnugger.so", "")


class Preloaded(unittest.TestCase):
    def setUp(self):
        self.root = staged.temporary(self)
        (self.root / "etc").mkdir()

    def removed(self, *words, **environment):
        script = SCRIPTS / "preloaded.sh"
        return subprocess.run(["/bin/sh", script, *(words or ("remove",))], capture_output=True, text=True,
                              env={**staged.CLEAN, "DPKG_ROOT": str(self.root), **environment})

    def test_who_names_the_library_is_said(self):
        for text in OURS:
            with self.subTest(text):
                (self.root / "etc/ld.so.preload").write_text(f"{text}\n")
                done = self.removed()
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                self.assertEqual(done.stderr.splitlines()[1:-1], [f"  {self.root}/etc/ld.so.preload"])
        for text in OTHERS:
            with self.subTest(text):
                (self.root / "etc/ld.so.preload").write_text(f"{text}\n")
                done = self.removed()
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_all_places_that_the_guide_names(self):
        files = {"etc/systemd/system/web.service.d/snug.conf": "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/snug/libsnug.so\n",
                 "etc/default/web": 'export LD_PRELOAD="/usr/lib/snug/libsnug.so"\n', "etc/environment": "LD_PRELOAD=/usr/lib/snug/libsnug.so\n",
                 "etc/default/off": "#LD_PRELOAD=/usr/lib/snug/libsnug.so\n"}
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        said = self.removed().stderr.splitlines()
        self.assertEqual(sorted(said[1:-1]), sorted(f"  {self.root}/{name}" for name in files if name != "etc/default/off"))

    def test_it_is_silent_where_nothing_is_removed(self):
        (self.root / "etc/ld.so.preload").write_text(f"{OURS[0]}\n")
        for words in (("upgrade", "0.3.0"), ("deconfigure", "in-favour"), ("failed-upgrade", "0.1.0")):
            with self.subTest(words):
                done = self.removed(*words)
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_it_never_fails(self):
        """Without the programs that it calls, or anybody who reads what it says; nor does it change a file."""
        preload = self.root / "etc/ld.so.preload"
        preload.write_text(f"{OURS[0]}\n")
        self.assertEqual(self.removed(PATH="/nonexistent").returncode, 0)
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(["/bin/sh", SCRIPTS / "preloaded.sh", "remove"], stderr=writer, env={**staged.CLEAN, "DPKG_ROOT": str(self.root)})
        os.close(writer)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(preload.read_text(), f"{OURS[0]}\n")


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("dpkg"), "needs root, and Debian")
class Deb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = staged.temporary(cls)
        (cls.folder / "work").mkdir()
        debian = next(one for one in linux_packages.FORMATS if one.name == "deb")
        built = linux_packages.build_format(debian, staged.ARCHITECTURE, staged.installed().parent, cls.folder / "work", cls.folder,
                                            ROOT / "build/dist-tools/bin/nfpm")
        cls.library, = (path for path in built if path.name.startswith("libsnug0_"))

    def dpkg(self, *words):
        done = subprocess.run(["dpkg", f"--root={self.root}", "--force-script-chrootless", *map(str, words)], capture_output=True, text=True,
                              env={**staged.CLEAN, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_its_removal_says_who_names_it_and_goes_on(self):
        self.root = staged.temporary(self)
        for name in ("info", "updates", "triggers"):
            (self.root / "var/lib/dpkg" / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        self.dpkg("--install", self.library)
        library = self.root / OURS[0].lstrip("/")
        self.assertTrue(library.exists())
        preload = self.root / "etc/ld.so.preload"
        preload.parent.mkdir(exist_ok=True)
        preload.write_text(f"{OURS[0]}\n")
        self.assertNotIn("ld.so", self.dpkg("--install", self.library), "an upgrade")
        self.assertRegex(self.dpkg("--remove", "libsnug0"), rf"ld\.so complains each time:\n  {re.escape(str(preload))}\n")
        self.assertFalse(library.exists() or library.is_symlink())
        self.assertEqual(preload.read_text(), f"{OURS[0]}\n")
        self.dpkg("--install", self.library)
        preload.unlink()
        self.assertNotIn("ld.so", self.dpkg("--remove", "libsnug0"))

    def test_it_says_which_version_has_each_symbol(self):
        """To dpkg-shlibdeps. A symbol that disappears, or that nobody gave a version, ends the build."""
        def control(name):
            return subprocess.run(["dpkg-deb", "--info", self.library, name], capture_output=True, text=True, check=True).stdout
        symbols = linux_packages.SYMBOLS.read_text()
        self.assertEqual(control("symbols"), symbols)
        self.assertEqual(control("shlibs"), f"libsnug 0 libsnug0 (>= {VERSION})\n")
        changed = self.folder / "changed.symbols"
        for text, said in ((symbols.replace(" snug_purge@Base 0.2.0\n", ""), "new symbols appeared"), (f"{symbols} snug_none@Base 0.2.0\n", "MISSING: .*snug_none@Base")):
            changed.write_text(text)
            with unittest.mock.patch.object(linux_packages, "SYMBOLS", changed), self.assertRaisesRegex(SystemExit, said):
                linux_packages.complete(shutil.copy(self.library, self.folder / "again.deb"), self.folder / "work/again", staged.ARCHITECTURE)


if __name__ == "__main__":
    unittest.main()
