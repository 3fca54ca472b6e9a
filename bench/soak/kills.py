"""Whom the kernel killed in a service's container when memory was short: the process that presses, which is meant to be
killed first, or processes of the service, which is a failure.

The kernel only counts. How many of those it counted were the process that presses its end says; the others were the
service's, and those that are gone since they were last looked at are named.
"""

import time
from pathlib import Path

END_SECONDS = 5  # a killed process is counted before it is gone


class Kills:
    """Those in one container."""

    def __init__(self, container):
        self.container = container
        self.counted = 0
        self.of_pressure = self.of_service = 0
        self.pressures = self.pressures_killed = 0
        self.processes = {}

    def note_pressure(self, killed):
        """The process that presses has ended, by SIGKILL or by itself."""
        self.pressures += 1
        self.pressures_killed += killed

    def look(self):
        """Not while one presses. Returns what of the service was killed since the last look, in words; None: nothing."""
        new = max(0, self.container.kills() - self.counted)  # nothing is counted of a container that is gone
        self.counted += new
        # Somebody else may have killed the process that presses: at most as many as the kernel counted are its.
        own = min(new, self.pressures_killed)
        self.pressures_killed = 0
        self.of_pressure += own
        self.of_service += new - own
        gone = self._look_at_processes(new - own)
        if new == own:
            return None
        limit_bytes = self.container.limit_bytes()
        limit = f" at its limit of {limit_bytes >> 20} MiB" if limit_bytes else ""
        return f"the kernel killed {new - own} of its processes{limit}; gone since the last look: {', '.join(gone) or 'none that was seen'}"

    def _look_at_processes(self, killed):
        """Which are gone since the last look; waits until those killed are."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            now = self.container.processes()
            gone = [f"{pid} {name}".rstrip() for pid, name in self.processes.items() if pid not in now]
            if len(gone) >= killed or time.monotonic() > deadline:
                self.processes = {pid: _name(pid) for pid in now}
                return gone
            time.sleep(0.05)


def _name(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:80]
    except OSError:
        return ""
