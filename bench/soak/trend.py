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


def of_memory(slices, period):
    """The trend of samples taken at equal distances, in bytes, of a service whose workers are renewed every `period`
    samples; a list of them for each slice, from one start of the service to its end. Growth is that over as many samples
    as the longest slice has. Least squares of one slope, with an intercept for each slice and place in the period, so
    that what a start changes, and what comes back with the workers, is no noise. Where errors resemble those before them
    there are fewer to learn from: the standard error is wider by sqrt((1 + r) / (1 - r)), r their correlation
    (Bartlett 1935)."""
    level = statistics.median(itertools.chain(*slices)) if any(slices) else 0.0
    bound = BOUND_SHARE * level
    slices = [values for values in slices if len(values) >= 2 * period]
    count = sum(map(len, slices))
    if count < SAMPLES_LEAST + 2 * period:
        return Trend("undecided", level, 0.0, None, bound)
    fitted = [_without_means(values, period) for values in slices]
    spread = sum(time * time for times, _ in fitted for time in times)
    slope = sum(time * error for times, errors in fitted for time, error in zip(times, errors, strict=True)) / spread
    fitted = [[error - slope * time for time, error in zip(times, errors, strict=True)] for times, errors in fitted]
    squares = sum(error * error for errors in fitted for error in errors)
    alike = max(0.0, sum(a * b for errors in fitted for a, b in itertools.pairwise(errors)) / squares) if squares else 0.0
    standard_error = math.sqrt(squares / (count - period * len(slices) - 1) / spread * (1 + alike) / (1 - alike))
    longest = max(map(len, slices))
    growth, margin = slope * longest, CONFIDENCE * standard_error * longest
    low, high = growth - margin, growth + margin
    verdict = "growing" if low > bound else "flat" if high < bound else "undecided"
    return Trend(verdict, level, growth, (low, high), bound)


def _without_means(values, period):
    """Times and values of one slice, each less the mean of its place in the period."""
    times, errors = [0.0] * len(values), [0.0] * len(values)
    for place in (range(start, len(values), period) for start in range(period)):
        mean_time, mean = statistics.fmean(place), statistics.fmean(values[i] for i in place)
        for i in place:
            times[i], errors[i] = i - mean_time, values[i] - mean
    return times, errors


def _thirds(slices):
    """The medians of the first and of the last third of all slices."""
    firsts, lasts = [], []
    for values in filter(None, slices):
        third = max(1, len(values) // 3)
        firsts += values[:third]
        lasts += values[-third:]
    return statistics.median(firsts), statistics.median(lasts)


def of_counts(slices, least_bound):
    """The trend of samples taken at equal distances, a list for each slice."""
    values = list(itertools.chain(*slices))
    if len(values) < SAMPLES_LEAST:
        return Trend("undecided", statistics.median(values) if values else 0.0, 0.0, None, least_bound)
    first, last = _thirds(slices)
    bound = max(least_bound, BOUND_SHARE * first)
    return Trend("growing" if last - first > bound else "flat", last, last - first, None, bound)


def not_judged(slices):
    """Level and growth as of_counts has them."""
    first, last = _thirds(slices)
    return Trend("not judged", last, last - first, None, None)
