"""What release/publish asks of the tag before it signs anything."""

import os
import re
import shutil
import subprocess
import unittest
import unittest.mock

from release import publish
from release.tests import staged


@unittest.skipUnless(shutil.which("gpg"), "gnupg is not installed")
class Tags(unittest.TestCase):
    def setUp(self):
        self.repository = staged.temporary(self)
        keys = staged.temporary(self)
        patched = unittest.mock.patch.dict(os.environ, GNUPGHOME=str(keys))
        patched.start()
        self.addCleanup(patched.stop)
        self.addCleanup(subprocess.run, ["gpgconf", "--kill", "all"])
        self.key = publish.new_key(keys)
        publish.run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "Another", "ed25519", "sign", "never")
        self.other = re.search(r"^fpr:+(\w+):$", publish.run("gpg", "--list-keys", "--with-colons", "Another"), re.M)[1]
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words):
        known = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "gpg.format=openpgp", "-c", "gpg.program=gpg"]
        subprocess.run(["git", *known, *words], cwd=self.repository, check=True, capture_output=True)

    def commit(self):
        self.git("commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "x")

    def verify(self):
        publish.verify_tag("v1.0.0", self.key, self.repository)

    def test_signed_with_the_key(self):
        self.git("tag", "--sign", "--local-user", self.key, "--message", "x", "v1.0.0")
        self.verify()
        self.commit()
        with self.assertRaisesRegex(SystemExit, "another commit"):
            self.verify()

    def test_whatever_else_is_refused(self):
        message = ["--message", "x", "v1.0.0"]
        for words, said in (((), "there is no tag v1.0.0; git tag --sign"), (("--no-sign", "v1.0.0"), "no good signature"),
                            (("--annotate", "--no-sign", *message), "no good signature"),
                            (("--sign", "--local-user", self.other, *message), f"signed with {self.other}")):
            with self.subTest(words):
                if words:
                    self.git("tag", "--force", *words)
                with self.assertRaisesRegex(SystemExit, said):
                    self.verify()


if __name__ == "__main__":
    unittest.main()
