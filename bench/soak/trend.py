"""Whether what a service needs grows. Pure.

Of memory `snug leak` says so, which watches each service after the warm-up: live bytes and PSS of all its processes. Of
counts, such as threads, nothing but the samples of each minute says it: the median of the last third of them is held
against that of the first.

  flat       it grew by less than the bound,
  growing    by more,
  undecided  snug leak can't tell, or there are too few samples: a longer run may,
  not judged it may wander; shown beside what is judged.
"""

import statistics
from dataclasses import dataclass

SAMPLES_LEAST = 9
BOUND_SHARE = 0.05  # of a count; as snug leak has it of memory
VERDICTS = {"steady": "flat", "growing": "growing"}


@dataclass(frozen=True)
class Trend:
    verdict: str
    level: float
    growth: float  # over the whole time
    interval: tuple | None  # of the growth, with 95 % confidence; None for a count
    bound: float | None  # None: not judged


def of_memory(watched, measure):
    """The trend of `used` (live bytes) or `memory` (PSS), by what `snug leak --json` wrote, or None."""
    judged = watched and watched["judgement"][measure]
    if not judged or None in judged["interval"]:  # without an end: too few readings
        return Trend("undecided", 0.0, 0.0, None, 0.0)
    direction = judged["direction"]
    verdict = VERDICTS.get(direction, "undecided") if isinstance(direction, str) else "undecided"
    return Trend(verdict, judged["level"], judged["growth"], tuple(judged["interval"]), judged["margin"])


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
