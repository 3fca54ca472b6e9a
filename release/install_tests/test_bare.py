"""What `make dist` needs comes from our own lists: on a Debian that has nothing, they must be enough for every machine."""

import subprocess
import unittest

from release.install_tests.roots import Root, debian
from release.project import ROOT, epoch

# The tool is left out: what its compiler lacks would not differ, and it takes a quarter of an hour.
COMPILE = "from release import dist; dist.build_libraries(dist.ARCHITECTURES, dist.ROOT / 'build/dist-work')"
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of ELF


class Bare(unittest.TestCase):
    def test_the_libraries_of_all_machines_are_compiled(self):
        root = Root(debian(packages=""))
        self.addCleanup(root.remove)
        (root.path / "snug").mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        packed = subprocess.run(["tar", "--null", "--files-from=-", "-c"], cwd=ROOT, input=listed, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=root.path / "snug", input=packed, check=True)
        root.run("cd /snug; tools/install-deps dist; tools/install-deps --missing dist")
        root.run(f'cd /snug; SOURCE_DATE_EPOCH={epoch()} python3 -c "{COMPILE}"')
        for name, number in MACHINES.items():
            header = (root.path / f"snug/build/dist-work/{name}/libsnug.so").read_bytes()[:20]
            self.assertEqual(int.from_bytes(header[18:], "little"), number, name)


if __name__ == "__main__":
    unittest.main()
