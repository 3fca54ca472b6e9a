"""Whether what a service needs grows. Pure: of the samples at the end of each round's quiet.

Of memory it is a straight line through the samples that says so, and how certain it is; of counts, such as threads, the
median of the last third is held against that of the first.

  flat       it grew by less than the bound; of memory, with 95 % confidence,
  growing    by more,
  undecided  neither is certain: a longer run may tell,
  not judged it may wander; shown beside what is judged.
"""

import itertools
import math
import statistics
from dataclasses import dataclass

SAMPLES_LEAST = 9
BOUND_SHARE = 0.05  # of the level
CONFIDENCE = 1.96  # standard errors


@dataclass(frozen=True)
class Trend:
    verdict: str
    level: float
    growth: float  # over the whole time
    interval: tuple | None  # of the growth, with 95 % confidence; None for a count
    bound: float | None  # None: not judged


def of_memory(values, period):
    """The trend of samples taken at equal distances, in bytes, of a service whose workers are renewed every `period`
    samples: least squares of a line with an intercept for each place in that period, so that what comes back with it is
    no noise. Where errors resemble those before them there are fewer to learn from: the standard error is wider by
    sqrt((1 + r) / (1 - r)), r their correlation (Bartlett 1935)."""
    count = len(values)
    level = statistics.median(values) if values else 0.0
    bound = BOUND_SHARE * level
    if count < SAMPLES_LEAST + 2 * period:
        return Trend("undecided", level, 0.0, None, bound)
    places = [range(place, count, period) for place in range(period)]
    times, errors = [0.0] * count, [0.0] * count
    for place in places:
        mean_time, mean = statistics.fmean(place), statistics.fmean(values[i] for i in place)
        for i in place:
            times[i], errors[i] = i - mean_time, values[i] - mean
    spread = sum(time * time for time in times)
    slope = sum(time * error for time, error in zip(times, errors, strict=True)) / spread
    errors = [error - slope * time for time, error in zip(times, errors, strict=True)]
    squares = sum(error * error for error in errors)
    alike = max(0.0, sum(a * b for a, b in itertools.pairwise(errors)) / squares) if squares else 0.0
    standard_error = math.sqrt(squares / (count - period - 1) / spread * (1 + alike) / (1 - alike))
    growth, margin = slope * count, CONFIDENCE * standard_error * count
    low, high = growth - margin, growth + margin
    verdict = "growing" if low > bound else "flat" if high < bound else "undecided"
    return Trend(verdict, level, growth, (low, high), bound)


def of_counts(values, least_bound):
    """The trend of samples taken at equal distances."""
    third = len(values) // 3
    if len(values) < SAMPLES_LEAST:
        return Trend("undecided", statistics.median(values) if values else 0.0, 0.0, None, least_bound)
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    bound = max(least_bound, BOUND_SHARE * first)
    return Trend("growing" if last - first > bound else "flat", last, last - first, None, bound)


def not_judged(values):
    """Level and growth as of_counts has them."""
    third = max(1, len(values) // 3)
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    return Trend("not judged", last, last - first, None, None)
