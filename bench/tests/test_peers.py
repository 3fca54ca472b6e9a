"""Tests of how other allocators are built and found. Run: bench/tests/test_peers.py (standard library only)."""

import os
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

from bench import compare
from bench.peers import build

BENCH = Path(__file__).resolve().parent.parent


class PeersTest(unittest.TestCase):
    def test_every_peer_is_a_package_of_the_workspace_and_locked(self):
        members = tomllib.loads((BENCH / "peers/Cargo.toml").read_text())["workspace"]["members"]
        self.assertEqual(sorted(peer.name for peer in build.PEERS), sorted(members))
        versions = build.crate_versions((BENCH / "peers/Cargo.lock").read_text())
        for peer in build.PEERS:
            self.assertIn(peer.crate, versions)
            self.assertIn(peer.crate, (BENCH / "peers" / peer.name / "Cargo.toml").read_text())

    def test_versions(self):
        self.assertEqual(build.allocator_version("0.1.49", 30302), "3.3.2")
        self.assertEqual(build.allocator_version("0.7.1+5.3.1-0-g81034ce1f1373e37dc8"), "5.3.1")
        self.assertEqual(build.allocator_version("0.2.3+b097fd0"), "b097fd0")
        self.assertEqual(build.allocator_version("0.7.6"), "0.7.6")

    def test_a_prefix_becomes_aliases(self):
        self.assertIn("-Wl,--defsym=reallocarray=sn_reallocarray", build.Peer("x", "x-sys", "sn_").aliases())
        self.assertEqual(build.Peer("x", "x-sys").aliases(), [])

    def test_libraries_that_are_no_allocators_are_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            library = Path(directory) / "libx.so"
            source = "#include <stddef.h>\nvoid *malloc(size_t size) { (void)size; return NULL; }\n"
            subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-x", "c", "-", "-o", library], input=source,
                           text=True, check=True)
            with self.assertRaisesRegex(build.Unusable, "does not define free, calloc"):
                build.check_functions(library)
            with self.assertRaisesRegex(build.Unusable, "a program under it ends with status"):
                build.try_out(library)

    def test_what_is_built_is_compared(self):
        with tempfile.TemporaryDirectory() as directory:
            compare.ROOT, compare.PEERS = Path(directory), Path(directory) / "build/peers"
            self.assertEqual(compare.allocators(), [*compare.DEBIAN_ALLOCATORS, "snug"])
            os.makedirs(compare.PEERS / "cargo")
            (compare.PEERS / "libmimalloc.so.3.3.2").touch()
            (compare.PEERS / "libjemalloc.so").touch()  # not tried out yet
            self.assertEqual(compare.allocators()[-2:], ["./build/peers/libmimalloc.so.3.3.2", "snug"])


if __name__ == "__main__":
    unittest.main()
