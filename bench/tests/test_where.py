"""bench/where: what it makes of the tables of `snug stats --where`."""

import unittest

from bench import where


def table(told=1000, rss=1000, **parts):
    return {**parts, "told": told, "rss": rss}


class Where(unittest.TestCase):
    def test_parts_are_shares_of_what_is_resident(self):
        parts, median_off, mean_off, worst = where.shares([table(live_blocks=900, other=100), table(live_blocks=1000)])
        self.assertEqual((parts["live_blocks"], parts["other"], worst), (0.95, 0.05, 0.1))
        self.assertEqual((median_off, mean_off), (0, 0))

    def test_a_sum_that_is_off_is_seen(self):
        cells, holds = where.row("a", [table(told=950, live_blocks=950)])
        self.assertFalse(holds)
        self.assertEqual(cells[:4], ["a", "1", "0.0", "5.00 %"])
        self.assertTrue(where.row("a", [table(told=980, live_blocks=980)])[1])

    def test_what_nobody_knows_is_seen(self):
        self.assertFalse(where.row("a", [table(live_blocks=960, other=40)])[1])


if __name__ == "__main__":
    unittest.main()
