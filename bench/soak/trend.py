"""Whether a series of samples grows: Sen's slope with its confidence interval (Theil, Sen; Gilbert 1987, 16.5).

A series of minutes is noisy and its neighbours are alike, so it is first cut into BLOCKS stretches of equal length, of
which the medians are compared. It is

  flat       if the upper end of the interval means a growth over the whole time below the bound,
  growing    if even the lower end means a growth above it,
  undecided  otherwise: the time was too short, or the noise too strong.

The bound is a share of the series' own median, but at least a number that means something for what is measured.
"""

import itertools
import math
import statistics
from dataclasses import dataclass

BLOCKS = 24
BLOCKS_LEAST = 8
CONFIDENCE_Z = 2.326  # 99 % one-sided: 2 % of flat series look otherwise, half of them as if they grew
BOUND_SHARE = 0.05


@dataclass(frozen=True)
class Trend:
    verdict: str
    median: float
    growth: float  # over the whole time
    low: float
    high: float
    bound: float


def block_medians(values, blocks=BLOCKS):
    """The medians of consecutive stretches; fewer of them if there are few values, but of at least two values each."""
    blocks = min(blocks, len(values) // 2)
    edges = [round(i * len(values) / blocks) for i in range(blocks + 1)] if blocks else []
    return [statistics.median(values[a:b]) for a, b in itertools.pairwise(edges)]


def slopes_interval(values):
    """(low, middle, high) slope per step."""
    count = len(values)
    slopes = sorted((values[j] - values[i]) / (j - i) for i, j in itertools.combinations(range(count), 2))
    spread = CONFIDENCE_Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, int((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    return slopes[low], statistics.median(slopes), slopes[high]


def judge(values, least_bound):
    """The trend of samples taken at equal distances."""
    median = statistics.median(values) if values else 0.0
    bound = max(least_bound, BOUND_SHARE * abs(median))
    medians = block_medians(values)
    if len(medians) < BLOCKS_LEAST:
        return Trend("undecided", median, 0.0, -math.inf, math.inf, bound)
    low, middle, high = (slope * (len(medians) - 1) for slope in slopes_interval(medians))
    verdict = "growing" if low > bound else "flat" if high < bound else "undecided"
    return Trend(verdict, median, middle, low, high, bound)
