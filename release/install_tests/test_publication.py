"""What a release uploads, uploaded: to registries on the loopback, refused without a credential, and installed from there."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from release import crates
from release.install_tests.registries import TOKEN, CratesIo, PyPI, RubyGems, of_images, served
from release.install_tests.roots import check
from release.install_tests.test_linux import DIST
from release.project import ROOT, VERSION

ACTIVE_IN_PYTHON = "import snug; assert snug.active()"
ACTIVE_IN_RUBY = "exit Snug.active?"


class Publication(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home = self.folder / "home"
        self.home.mkdir()

    def registry(self, handler):
        (self.folder / "registry").mkdir()
        return self.enterContext(served(self.folder / "registry", handler))

    def run_with(self, *command, **environment):
        """Nothing of this machine's own settings: registries, tokens, caches."""
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C.UTF-8", "TMPDIR": str(self.folder)}
        return check([str(word) for word in command], env=clean | environment, cwd=self.folder)

    def refused(self, said, *command, **environment):
        with self.assertRaisesRegex(AssertionError, said):
            self.run_with(*command, **environment)

    def test_pypi(self):
        wheels = sorted(DIST.glob("*.whl"))
        self.assertNotEqual(wheels, [])
        self.run_with("twine", "check", "--strict", *wheels)
        site = self.registry(PyPI)
        upload = ["twine", "upload", "--non-interactive", "--disable-progress-bar", "--repository-url", f"{site}/legacy/", "--username", "__token__"]
        self.refused("40[13]", *upload, "--password", "another", *wheels)
        self.run_with(*upload, "--password", TOKEN, *wheels)
        self.run_with("/usr/bin/python3", "-m", "venv", "venv")
        python = self.folder / "venv/bin/python"
        self.run_with(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--index-url", f"{site}/simple/", f"snug=={VERSION}")
        self.run_with(python, "-m", "snug", "run", python, "-c", ACTIVE_IN_PYTHON)

    def test_rubygems(self):
        gems = sorted(DIST.glob("*.gem"))
        self.assertGreaterEqual(len(gems), 2)
        site = self.registry(RubyGems)
        path = {"PATH": "/usr/bin:/bin", "GEM_HOME": str(self.folder / "gems")}
        self.refused("Access denied", "gem", "push", "--host", site, gems[0], GEM_HOST_API_KEY="another", **path)
        for gem in gems:
            self.run_with("gem", "push", "--host", site, gem, GEM_HOST_API_KEY=TOKEN, **path)
        self.run_with("gem", "install", "--no-document", "--clear-sources", "--source", site, "snug", **path)
        self.assertIn("-linux", " ".join(one.name for one in (self.folder / "gems/gems").iterdir()), "the one for this platform")
        self.run_with(self.folder / "gems/bin/snug", "run", "ruby", "-rsnug", "-e", ACTIVE_IN_RUBY, **path)

    def test_crates_io(self):
        cargo = [os.environ.get("CARGO", "cargo"), "--quiet"]
        home = {"CARGO_HOME": str(self.folder / "cargo"), "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
                "CARGO_TARGET_DIR": str(ROOT / "build/cargo-crate")}
        manifest = crates.lay_out(self.folder / "crate") / "Cargo.toml"
        # As crates.io would have it, compiled from what would be uploaded.
        self.run_with(*cargo, "publish", "--dry-run", "--allow-dirty", "--locked", "--manifest-path", manifest, **home)
        site = self.registry(CratesIo)
        upload = [*cargo, "publish", "--no-verify", "--allow-dirty", "--locked", "--manifest-path", manifest, "--index", f"sparse+{site}/index/"]
        self.refused("401", *upload, "--token", "another", **home)
        self.run_with(*upload, "--token", TOKEN, **home)
        uploaded = self.folder / f"registry/crates/snug-alloc-{VERSION}.crate"
        self.assertEqual(uploaded.read_bytes(), (DIST / uploaded.name).read_bytes(), "what make dist built")
        user = self.folder / "user"
        (user / "src").mkdir(parents=True)
        (user / "src/lib.rs").touch()
        (user / "Cargo.toml").write_text(f'[package]\nname = "user"\nedition = "2021"\n[dependencies]\nsnug-alloc = {{version = "{VERSION}", registry = "loopback"}}\n')
        self.run_with(*cargo, "fetch", "--manifest-path", user / "Cargo.toml", CARGO_REGISTRIES_LOOPBACK_INDEX=f"sparse+{site}/index/", **home)
        locked = (user / "Cargo.lock").read_text()
        self.assertRegex(locked, rf'name = "snug-alloc"\nversion = "{re.escape(VERSION)}"\nsource = "sparse\+{re.escape(site)}/index/"')

    @unittest.skipUnless(shutil.which("docker-registry"), "docker-registry is not installed")
    def test_registry_of_images(self):
        archive = f"oci-archive:{DIST}/snug-{VERSION}-image.tar"
        (self.folder / "registry").mkdir()
        with of_images(self.folder / "registry") as address:
            place = f"docker://{address}/snug:{VERSION}"
            check(["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false", archive, place])
            for architecture in ("amd64", "arm64"):
                with self.subTest(architecture):
                    shown = check(["skopeo", "--override-arch", architecture, "inspect", "--tls-verify=false", place])
                    self.assertIn(f'"Architecture": "{architecture}"', shown)
            check(["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false", place, f"oci-archive:{self.folder}/pulled.tar"])
        blobs = [subprocess.run(["tar", "-tf", path], capture_output=True, text=True, check=True).stdout.split() for path in (archive.partition(":")[2], self.folder / "pulled.tar")]
        self.assertEqual(*({name for name in names if re.search(r"sha256/\w", name)} for names in blobs))


if __name__ == "__main__":
    unittest.main()
