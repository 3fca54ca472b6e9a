"""Watches the tree of processes below this one: who is in it, and who has the library mapped.

A library that is silently not loaded (wrong path after a chdir, an environment dropped by a supervisor) would make
every check pass for the wrong reason, so a program passes only if its processes were seen with the library in
/proc/PID/maps, and none that was told to preload it lived on without.
"""

import ctypes
import os
import pathlib
import signal
import struct
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
INTERVAL_S = 0.05
COUNTERS_MAGIC = b"snug counters\n\0\1"  # core/include/snug_counters.h
COUNTERS_ALIGN = 4096
COUNTERS_PID = 24  # struct snug_counters: magic, version, size_bytes, pid
SETTLE_S = 0.5  # between execve and the loader's last mmap an image has no library yet; later it has to


def adopt_orphans():
    """Makes this process the parent of daemons that its descendants leave behind, so that they stay in the tree."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def parent_of(pid):
    stat = read(pid, "stat")
    return int(stat[stat.rindex(b")") + 2:].split()[1]) if stat else 0


def command_line(pid):
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def descendants(root):
    """All processes below root, parents first."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parents[int(name)] = parent_of(int(name))
    found, fresh = [], [root]
    while fresh:
        fresh = [pid for pid, parent in parents.items() if parent in fresh]
        found += fresh
    return found


def end_tree(root):
    """Kills everything below root and collects what became ours; repeats, because a fork may win the race."""
    for _ in range(50):
        alive = [pid for pid in descendants(root) if b"\nState:\tZ" not in read(pid, "status")]
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not alive:
            return
        time.sleep(0.05)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def serves(pid, library):
    """True if the library answers this process's malloc: its page of counters says so, and names this process. None if
    the process is gone.

    The library of an image is mapped even where nothing calls it; the page begins with the first block. A library that
    has no such page (another allocator) needs only be mapped, and so does one of a process that we may not read.
    """
    maps = read(pid, "maps").decode(errors="replace")
    if not maps:
        return None
    if library not in maps:
        return False
    if COUNTERS_MAGIC not in pathlib.Path(library).read_bytes():
        return True
    start, end = writable_part(maps, library)
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(start)
            data = memory.read(end - start)
    except PermissionError:
        return True
    except OSError:
        return None
    pages = [at for at in range(0, len(data), COUNTERS_ALIGN) if data.startswith(COUNTERS_MAGIC, at)]
    return any(struct.unpack_from("<I", data, at + COUNTERS_PID)[0] == pid for at in pages)


def writable_part(maps, library):
    """Where the library's variables are: its writable mapping, and the one without a name that goes on behind it."""
    start = end = 0
    for line in maps.splitlines():
        addresses, mode, _offset, _device, _inode, name = (*line.split(None, 5), "")[:6]
        first, last = (int(address, 16) for address in addresses.split("-"))
        if mode.startswith("rw") and name.endswith(library):  # seen from another mount namespace it may begin otherwise
            start, end = start or first, last
        elif mode.startswith("rw") and first == end:
            end = last
    return start, end


class Image:
    """One executable running in one process: what an execve makes."""

    def __init__(self, pid, executable, now):
        self.pid = pid
        self.name = os.path.basename(executable)
        self.first_seen_s = now
        self.mapped = False
        self.last_unmapped_s = None
        self.command_line = ""

    def look(self, library, now):
        maps = read(self.pid, "maps")
        if library in maps:
            self.mapped = True
        elif b"/ld-" in maps and library in read(self.pid, "environ").partition(b"LD_PRELOAD=")[2].split(b"\0")[0]:
            self.last_unmapped_s = now  # dynamic, and told to preload
            self.command_line = command_line(self.pid)

    def lacks_library(self):
        return not self.mapped and self.last_unmapped_s is not None and \
            self.last_unmapped_s - self.first_seen_s > SETTLE_S


class Watcher:
    """Looks at the tree every INTERVAL_S, in a thread, until stop()."""

    def __init__(self, library):
        self._library = library.encode()
        self._root = os.getpid()
        self._member = {self._root: True}  # every pid ever seen -> is it below root
        self._images = {}                  # (pid, executable) -> Image
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(INTERVAL_S):
            self._look()

    def _look(self):
        now = time.monotonic()
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._member = {pid: member for pid, member in self._member.items() if pid in pids}
        for pid in sorted(pids):
            if pid != self._root and self._is_member(pid):
                self._look_at(pid, now)

    def _is_member(self, pid):
        if pid not in self._member:
            parent = parent_of(pid)
            if parent == 0:
                return False
            self._member[pid] = self._is_member(parent)
        return self._member[pid]

    def _look_at(self, pid, now):
        try:
            executable = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return
        image = self._images.get((pid, executable))
        if image is None:
            image = self._images[pid, executable] = Image(pid, executable, now)
        if not image.mapped:
            image.look(self._library, now)

    def mapped_names(self):
        """Name of each image seen with the library: one entry per process."""
        return [image.name for image in list(self._images.values()) if image.mapped]

    def without_library(self):
        """Images that were told to preload the library and lived on without it."""
        return [image for image in list(self._images.values()) if image.lacks_library()]
