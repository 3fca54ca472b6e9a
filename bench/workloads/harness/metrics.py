"""Numbers that a run prints."""


def percentile(values, percent):
    """The smallest value that at least `percent` of all do not exceed."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


def latencies(durations_ms):
    return {"p50_ms": percentile(durations_ms, 50), "p99_ms": percentile(durations_ms, 99)}
