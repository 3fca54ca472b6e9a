"""bench/bytes: what it makes of the answers of `snug stats`."""

import importlib.util
import sys
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "bytes"
sys.dont_write_bytecode = True
loader = SourceFileLoader("bench_bytes", str(PATH))
bench_bytes = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_bytes", loader))
loader.exec_module(bench_bytes)


def stats(kind="snug", rss_bytes=1000, **changes):
    heap = {"live_requested_bytes": 500, "live_allocated_bytes": 560, "cached_bytes": 20, "slab_free_bytes": 40,
            "dirty_bytes": 30, "metadata_bytes": 10, **changes}
    return {"allocator": {"kind": kind}, "rss_bytes": rss_bytes, "heap": heap}


class Bytes(unittest.TestCase):
    def test_every_resident_byte_has_one_place(self):
        places = bench_bytes.places_of(stats())
        self.assertEqual(sum(places[name] for name in bench_bytes.PLACES), places["rss"])
        self.assertEqual((places["rounding"], places["outside"]), (60, 340))

    def test_what_was_never_touched_makes_nothing_negative(self):
        places = bench_bytes.places_of(stats(rss_bytes=300, live_allocated_bytes=490))
        self.assertEqual((places["rounding"], places["outside"]), (0, 0))

    def test_other_processes_have_no_places(self):
        self.assertIsNone(bench_bytes.places_of(stats(kind="glibc")))
        self.assertIsNone(bench_bytes.places_of(stats(live_requested_bytes=0)))
        self.assertIsNone(bench_bytes.places_of({"allocator": None, "rss_bytes": 1, "heap": None}))


if __name__ == "__main__":
    unittest.main()
