"""The image in an engine: read as COPY --from=, as an init container, and by the Dockerfiles of the guide."""

import os
import re
import unittest

from release.install_tests.containers import QUIET, UNDER_SNUG, Containers, engine
from release.project import ROOT, VERSION


def dockerfiles():
    """The Dockerfiles of the guide, by the image that they begin with."""
    blocks = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs/how-to/roll-out-containers.md").read_text(), re.S)
    return {re.search(r"^FROM (\S+)", block, re.M)[1]: block for block in blocks}


class Image(Containers):
    def test_the_tool_runs_where_there_is_nothing_else(self):
        self.assertEqual(engine("run", *QUIET, "--read-only", f"snug:{VERSION}", "--version"), f"snug {VERSION}\n")

    def test_an_init_container_fills_a_volume_as_any_user(self):
        volume = self.folder("volume")
        os.chown(volume, 65534, 65534)
        shared = ["--volume", f"{volume}:/opt/snug"]
        said = engine("run", *QUIET, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--user", "65534:65534", *shared,
                      f"snug:{VERSION}", "install", "/opt/snug")
        self.assertIn("LD_PRELOAD=/opt/snug/libsnug.so\n", said)
        shared[1] += ":ro"
        engine("run", *QUIET, *shared, "--env", "LD_PRELOAD=/opt/snug/libsnug.so", "clean-debian", "ruby", "-e", UNDER_SNUG)
        engine("run", *QUIET, *shared, "--user", "1000", "clean-debian", "/opt/snug/snug", "run", "ruby", "-e", UNDER_SNUG)

    def test_as_a_volume_itself(self):
        mount = ["--mount", f"type=image,source=snug:{VERSION},destination=/opt/snug"]
        engine("run", *QUIET, *mount, "--env", "LD_PRELOAD=/opt/snug/libsnug.so", "clean-debian", "ruby", "-e", UNDER_SNUG)

    def test_the_dockerfiles_of_the_guide(self):
        files = dockerfiles()
        self.assertGreaterEqual(len(files), 2)
        for base, text in files.items():
            with self.subTest(base=base):
                folder = self.folder(base.replace(":", "-").replace("/", "-"))
                (folder / "Dockerfile").write_text(text)
                (folder / "app.rb").write_text(UNDER_SNUG)
                engine("tag", "clean-debian", base)
                engine("build", "--isolation", "chroot", "--pull=never", "--tag", "built", folder)
                engine("run", *QUIET, "built", "ruby", "-e", UNDER_SNUG)


if __name__ == "__main__":
    unittest.main()
