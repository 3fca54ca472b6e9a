"""Runs Rails, Sidekiq and Celery under snug for hours, in containers with memory limits, and says whether anything grows.

  bench/soak/run --minutes 720 --results DIRECTORY
  bench/soak/run --minutes 100 --resume DIRECTORY    one more slice of the same soak

Rounds of a minute, or longer where the machine is slow: work for a share of it, then some seconds of quiet, for which
Ruby collects its garbage and Celery's workers are renewed and do the same tasks each time, then a sample of each service:
live bytes, resident memory, mappings, threads, descriptors.
Workers are renewed, memory runs short, all workers are deployed anew, work comes in bursts or not at all, as PHASES says.
DIRECTORY gets samples.csv, slices.json and README.md with the verdict, and state/, what the services keep on disk.
Many slices add up: each starts the services again where the last left off, with another time since boot (as far as root
may say so), and the verdict is of all. A slice may be interrupted in any way.
Status 0: all flat, no process of a service killed; 1: something grew, failed or was killed; 3: undecided, which needs
more time. SIGINT, SIGTERM and SIGHUP end it after the present round, with the page; a second one at once, without.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ..workloads.harness import session
from . import containers, mappings, page, services
from .kills import Kills
from .peaks import Peaks
from .slices import ENDED, Slices, SlicesError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


MB = 1 << 20
QUIET_SECONDS = 6
WATCH_ENDS_EARLIER = 5  # seconds before the services end
ROUND_SECONDS = 60
# Every so many rounds, the first of which the round's number is a multiple; else it is day, with work as it comes.
PHASES = (("deploy", 20), ("night", 9), ("pressure", 7), ("burst", 6))
PRESSURE_SHARE, PRESSURE_SECONDS = 0.96, 8
PRESSURE_STEP = 4 * MB
COLUMNS = ("slice", "minute", "phase", "service", "live_bytes", "resident_bytes", "maps", "maps_but_ruby",
           *(f"maps_{kind}" for kind in mappings.KINDS), "threads", "descriptors", "processes", "used_bytes", "errors",
           "service_kills", "pressure_kills", "load")


def phase_of(number):
    return next((name for name, every in PHASES if number % every == 0), "day")


def sample(service, minute, phase, cli, kills):
    """One row of samples.csv but for the slice: sums over the processes of a service; of mappings the most that one process has, in all, but
    for those of Ruby's heap, and of each kind."""
    pids = service.container.processes()
    row = dict.fromkeys(COLUMNS[1:], 0)
    for pid in pids:
        try:
            shown = subprocess.run([cli, "stats", "--json", str(pid)], capture_output=True, text=True)
            heap = json.loads(shown.stdout)["heap"] if shown.returncode == 0 else None
            if heap is not None:
                row["live_bytes"] += heap["live_allocated_bytes"]
            elif Path(f"/proc/{pid}").exists():
                name = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                raise services.ServiceError(f"{service.name}: no counters in process {pid}, {name}: {shown.stdout}{shown.stderr}")
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            row["resident_bytes"] += next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
            kinds = mappings.of_process(pid)
            in_all = sum(kinds.values())
            for name, number in (("", in_all), ("_but_ruby", in_all - kinds["ruby"]),
                                 *((f"_{kind}", number) for kind, number in kinds.items())):
                row[f"maps{name}"] = max(row[f"maps{name}"], number)
            row["threads"] += len(os.listdir(f"/proc/{pid}/task"))
            row["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just been renewed
    row |= {"minute": minute, "phase": phase, "service": service.name, "processes": len(pids), "used_bytes": service.container.used_bytes() or 0,
            "errors": service.errors, "service_kills": kills.of_service, "pressure_kills": kills.of_pressure,
            "load": round(os.getloadavg()[0], 2)}
    return row


# Grows by a step where the container has room up to the level it shall be filled to, and gives one back where it is fuller.
# What the kernel takes back by itself, cached files, is room. The memory is private: of a process that was killed the
# kernel frees that at once.
PRESSER = """
import mmap, os, sys, time
used_file, level, step, seconds = sys.argv[1], *(int(word) for word in sys.argv[2:])
piece, kept, ends = b"x" * step, [], None

def used():
    with open(used_file) as file:
        number = int(file.read())
    with open(os.path.join(os.path.dirname(used_file), "memory.stat")) as file:
        fields = dict(line.split() for line in file)
    return number - sum(int(fields.get("total_" + name, fields.get(name, 0))) for name in ("inactive_file", "active_file"))

while ends is None or time.monotonic() < ends:
    now = used()
    if now + step <= level and (len(kept) + 1) * step <= level:
        kept.append(mmap.mmap(-1, step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(piece)
    else:
        ends = ends or time.monotonic() + seconds
        if now > level and kept:
            kept.pop().close()
    time.sleep(0.02)
"""


def press(container, share=PRESSURE_SHARE, seconds=PRESSURE_SECONDS):
    """Keeps the container filled to a share of its limit for some seconds, by a process that the kernel kills first. It gives
    way to the service: if both reach the limit at once, the kernel may kill a process of the service, too, although the end
    of this one has made room. Returns whether the kernel killed it; None: there is no limit."""
    limit, used_file = container.limit_bytes(), container.used_file()
    if not limit or not used_file:
        return None

    def admit():
        container.admit_self()
        Path("/proc/self/oom_score_adj").write_text("1000")

    done = subprocess.run([sys.executable, "-c", PRESSER, str(used_file), str(int(limit * share)), str(PRESSURE_STEP), str(seconds)],
                          preexec_fn=admit, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, -signal.SIGKILL):
        raise containers.ContainerError(f"what makes memory short ended with {done.returncode}")
    return done.returncode == -signal.SIGKILL


class Soak:
    def __init__(self, arguments, directory, kind, slices):
        self.arguments, self.directory, self.kind, self.slices = arguments, directory, kind, slices
        self.cli = shutil.copy(arguments.cli, directory / "snug")
        shown = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h"], capture_output=True, text=True)
        slices.add(began=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), planned_minutes=arguments.minutes,
                   commit=shown.stdout.strip() or "unknown", linux=platform.release(), container=kind.kind, niceness=os.nice(0),
                   busy_share=arguments.busy_share, uptime_hours=round(time.clock_gettime(time.CLOCK_BOOTTIME) / 3600),
                   note=arguments.note)
        self.services = []
        self.failures = slices.now["failures"]
        self.watches = {}  # by service: `snug leak` at work
        self.kills = {}  # by service
        self.peaks = Peaks(self.cli)
        self.rounds = 0
        self.ending = False  # before its time

    def start(self):
        for kind in services.ALL:
            self.slices.restore(kind.name, self.directory / kind.name)
            service = kind(self.directory, self.arguments.library, self.slices.units_of(kind.name))
            self.services.append(service)
            service.start(self.kind)
            self.kills[service.name] = Kills(service.container)
            self.kills[service.name].look()
            print(f"{service.name}: started, {service.limit_mb} MB, container by {self.kind.kind}", flush=True)
        threading.Thread(target=self.peaks.watch, args=(self.services,), daemon=True).start()

    def in_parallel(self, action):
        """Calls action(service) for all at once; what one raises is noted as a failure."""
        def guarded(service):
            try:
                action(service)
            except Exception as error:  # anything: the others go on, and the soak has failed
                self.failures.append(f"{service.name}: {error}")
        threads = [threading.Thread(target=guarded, args=(service,)) for service in self.services]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def watch(self, seconds):
        """Has snug leak watch each service for so long."""
        for service in self.services:
            command = [self.cli, "leak", "--for", f"{max(1, round(seconds - WATCH_ENDS_EARLIER))}s", "--no-lines", "--json", str(service.container.pid)]
            self.watches[service.name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                          stderr=subprocess.DEVNULL, text=True)

    def end_watches(self):
        for name, watch in self.watches.items():
            if self.failures or self.ending:
                watch.send_signal(signal.SIGINT)  # says what it knows
            said = watch.communicate(timeout=60)[0]
            if watch.returncode == 0:
                self.slices.now["watched"][name] = page.watched(json.loads(said))
            else:
                self.failures.append(f"{name}: snug leak failed with {watch.returncode}")

    def round(self, number, soak_began):
        began = time.monotonic()
        self.peaks.phase = phase = phase_of(number)
        work_ends = began + (ROUND_SECONDS - QUIET_SECONDS - 4) * self.arguments.busy_share
        if phase == "night":
            time.sleep(max(0, work_ends - time.monotonic()))
        else:
            self.in_parallel(lambda service: (service.burst_until if phase == "burst" else service.work_until)(work_ends))
        if phase == "deploy":
            self.in_parallel(lambda service: service.deploy())
        elif number % services.RENEW_EVERY == 0:
            self.in_parallel(lambda service: service.renew())
        if phase == "pressure":
            self.peaks.phase = None
            self.in_parallel(self.press_and_work)
        self.in_parallel(lambda service: service.settle())
        time.sleep(max(QUIET_SECONDS, began + ROUND_SECONDS - 2 - time.monotonic()))
        minute = round((time.monotonic() - soak_began) / 60, 1)
        rows = []
        for service in self.services:
            self.look_for_kills(service)
            if not service.container.running():
                self.failures.append(f"{service.name} ended by itself:\n{service.log()[-2000:]}")
                continue
            rows.append(sample(service, minute, phase, self.cli, self.kills[service.name]))
        self.slices.note(rows)
        self.note_progress(minute, phase)
        time.sleep(max(0, began + ROUND_SECONDS - time.monotonic()))

    def note_progress(self, minute, phase):
        now = self.slices.now
        now["phases"][phase] = now["phases"].get(phase, 0) + 1
        now |= {"minutes": minute, "rounds": self.rounds,
                "work": {service.name: {"units": service.units, "renewed": service.renewed, "errors": service.errors}
                         for service in self.services},
                "peaks": list(self.peaks.most.values()), "pressures": sum(kills.pressures for kills in self.kills.values()),
                "pressure_kills": sum(kills.of_pressure for kills in self.kills.values()),
                "service_kills": sum(kills.of_service for kills in self.kills.values())}
        self.slices.save()

    def press_and_work(self, service):
        def press_it():
            try:
                killed = press(service.container)
            except containers.ContainerError as error:
                self.failures.append(f"{service.name}: {error}")
                return
            if killed is not None:
                self.kills[service.name].note_pressure(killed)
        self.look_for_kills(service)  # so that who is gone afterwards was there before
        presser = threading.Thread(target=press_it)
        presser.start()
        service.work_until(time.monotonic() + PRESSURE_SECONDS)
        presser.join()
        self.look_for_kills(service)

    def look_for_kills(self, service):
        killed = self.kills[service.name].look()
        if killed:
            self.failures.append(f"{service.name}: {killed}")

    def run(self):
        began = time.monotonic()
        settled, ends = (began + 60 * self.arguments.minutes * share for share in (page.WARM_UP_SHARE, 1))
        while (now := time.monotonic()) < ends and not self.failures and not self.ending:
            if now >= settled and not self.watches:
                self.watch(ends - now)
            self.rounds += 1
            self.round(self.rounds, began)
        self.end_watches()
        for service in self.services:
            if service.errors:
                self.failures.append(f"{service.name}: {service.errors} requests or jobs failed")

    def end(self, received):
        """By a signal."""
        if self.ending:
            sys.exit(128 + received)
        self.ending = True

    def stop(self):
        self.peaks.ended.set()
        for watch in self.watches.values():
            if watch.poll() is None:
                watch.kill()
                watch.wait()
        for service in reversed(self.services):
            try:
                service.stop()
                self.slices.keep(service.name, service.kept_files())
            except Exception as error:
                print(f"{service.name}: {error}", file=sys.stderr)
        self.slices.now["state"] = ENDED
        self.slices.save()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=720, metavar="N", help="how long (720)")
    parser.add_argument("--results", type=Path, metavar="DIRECTORY", help="a new folder for the soak (build/soak/DATE-TIME)")
    parser.add_argument("--resume", type=Path, metavar="DIRECTORY", help="go on with the soak in this folder")
    parser.add_argument("--busy-share", type=float, default=0.8, metavar="S", help="share of each round with work (0.8)")
    parser.add_argument("--library", default=str(ROOT / "build/libsnug.so"))
    parser.add_argument("--cli", default=str(ROOT / "build/snug"))
    parser.add_argument("--note", default="", metavar="TEXT", help="a remark for the page, such as what else the machine did")
    arguments = parser.parse_args()
    if arguments.minutes < 1 or not 0 < arguments.busy_share <= 1:
        parser.error("--minutes must be at least 1, --busy-share above 0 and at most 1")
    if arguments.results and arguments.resume:
        parser.error("--results begins a soak, --resume goes on with one: give one of them")
    if arguments.results is None:
        arguments.results = ROOT / "build/soak" / datetime.datetime.now().strftime("%Y-%m-%d-%H%M")
    return arguments


def on_signals(handler):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def main():
    arguments = parse_arguments()
    slices = Slices(arguments.resume or arguments.results, COLUMNS)
    try:
        services.require_programs()
        if arguments.resume:
            slices.resume()
        else:
            slices.begin()
    except (SlicesError, session.WorkloadError) as error:
        sys.exit(f"bench/soak/run: {error}")
    containers.enter_own_namespaces(len(slices.all))
    on_signals(lambda received, _frame: sys.exit(128 + received))
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as directory, containers.chosen() as kind:
        soak = Soak(arguments, Path(directory), kind, slices)
        on_signals(lambda received, _frame: soak.end(received))
        try:
            soak.start()
            soak.run()
        except (containers.ContainerError, services.ServiceError, session.WorkloadError) as error:
            soak.failures.append(str(error))
        finally:
            on_signals(signal.SIG_IGN)  # what is left to do takes seconds
            soak.stop()
    text, status = page.write(slices)
    (slices.directory / "README.md").write_text(text)
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
