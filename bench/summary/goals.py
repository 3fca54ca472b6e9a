"""Whether snug meets its goals on a workload, from the measured values alone. Pure.

The goals: mean memory at most 0.85 times that of the best peer; throughput that of the fastest peer, with a p99 no
worse than its; page faults no more than the median peer's. Where several processes share pages, their memory together
the lowest of all is a goal of its own, and so is what malloc has a forked worker write to for itself: the lowest, and at
most 0.75 times that of jemalloc and glibc without settings. Ratios are of two medians, as they are printed
(docs/decisions/0021). For all but memory a goal is met, too, where `snug report` shows no difference.
"""

import statistics
from dataclasses import dataclass

from . import results

MEMORY_GOAL = 0.85
PRIVATE_GOAL = 0.75


@dataclass(frozen=True)
class Verdict:
    """One goal on one workload."""

    goal: str
    met: bool
    ratio: float  # snug's value over that of the peer it is held against
    limit: float
    peer: str  # whom it is held against
    scattered: bool = False  # met only because the runs scatter too much to tell a difference

    def text(self):
        """As "met: 0.71 of jemalloc 5.3.0" or "missed by 0.06: 0.91 of ..."."""
        against = f"{self.ratio:.2f} of {self.peer}"
        if self.met:
            return f"met: {against}" + (", no difference" if self.scattered else "")
        missing = f"{abs(self.ratio - self.limit):.2f}"
        return f"missed by {'less than 0.01' if missing == '0.00' else missing}: {against}"


def verdicts(result):
    """The verdict on each goal that the results can decide; none if snug or all peers are missing."""
    snug, peers = result.snug(), result.peers()
    if snug is None or not peers:
        return []
    found = [memory(snug, peers), family(result, snug, peers), *private(snug, peers), throughput(snug, peers),
             p99(snug, peers), faults(snug, peers)]
    return [verdict for verdict in found if verdict is not None]


def best(peers, quantity, most=False):
    """The peer with the least, or the most, of a quantity; None if no peer has it."""
    having = [peer for peer in peers if peer.median(quantity) is not None]
    return (max if most else min)(having, key=lambda peer: peer.exact(quantity), default=None)


def memory(snug, peers):
    peer = best(peers, "memory_mb")
    if peer is None or snug.median("memory_mb") is None:
        return None
    ratio = snug.median("memory_mb") / peer.median("memory_mb")
    return Verdict(f"memory <= {MEMORY_GOAL} of the best peer", ratio <= MEMORY_GOAL, ratio, MEMORY_GOAL, peer.name)


def family(result, snug, peers):
    peer = best(peers, "memory_mb")
    if result.measure != "PSS" or peer is None or snug.median("memory_mb") is None:
        return None
    ratio = snug.median("memory_mb") / peer.median("memory_mb")
    return Verdict("PSS of all processes the lowest", ratio <= 1, ratio, 1.0, peer.name)


def private(snug, peers):
    """Verdicts on the private pages of a forked worker, but for those that aren't malloc's: as many under each."""
    outside = snug.median("worker_private_outside_mb")
    having = [peer for peer in peers if peer.median("worker_private_mb") is not None]
    if outside is None or not having:
        return []
    own = snug.median("worker_private_mb") - outside
    goals = (("malloc's private pages of a worker the lowest", 1.0, having),
             (f"and <= {PRIVATE_GOAL} of jemalloc's and glibc's as they are", PRIVATE_GOAL,
              [peer for peer in having if peer.kind in ("jemalloc", "glibc") and not peer.tuned]))
    verdicts = []
    for goal, limit, against in goals:
        if against:
            peer = best(against, "worker_private_mb")
            theirs = peer.median("worker_private_mb") - outside
            ratio = own / theirs if theirs > 0 else float("inf")
            verdicts.append(Verdict(goal, ratio <= limit, ratio, limit, peer.name))
    return verdicts


def differs(ratio, estimate):
    """Whether `snug report` shows a difference: its interval is widened to hold the ratio as it is printed."""
    return f"{ratio:.2f}" != "1.00" and estimate.differs()


def no_worse(goal, snug, peer, quantity, more_is_better):
    """The verdict that snug is as good as the peer, or that the runs show no difference."""
    if peer is None or not peer.median(quantity) or snug.median(quantity) is None:
        return None
    ratio = snug.median(quantity) / peer.median(quantity)
    as_good = ratio >= 1 if more_is_better else ratio <= 1
    scattered = not as_good and not differs(ratio, peer.values[quantity])
    return Verdict(goal, as_good or scattered, ratio, 1.0, peer.name, scattered)


def throughput(snug, peers):
    return no_worse("throughput of the fastest peer", snug, best(peers, "throughput", most=True), "throughput", True)


def p99(snug, peers):
    return no_worse("p99 no worse than its", snug, best(peers, "throughput", most=True), "p99_ms", False)


def faults(snug, peers):
    medians = [peer.median("faults") for peer in peers if peer.median("faults") is not None]
    if not medians or snug.median("faults") is None:
        return None
    median = statistics.median(medians)
    ratio = snug.median("faults") / median if median else float("inf")
    return Verdict("page faults <= the median peer's", ratio <= 1, ratio, 1.0, "the median peer's")


def better_peers(result):
    """For each quantity the peers that are better than snug, by what `snug report` says, best first.

    A list of (heading of the quantity, [(peer's name, peer's median over snug's, whether that may be chance)]), without
    empty entries.
    """
    snug, found = result.snug(), []
    if snug is None:
        return []
    for quantity, heading, more_is_better, _ in results.QUANTITIES:
        own = snug.median(quantity)
        if not own:
            continue
        having = [peer for peer in result.peers() if peer.median(quantity) is not None]
        having.sort(key=lambda peer: peer.exact(quantity), reverse=more_is_better)
        better = [(peer.name, ratio, peer.values[quantity].may_be_chance()) for peer in having
                  if ((ratio := peer.median(quantity) / own) > 1) == more_is_better and differs(ratio, peer.values[quantity])]
        if better:
            found.append((heading, better))
    return found
