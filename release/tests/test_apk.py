"""The repository for apk, its signatures checked with openssl, as apk checks them."""

import base64
import hashlib
import io
import subprocess
import tarfile
import unittest

from release import apk_repository, linux_packages
from release.project import ROOT, VERSION, epoch
from release.tests.staged import ARCHITECTURE, installed, run, temporary

NAMES = ("libsnug-dev", "libsnug0", "snug", "snug-jemalloc")


def entries(content):
    """The files of an archive, or of the beginning of one, by name."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


class Apk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary(cls)
        cls.unsigned = cls.folder / "unsigned"
        cls.unsigned.mkdir()
        apk, = (format_ for format_ in linux_packages.FORMATS if format_.name == "apk")
        linux_packages.build_format(apk, ARCHITECTURE, installed().parent, cls.folder / "work", cls.unsigned, ROOT / "build/dist-tools/bin/nfpm")
        cls.key = cls.folder / "tests.rsa"
        apk_repository.new_key(cls.key)
        cls.repository = cls.publish("site")
        cls.here = cls.repository / ARCHITECTURE.name

    @classmethod
    def publish(cls, name):
        repository = cls.folder / name / "apk"
        apk_repository.build(sorted(cls.unsigned.glob("*.apk")), repository, cls.key)
        return repository

    def verified(self, path):
        """The streams of a signed file without the signature, which must hold for the first of them."""
        first, *others = apk_repository.streams(path.read_bytes())
        (name, signature), = entries(first).items()
        self.assertEqual(name, ".SIGN.RSA256.tests.rsa.pub")
        self.assertTrue(self.holds(signature, others[0]))
        self.assertFalse(self.holds(signature, others[0][:-1] + bytes([others[0][-1] ^ 1])))
        return others

    def holds(self, signature, content):
        (self.folder / "signature").write_bytes(signature)
        (self.folder / "content").write_bytes(content)
        public = self.repository.parent / "tests.rsa.pub"
        ended = run("openssl", "dgst", "-sha256", "-verify", public, "-signature", self.folder / "signature", self.folder / "content")
        return ended.returncode == 0

    def index(self):
        listed, = self.verified(self.here / "APKINDEX.tar.gz")
        text = entries(listed)["APKINDEX"].decode()
        return {fields["P"]: fields for fields in (dict(line.split(":", 1) for line in entry.splitlines()) for entry in text.split("\n\n"))}

    def test_the_key_of_a_package_vouches_for_its_description_and_that_for_its_files(self):
        self.assertEqual({path.name for path in self.here.iterdir()}, {f"{name}-{VERSION}.apk" for name in NAMES} | {"APKINDEX.tar.gz"})
        for path in self.here.glob("*.apk"):
            control, data = self.verified(path)
            described = apk_repository.described_by(control)
            self.assertEqual(described["datahash"], [hashlib.sha256(data).hexdigest()], path.name)

    def test_the_index_names_the_files_as_they_are(self):
        index = self.index()
        self.assertEqual(set(index), set(NAMES))
        for name, fields in index.items():
            path = self.here / f"{name}-{fields['V']}.apk"
            control, _ = self.verified(path)
            self.assertEqual(fields["C"], "Q1" + base64.b64encode(hashlib.sha1(control).digest()).decode())
            self.assertEqual((fields["S"], fields["V"], fields["A"]), (str(path.stat().st_size), VERSION, ARCHITECTURE.name))
        self.assertEqual(index["snug"]["D"], f"libsnug0={VERSION}")
        self.assertIn("so:libjemalloc.so.2=2", index["snug-jemalloc"]["p"].split())

    def test_tar_reads_a_signed_package_as_one_archive(self):
        """The signature's archive has no end of its own, or apk would stop there."""
        listed = subprocess.run(["sh", "-c", 'zcat "$1" | tar -t', "sh", self.here / f"snug-{VERSION}.apk"], capture_output=True, text=True)
        self.assertIn("\n.PKGINFO\n", listed.stdout)
        self.assertIn("\nusr/bin/snug\n", listed.stdout)

    def test_all_in_it_is_dated_to_the_commit(self):
        """Scripts, too: nfpm takes their own dates, which are those of the clone."""
        for path in self.unsigned.glob("*.apk"):
            for content in apk_repository.streams(path.read_bytes()):
                with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                    self.assertEqual({member.name: member.mtime for member in archive if member.mtime not in (0, epoch())}, {}, path.name)

    def test_a_second_time_gives_the_same_bytes(self):
        again = self.publish("again")
        for path in self.repository.rglob("*.*"):
            self.assertEqual(path.read_bytes(), (again / path.relative_to(self.repository)).read_bytes(), path.name)


if __name__ == "__main__":
    unittest.main()
