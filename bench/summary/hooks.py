"""What hooks of bindings/ and the allocator each add, where servers were measured with hooks and without. Pure.

snug with hooks over the best peer without is the product of two ratios: snug over that peer, both without hooks, which is
the allocator's, and snug with hooks over snug without, which is the hooks'.
"""

from . import goals, shown

QUANTITIES = (("memory_mb", "mean memory"), ("idle_mb", "memory when idle"))
HEADING = ("workload", "best peer, no hooks", "snug with hooks over it", "of which the allocator", "of which the hooks", "best peer with hooks or by hand",
           "snug with hooks over it")
TEXT = """Medians. "Of which" are the factors of the third column: snug over that peer, both without hooks, and snug with hooks
over snug without. The goals are at most {limit} in the third column, on at least four of six servers, and below 1 in the
last."""


def compared(result, quantity):
    """The peers and ratios of a workload as cells of HEADING without the first, or None if something was not measured."""
    plain, hooked = result.snug_with(hooks=False), result.snug_with(hooks=True)
    peer, peer_hooked = goals.best(result.peers(), quantity), goals.best(result.peers(hooks=True), quantity)
    if not all(row and row.median(quantity) for row in (plain, hooked, peer, peer_hooked)):
        return None
    own, own_hooked, theirs, theirs_hooked = (row.median(quantity) for row in (plain, hooked, peer, peer_hooked))
    return (f"{peer.name}: {shown.text(theirs)} MB", own_hooked / theirs, own / theirs, own_hooked / own,
            f"{peer_hooked.name}: {shown.text(theirs_hooked)} MB", own_hooked / theirs_hooked)


def section(everything):
    """Lines of Markdown; none where no server had hooks."""
    lines = []
    for quantity, name in QUANTITIES:
        rows = [(result.workload, cells) for result in everything if (cells := compared(result, quantity))]
        if rows:
            lines += [f"| {name}: {' | '.join(HEADING)} |", "|---|---|--:|--:|--:|---|--:|"]
            lines += [f"| {workload} | " + " | ".join(cell if isinstance(cell, str) else f"{cell:.2f}" for cell in cells) + " |"
                      for workload, cells in rows]
            lines += ["", f"At most {goals.MEMORY_GOAL} of the best peer without hooks on {sum(cells[1] <= goals.MEMORY_GOAL for _, cells in rows)} of "
                      f"{len(rows)}; below every peer with hooks or by hand on {sum(cells[5] < 1 for _, cells in rows)}.", ""]
    return ["## With hooks and without", "", *TEXT.format(limit=goals.MEMORY_GOAL).splitlines(), "", *lines] if lines else []
