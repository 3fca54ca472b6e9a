"""bench/bytes: what it makes of the answers of `snug stats`."""

import random
import unittest

from bench import bytes as bench_bytes


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

    def test_the_ratio_of_a_row_is_that_of_its_numbers(self):
        rng = random.Random(1)
        for _ in range(2000):
            places = {name: rng.uniform(0, 60e6) for name in (*bench_bytes.PLACES, "rss")}
            _, live, *_, outside, resident, ratio, _, _ = bench_bytes.cells_of([bench_bytes.Reading(0, 0, {7: places})])
            if ratio or float(live):
                self.assertEqual(ratio, f"{(float(resident) - float(outside)) / float(live):.2f}")


def reading(time_s, cpu_s, pids=(7,)):
    return bench_bytes.Reading(time_s, cpu_s, {pid: {"rss": 110, "live": 60, "outside": 40} for pid in pids})


class Idle(unittest.TestCase):
    def test_it_is_read_when_two_quiet_seconds_have_passed(self):
        busy = [reading(second, second) for second in range(5)]
        quiet = [reading(4 + second, 4) for second in range(1, 6)]
        self.assertEqual(bench_bytes.idle_reading(busy + quiet).time_s, 6)
        self.assertIsNone(bench_bytes.idle_reading(busy + quiet[:1]))
        self.assertIsNone(bench_bytes.idle_reading([]))

    def test_the_last_quiet_time_counts(self):
        first = [reading(second, 0) for second in range(4)]
        busy = [reading(4, 1), reading(5, 2)]
        second = [reading(5 + second, 2) for second in range(1, 4)]
        self.assertEqual(bench_bytes.idle_reading(first + busy + second).time_s, 7)

    def test_who_comes_or_goes_is_not_quiet(self):
        readings = [reading(0, 0), reading(1, 0), reading(2, 0, (7, 8)), reading(3, 0, (7, 8)), reading(3.5, 0, (7, 8))]
        self.assertIsNone(bench_bytes.idle_reading(readings))

    def test_excess(self):
        self.assertAlmostEqual(bench_bytes.excess({"rss": 110, "live": 60, "outside": 40}), 0.1)


if __name__ == "__main__":
    unittest.main()
