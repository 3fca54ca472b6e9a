"""Which processes belong to a server, and what they have resident."""

import os
import re
from pathlib import Path


def process_tree(root_pid):
    """The process and all its descendants that exist now, as a list of PIDs."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = _parent_of(int(entry))
            children.setdefault(parent, []).append(int(entry))
    tree, waiting = [], [root_pid]
    while waiting:
        pid = waiting.pop()
        tree.append(pid)
        waiting += children.get(pid, [])
    return [pid for pid in tree if _parent_of(pid) is not None]


def _parent_of(pid):
    try:
        state_and_parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state_and_parent[0] == "Z" else int(state_and_parent[1])


def resident_metric(root_pid, phase):
    """{"idle_rss_mb": ...} for a single process, {"idle_pss_mb": ...} for a family (phase "idle")."""
    pids = process_tree(root_pid)
    field, name = ("Rss", "rss") if len(pids) == 1 else ("Pss", "pss")
    total_bytes = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total_bytes += int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024
    return {f"{phase}_{name}_mb": total_bytes / 1e6}
