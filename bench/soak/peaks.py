"""How near each service came to its container's limit, by phase, and how much of that was live: what a kill by the kernel is
judged by.

Looked at once a second, so a shorter peak is missed. While memory is made short on purpose nothing is noted.
"""

import json
import subprocess
import threading

LOOK_SECONDS = 1
MB = 1 << 20


def of_heaps(cli, pids):
    """Live bytes and resident bytes of snug's heaps in these processes together, as far as they can be asked."""
    live = resident = 0
    for pid in pids:
        shown = subprocess.run([cli, "stats", "--json", str(pid)], capture_output=True, text=True)
        if shown.returncode == 0:
            heap = json.loads(shown.stdout)["heap"]
            live += heap["live_allocated_bytes"]
            resident += heap["resident_bytes"]
    return live, resident


class Peaks:
    """Those of all services in one slice: of each and each phase, the moment when most was used."""

    def __init__(self, cli):
        self.cli = cli
        self.most = {}  # by service and phase
        self.phase = None  # None: nothing is noted
        self.ended = threading.Event()

    def look(self, service):
        phase = self.phase
        used_bytes = service.container.used_bytes() if phase else None
        so_far = self.most.get((service.name, phase), {"used_bytes": 0})
        if used_bytes and used_bytes > so_far["used_bytes"]:
            live_bytes, heap_bytes = of_heaps(self.cli, service.container.processes())
            self.most[service.name, phase] = {"service": service.name, "phase": phase, "used_bytes": used_bytes,
                                              "heap_bytes": heap_bytes, "live_bytes": live_bytes}

    def watch(self, services):
        """Looks at them until `ended`."""
        while not self.ended.wait(LOOK_SECONDS):
            for service in services:
                self.look(service)


def table(slices, limits_mb):
    """Lines for the page: of each service and phase the highest use in all slices. `limits_mb`: {service: MB}."""
    most = {}
    for ran in slices:
        for peak in ran.get("peaks", []):
            key = peak["service"], peak["phase"]
            if key not in most or peak["used_bytes"] > most[key]["used_bytes"]:
                most[key] = peak | {"slice": ran["slice"]}
    if not most:
        return []
    lines = ["Highest use of each container, looked at once a second; heaps are snug's, of all processes:", "",
             "| service | phase | used, MB | limit, MB | heaps, MB | live in them, MB | slice |", "|---|---|--:|--:|--:|--:|--:|"]
    for (name, phase), peak in sorted(most.items()):
        used, heap, live = (f"{peak[field] / MB:.1f}" for field in ("used_bytes", "heap_bytes", "live_bytes"))
        lines.append(f"| {name} | {phase} | {used} | {limits_mb[name]} | {heap} | {live} | {peak['slice']} |")
    return [*lines, ""]
