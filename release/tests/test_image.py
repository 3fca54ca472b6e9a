"""The image, read as engines of containers read it; release_tests has it run by one."""

import hashlib
import io
import json
import subprocess
import tarfile
import unittest

from release import images
from release.project import ARCHITECTURES, VERSION
from release.tests.staged import ARCHITECTURE, installed, run, temporary


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary(cls)
        # What stands in for the other machine is not run.
        cls.path = images.build({architecture: installed() for architecture in ARCHITECTURES.values()}, cls.folder)
        with tarfile.open(cls.path) as archive:
            cls.files = {entry.name: archive.extractfile(entry).read() for entry in archive}

    def blob(self, descriptor):
        content = self.files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        self.assertEqual((f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)), (descriptor["digest"], descriptor["size"]))
        return content

    def manifests(self):
        named, = json.loads(self.files["index.json"])["manifests"]
        self.assertEqual(named["annotations"]["org.opencontainers.image.ref.name"], f"snug:{VERSION}")
        return json.loads(self.blob(named))["manifests"]

    def test_every_architecture_has_a_manifest_whose_digests_hold(self):
        self.assertEqual({entry["platform"]["architecture"] for entry in self.manifests()}, {"amd64", "arm64"})
        for entry in self.manifests():
            manifest = json.loads(self.blob(entry))
            config = json.loads(self.blob(manifest["config"]))
            layer, = manifest["layers"]
            unpacked = subprocess.run(["gzip", "-d"], input=self.blob(layer), capture_output=True, check=True).stdout
            self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"])
            self.assertEqual(config["architecture"], entry["platform"]["architecture"])

    def test_any_user_can_read_it_and_nothing_is_in_it_but_snug(self):
        entry = next(one for one in self.manifests() if one["platform"]["architecture"] == ARCHITECTURE.deb)
        layer, = json.loads(self.blob(entry))["layers"]
        with tarfile.open(fileobj=io.BytesIO(self.blob(layer))) as archive:
            modes = {member.name: (member.mode, member.uid, member.gid) for member in archive}
            archive.extractall(self.folder / "root")
        plain = (0o644, 0, 0)
        self.assertEqual(modes, {"LICENSE": plain, "THIRD-PARTY-LICENSES": plain, "asker.so": plain, "libjemalloc.so.2": plain, "libsnug.so": plain, "snug": (0o755, 0, 0)})
        # As the volume of an init container gets it, alias and all.
        volume = self.folder / "volume"
        volume.mkdir()
        told = run(self.folder / "root/snug", "install", "--jemalloc", volume)
        self.assertEqual(told.stdout, f"LD_PRELOAD={volume}/libsnug.so\n", told.stderr)
        self.assertEqual({path.name for path in volume.iterdir()}, set(modes) - {"LICENSE", "THIRD-PARTY-LICENSES"})
        for library in ("libsnug.so", "libjemalloc.so.2"):
            self.assertNotEqual(run("grep", "-c", library, "/proc/self/maps", LD_PRELOAD=str(volume / library)).stdout, "0\n")

    def test_a_second_build_gives_the_same_bytes(self):
        again = temporary(self)
        path = images.build({architecture: installed() for architecture in ARCHITECTURES.values()}, again)
        self.assertEqual(path.read_bytes(), self.path.read_bytes())


if __name__ == "__main__":
    unittest.main()
