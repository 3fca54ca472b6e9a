"""Which processes belong to a server, what they have resident, and what forked ones have made their own."""

import os
import re
import statistics
import threading
from pathlib import Path

SNUG = "libsnug.so"
# snug's heap and its maps adjoin each other, in address space of which at least this much is reserved in one piece.
CHUNK_BYTES = 4 << 20  # a heap and its tables begin at a multiple
SPARE_BYTES = 16 << 20  # at least, reserved beyond the heap
TABLES_SPAN_BYTES, TABLES_LEAST = 16 << 30, 4
GUARD_MAX_BYTES = 64 << 10  # what may not be touched below a stack
WATCH_SECONDS = 0.5
MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+)\s*(.*)$")


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


def oldest(pids):
    """The process of them that started first, whatever the numbers, which come again; None if all have ended."""
    started = {pid: int(fields[19]) for pid in pids if (fields := stat_fields(pid))}
    return min(started, key=started.get, default=None)


def _parent_of(pid):
    fields = stat_fields(pid)
    return int(fields[1]) if fields else None


def stat_fields(pid):
    """The fields of /proc/PID/stat from the state on, which is the third of proc(5); None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields


def idle_metrics(root_pid):
    """What a server has while it idles: {"idle_rss_mb": ...} of a single process, {"idle_pss_mb": ...} of a family.

    Of forked workers also what they have written to and share with nobody (Private_Dirty), in the mean:
    {"worker_private_mb": ...}, and of all processes {"idle_anonymous_pss_mb": ...}; under snug also {"worker_private_outside_mb": ...}, which is not malloc's: the
    interpreter's own heap, stacks, data of libraries.
    """
    pids = process_tree(root_pid)
    field, name = ("Rss", "rss") if len(pids) == 1 else ("Pss", "pss")
    resident_bytes = sum(rolled_up(pid, field) or 0 for pid in pids)
    anonymous = {"idle_anonymous_pss_mb": anonymous_pss_mb(root_pid)} if len(pids) > 1 else {}
    return {f"idle_{name}_mb": resident_bytes / 1e6, **anonymous, **_worker_metrics(pids[1:])}


class Watch:
    """What all processes of a server share out of anonymous memory while this is entered, twice a second: Pss_Anon, by which
    programs and libraries, and what is mapped of files, are left out. {"anonymous_pss_mb": the mean}"""

    def __init__(self, root_pid):
        self.root_pid = root_pid
        self.seen_mb = []

    def __enter__(self):
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look(self):
        while not self._over.wait(WATCH_SECONDS):
            self.seen_mb.append(anonymous_pss_mb(self.root_pid))

    def metrics(self):
        return {"anonymous_pss_mb": statistics.fmean(self.seen_mb)} if self.seen_mb else {}


def anonymous_pss_mb(root_pid):
    return sum(rolled_up(pid, "Pss_Anon") or 0 for pid in process_tree(root_pid)) / 1e6


def _worker_metrics(workers):
    """The part of idle_metrics about forked workers; {} without any."""
    private = [value for value in (rolled_up(pid, "Private_Dirty") for pid in workers) if value is not None]
    outside = [value for value in (_private_outside(pid) for pid in workers) if value is not None]
    found = {}
    if private:
        found["worker_private_mb"] = statistics.fmean(private) / 1e6
    if outside:
        found["worker_private_outside_mb"] = statistics.fmean(outside) / 1e6
    return found


def rolled_up(pid, name):
    """A field of all mappings of a process together, in bytes; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024


def _private_outside(pid):
    """Bytes that a process under snug has written to for itself outside of snug's mappings; None for others."""
    try:
        mappings = parse_smaps(Path(f"/proc/{pid}/smaps").read_text())
    except OSError:
        return None
    heap = reserved_range(mappings)
    if heap is None:
        return None
    return sum(mapping["private_dirty"] for mapping in mappings
               if not heap[0] <= mapping["start"] < heap[1])


def parse_smaps(text):
    """The mappings of a smaps file, in its order: start, end, access, file, whether anonymous, private dirty bytes."""
    mappings = []
    for line in text.splitlines():
        if header := MAPPING.match(line):
            start, end, access, inode, name = header.groups()
            # Kernels that can name anonymous memory show what snug calls its own: [anon:snug heap].
            anonymous = inode == "0" and (not name or name.startswith("[anon:"))
            mappings.append({"start": int(start, 16), "end": int(end, 16), "access": access,
                             "file": name, "anonymous": anonymous, "private_dirty": 0})
        elif line.startswith("Private_Dirty:"):
            mappings[-1]["private_dirty"] = int(line.split()[1]) * 1024
    return mappings


def reserved_range(mappings):
    """Start and end of the addresses that are snug's: from its first table to the end of what is reserved beyond its heap.
    None if there is no such heap. Nobody else's mappings come near (docs/decisions/0052); tables are anonymous, and begin
    at whole chunks before the heap."""
    if not any(SNUG in mapping["file"] for mapping in mappings):
        return None
    best, tables, row = (0, (0, 0)), [], None
    for before, mapping in zip([None, *mappings], mappings, strict=False):
        if not mapping["anonymous"]:
            row = None
            continue
        if row is None or before["end"] != mapping["start"]:
            row = mapping["start"]
        if mapping["access"].startswith("rw") and mapping["start"] % CHUNK_BYTES == 0:
            tables.append(mapping["start"])
        if mapping["access"].startswith("---") and mapping["end"] - mapping["start"] >= SPARE_BYTES and row % CHUNK_BYTES == 0:
            near = [table for table in tables if row - TABLES_SPAN_BYTES <= table < row]
            best = max(best, (len(near), (min(near, default=row), mapping["end"])))
    return best[1] if best[0] >= TABLES_LEAST else None
