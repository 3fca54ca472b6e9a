"""bench/soak: what it calls flat, growing and undecided."""

import random
import statistics
import sys
import unittest

from bench.soak import trend

sys.dont_write_bytecode = True

MB = 1_000_000


def series(minutes, growth, noise, seed, waves=0.0):
    """Samples around 200 MB, one a minute: growth over the whole time, noise, and a saw of renewed workers."""
    rng = random.Random(seed)
    return [200 * MB + growth * i / minutes + rng.gauss(0, noise) + waves * (i % 7) / 7 for i in range(minutes)]


class Judge(unittest.TestCase):
    def share(self, verdict, **what):
        return statistics.fmean(trend.judge(series(seed=seed, **what), 4 * MB).verdict == verdict for seed in range(200))

    def test_what_stays_is_flat(self):
        self.assertGreater(self.share("flat", minutes=720, growth=0, noise=8 * MB), 0.95)

    def test_a_saw_is_no_growth(self):
        self.assertGreater(self.share("flat", minutes=720, growth=0, noise=3 * MB, waves=20 * MB), 0.95)

    def test_what_grows_is_found(self):
        self.assertGreater(self.share("growing", minutes=720, growth=40 * MB, noise=8 * MB), 0.95)

    def test_nothing_flat_grows(self):
        self.assertLess(self.share("growing", minutes=40, growth=0, noise=20 * MB), 0.02)

    def test_what_grows_is_not_called_flat(self):
        self.assertLess(self.share("flat", minutes=40, growth=40 * MB, noise=20 * MB), 0.02)

    def test_what_grows_less_than_the_bound_is_let_be(self):
        self.assertGreater(self.share("flat", minutes=720, growth=4 * MB, noise=1 * MB), 0.95)

    def test_growth_at_the_bound_is_seldom_called_flat(self):
        self.assertLess(self.share("flat", minutes=720, growth=11 * MB, noise=20 * MB), 0.05)

    def test_a_short_time_decides_nothing(self):
        self.assertEqual(trend.judge(series(8, 0, 1, 1), 4 * MB).verdict, "undecided")
        self.assertEqual(trend.judge([], 4 * MB).verdict, "undecided")

    def test_constant_numbers_are_flat(self):
        self.assertEqual(trend.judge([15.0] * 30, 2).verdict, "flat")


if __name__ == "__main__":
    unittest.main()
