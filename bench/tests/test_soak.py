"""bench/soak: what it calls flat, growing and undecided, whose mappings are whose, and whom the kernel killed."""

import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from bench.soak import containers, mappings, page, peaks, run, services, slices, trend
from bench.soak.kills import Kills
from bench.workloads.harness import memory

sys.dont_write_bytecode = True

SNUG = Path(__file__).resolve().parents[2] / "build/snug"
LIBRARY = Path(__file__).resolve().parents[2] / "build/libsnug.so"


class Counts(unittest.TestCase):
    def verdict(self, values):
        return trend.of_counts([values], 3).verdict

    def test_what_stays_is_flat(self):
        rng = random.Random(1)
        self.assertEqual(self.verdict([40 + rng.choice((-1, 0, 1)) for _ in range(720)]), "flat")
        self.assertEqual(self.verdict([20 + minute % 7 for minute in range(90)]), "flat", "a saw of renewed workers")
        self.assertEqual(self.verdict([100 + minute / 720 for minute in range(720)]), "flat", "less than the bound")

    def test_what_grows_is_found(self):
        self.assertEqual(self.verdict([20 + minute // 20 for minute in range(720)]), "growing")

    def test_a_short_time_decides_nothing(self):
        self.assertEqual((self.verdict([1, 2, 3]), self.verdict([])), ("undecided", "undecided"))


class Memory(unittest.TestCase):
    def samples(self, count, grows_by=0.0, alike=0.0, seed=1):
        """A service of 300 MB whose workers are renewed every five samples, with noise of a tenth."""
        rng = random.Random(seed)
        error, values = 0.0, []
        for i in range(count):
            error = alike * error + rng.gauss(0, 30e6) * (1 - alike ** 2) ** 0.5
            values.append(200e6 + 25e6 * (i % 5) + grows_by * 300e6 * i / count + error)
        return values

    def verdicts(self, count, **how):
        return [trend.of_memory([self.samples(count, seed=seed, **how)], 5).verdict for seed in range(100)]

    def test_twelve_hours_tell_what_grows_from_what_does_not(self):
        self.assertGreaterEqual(self.verdicts(540).count("flat"), 80)
        self.assertGreaterEqual(self.verdicts(540, grows_by=0.12).count("growing"), 90)

    def test_nothing_that_is_certain_is_wrong(self):
        """Also where a sample is like the one before; of what grows by just the bound, 2.5 % may pass for flat."""
        for alike in (0, 0.5):
            self.assertEqual(self.verdicts(540, alike=alike).count("growing"), 0)
            self.assertLessEqual(self.verdicts(540, grows_by=0.05, alike=alike).count("flat"), 8)

    def test_slices_add_up(self):
        """Each start has a level of its own, and what is too short to fit a line through says nothing."""
        def slices(seed, grows_by=0.0):
            return [[level * 50e6 + value for value in self.samples(75, grows_by, seed=100 * seed + level)] for level in range(16)] + [[1e9] * 3]
        verdicts = [trend.of_memory(slices(seed), 5).verdict for seed in range(50)]
        self.assertGreaterEqual(verdicts.count("flat"), 40)
        self.assertEqual(verdicts.count("growing"), 0)
        grown = [trend.of_memory(slices(seed, grows_by=0.4), 5) for seed in range(50)]
        self.assertEqual({trend_.verdict for trend_ in grown}, {"growing"})
        inside = sum(low <= 0.4 * 300e6 <= high for low, high in (trend_.interval for trend_ in grown))
        self.assertGreaterEqual(inside, 42)

    def test_a_short_time_decides_little(self):
        self.assertEqual(set(self.verdicts(15)), {"undecided"})
        self.assertGreaterEqual(self.verdicts(60).count("undecided"), 70)
        self.assertEqual(trend.of_memory([[]], 5).verdict, "undecided")

    def test_what_stays_to_the_byte_is_flat(self):
        self.assertEqual(trend.of_memory([[5e6] * 30], 5).verdict, "flat")

    def test_the_tool_says_its_word(self):
        """Its JSON has what the page needs, whatever it says of so short a time."""
        program = "import time\nkept = []\nfor _ in range(600):\n    kept.append(bytes(200_000))\n    time.sleep(0.01)"
        ended = subprocess.run([SNUG, "leak", "--for", "4s", "--no-lines", "--json", "--", sys.executable, "-c", program],
                               capture_output=True, text=True)
        said = page.watched(json.loads(ended.stdout))
        self.assertRegex(page._watched([{"watched": {"rails": said}}])[0],
                         "slice by slice: rails (steady|growing|undecided) and (steady|growing|undecided)[.]$")


class Page(unittest.TestCase):
    def rows(self, service, count, **columns):
        same = {"slice": 1, "service": service, "live_bytes": 2e8, "resident_bytes": 3e8, "maps_but_ruby": 390, "maps_ruby": 150,
                "threads": 3, "descriptors": 5}
        return [same | {name: value(minute) for name, value in columns.items()} for minute in range(count)]

    def test_every_service_has_each_of_its_rows(self):
        rows = [row for kind in page.services.ALL for row in self.rows(kind.name, 40)]
        found = page.trends(rows)
        self.assertEqual(len(found), len(page.services.ALL) * (len(page.MEMORY) + len(page.COUNTS) + len(page.WANDERING)))
        self.assertEqual(page.verdict(found, [])[1], 0)
        self.assertTrue(all(page._row(*entry).startswith("| ") for entry in found))

    def test_a_short_soak_says_so(self):
        self.assertIn("Not the 12 hours", page._shorter(65, 65)[0])
        self.assertEqual(page._shorter(719.4, 719.4), [])
        self.assertIn("No service ran longer than 100 minutes", page._shorter(800, 100)[0])

    def test_what_wanders_is_shown_and_all_else_is_judged(self):
        """More mappings are Ruby's own affair, unless they are not of its heap."""
        def verdict(**columns):
            later = {name: lambda minute, last=last, first=first: last if minute > 30 else first
                     for name, (first, last) in columns.items()}
            found = [entry for entry in page.trends(self.rows("sidekiq", 60, **later)) if entry[0] == "sidekiq"]
            return page.verdict(found, [])

        self.assertEqual(verdict(maps_ruby=(150, 600))[1], 0)
        self.assertEqual(verdict(maps_but_ruby=(390, 430)), ("not flat: mappings but for Ruby's heap of sidekiq", 1))


class Clock(unittest.TestCase):
    def soak(self, minutes, do_round):
        """One without services; and the lengths of its watches, in seconds."""
        soak = run.Soak.__new__(run.Soak)
        soak.arguments, soak.services, soak.failures = SimpleNamespace(minutes=minutes), [], []
        soak.rounds, soak.watches, soak.ending = 0, {}, False
        watched = []
        soak.watch = lambda seconds: (watched.append(seconds), soak.watches.update(rails=None))
        soak.round = lambda number, _began: do_round(soak, number)
        soak.end_watches = lambda: None
        return soak, watched

    def test_a_signal_ends_it_after_the_round(self):
        soak, _ = self.soak(60, lambda soak, number: soak.end(signal.SIGTERM) if number == 2 else None)
        soak.run()
        self.assertEqual((soak.rounds, soak.failures), (2, []))
        with self.assertRaises(SystemExit):
            soak.end(signal.SIGTERM)

    def test_it_takes_as_long_as_asked_for_however_slow_the_rounds(self):
        soak, watched = self.soak(1 / 60, lambda _soak, _number: time.sleep(0.15))
        began = time.monotonic()
        soak.run()
        self.assertGreaterEqual(time.monotonic() - began, 1)
        self.assertLessEqual(soak.rounds, 7)
        self.assertEqual(len(watched), 1)
        self.assertLessEqual(watched[0], 0.75)


class Modules(unittest.TestCase):
    def test_a_service_finds_what_its_tasks_import(self):
        workloads = Path(services.__file__).resolve().parents[1] / "workloads"
        own = {path.stem: path.parent for path in workloads.glob("*/*.py") if path.parent.name != "harness"}  # a package
        service = services.Celery.__new__(services.Celery)
        with mock.patch.object(services.Celery, "start_redis", return_value="socket"):
            found = service.command()[1]["PYTHONPATH"].split(":")
        tree = ast.parse((services.celery.HERE / "bench_tasks.py").read_text())
        names = {name.split(".")[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
                 for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])}
        wanted = {str(own[name]) for name in names & own.keys()}
        self.assertIn(str(services.celery.BOOT), wanted)
        self.assertLessEqual(wanted, set(found))


class InSlices(unittest.TestCase):
    """The folder of a soak whose slices end in every way."""

    COLUMNS = ("slice", "minute", "service", "live_bytes")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "soak"

    def opened(self):
        found = slices.Slices(self.folder, self.COLUMNS)
        found.resume()
        return found

    def row(self, minute):
        return {"minute": minute, "service": "rails", "live_bytes": 5}

    def test_what_was_interrupted_counts_as_far_as_it_came(self):
        first = slices.Slices(self.folder, self.COLUMNS)
        first.begin()
        first.add(commit="a")
        first.note([self.row(1.5)])
        first.now["work"] = {"rails": {"units": 7}}
        first.save()
        with open(self.folder / "samples.csv", "a", encoding="utf-8") as file:
            file.write("1,2.5")  # the machine ended here
        second = self.opened()
        self.assertEqual([(ran["slice"], ran["state"]) for ran in second.all], [(1, "interrupted")])
        self.assertEqual(second.rows, [{"slice": 1, **self.row(1.5)}])
        second.add(commit="b")
        second.note([self.row(1)])
        second.now["state"] = slices.ENDED
        second.save()
        third = self.opened()
        self.assertEqual([(row["slice"], row["minute"]) for row in third.rows], [(1, 1.5), (2, 1)])
        self.assertEqual([ran["state"] for ran in third.all], ["interrupted", "ended"])
        self.assertEqual((third.units_of("rails"), third.units_of("celery")), (7, 0))

    def test_a_folder_is_begun_once_and_gone_on_with_only_if_it_is_a_soaks(self):
        with self.assertRaisesRegex(slices.SlicesError, "holds no soak to go on with.*--results begins one"):
            self.opened()
        first = slices.Slices(self.folder, self.COLUMNS)
        first.begin()
        first.add()
        with self.assertRaisesRegex(slices.SlicesError, "--resume .* goes on with it"):
            slices.Slices(self.folder, self.COLUMNS).begin()

    def test_services_find_again_what_they_kept(self):
        first = slices.Slices(self.folder, self.COLUMNS)
        first.begin()
        own = self.folder.parent / "rails"
        own.mkdir()
        (own / "shop.sqlite3").write_text("rows")
        first.keep("rails", [own / "shop.sqlite3", own / "never made"])
        shutil.rmtree(own)
        first.restore("rails", own)
        self.assertEqual([(path.name, path.read_text()) for path in own.iterdir()], [("shop.sqlite3", "rows")])
        first.restore("celery", self.folder.parent / "celery")
        self.assertFalse((self.folder.parent / "celery").exists())

    def test_every_phase_comes_within_a_slice(self):
        seen = [run.phase_of(number) for number in range(1, 61)]
        for name, _ in run.PHASES:
            self.assertGreaterEqual(seen.count(name), 2, name)
        self.assertGreaterEqual(seen.count("day"), 30)


def started(test, command, **options):
    """A program that runs until the test ends, once it has said so in a line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    test.addCleanup(lambda: (process.kill(), process.communicate()))
    process.stdout.readline()
    return process


class Mappings(unittest.TestCase):
    def listed(self, *rows):
        return memory.parse_smaps("".join(f"{start:x}-{end:x} {access}p 00000000 00:00 {7 if name.startswith('/') else 0} {name}\n"
                                          for start, end, access, name in rows))

    def test_each_counts_once(self):
        page_at, structure, gib = 0x7f0000014000, 0x5000, 1 << 30
        contents = {page_at: structure.to_bytes(8, "little"),
                    structure: b"\1" * 8 + (page_at + 40).to_bytes(8, "little") + bytes(mappings.RUBY_STRUCTURE_BYTES - 16),
                    0x7f0000040000: bytes(8), 0: bytes(mappings.RUBY_STRUCTURE_BYTES)}

        def read(address, length):
            if address not in contents:
                raise OSError
            return contents[address][:length]

        listed = self.listed(
            (0x1000, 0x2000, "r-x", "/usr/bin/ruby"), (0x5000, 0x9000, "rw-", "[heap]"),
            *((gib + i * (4 << 20), gib + i * (4 << 20) + 4096, "rw-", "") for i in range(4)),
            (2 * gib, 3 * gib, "rw-", ""), (3 * gib, 4 * gib, "---", ""), (5 * gib, 6 * gib, "r-x", "/usr/lib/libsnug.so"),
            (page_at, page_at + 0x8000, "rw-", ""), (0x7f0000040000, 0x7f0000044000, "rw-", ""), (0x7f0000051000, 0x7f0000052000, "rw-", ""),
            (0x7f0000100000, 0x7f0000101000, "---", ""), (0x7f0000101000, 0x7f00001a2000, "rw-", ""), (0x7f0000200000, 0x7f0000300000, "rw-", "[stack]"))
        found = mappings.count(listed, read)
        self.assertEqual(found, {"ruby": 1, "stacks": 3, "files": 2, "snug": 6, "others": 3})

    def test_rubys_heap_is_found_whatever_serves_malloc(self):
        """Ruby says how many pages it has; each mapping of its heap holds at least one."""
        script = ("kept = Array.new(300_000) { |i| 'x' * (i % 30) }; 90.times { |i| kept.slice!(i * 2000, 1000) }; GC.start; "
                  "puts GC.stat(:heap_allocated_pages); STDOUT.flush; sleep")
        for library in ("", str(LIBRARY)):
            process = subprocess.Popen(["ruby", "-e", script], stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": library})
            self.addCleanup(lambda process=process: (process.kill(), process.communicate()))
            pages = int(process.stdout.readline())
            found = mappings.of_process(process.pid)
            self.assertTrue(1 <= found["ruby"] <= pages, (found, pages))
            self.assertLess(found["others"], 60, found)
            self.assertEqual(found["snug"] > 0, bool(library), found)
            self.assertEqual(sum(found.values()), Path(f"/proc/{process.pid}/maps").read_text().count("\n"))

    def test_large_blocks_and_stacks_are_not_rubys(self):
        script = ("import ctypes, threading, time\nkept = [ctypes.create_string_buffer(3 << 20) for _ in range(50)]\n"
                  "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(8)]\nprint(flush=True)\ntime.sleep(60)")
        process = started(self, [sys.executable, "-c", script], env={"LD_PRELOAD": str(LIBRARY)})
        found = mappings.of_process(process.pid)
        self.assertEqual(found["ruby"], 0)
        self.assertGreaterEqual(found["stacks"], 8, found)


# It keeps its containers where --root says, and notes what it is asked for. `run` ends as RUNS says. As podman's own, it takes no
# long --runroot.
PODMAN = """#!/bin/sh
echo "$*" >>"$PODMAN_LOG"
while [ "$1" != --root ]; do shift; done
mkdir -p "$2/vfs-containers"
[ ${#4} -le 50 ] || exit 125
case " $* " in *" run "*) exit "${RUNS:-0}" ;; esac
"""


class Storage(unittest.TestCase):
    """Containers are kept apart from those of root, and nothing of them stays, however the soak ends."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.build, self.temporary, self.log = (self.folder / name for name in ("where/others/have/a/checkout/build", "tmp", "podman.log"))
        for path in (self.build, self.temporary, self.folder / "bin"):
            path.mkdir(parents=True)
        (self.folder / "bin/podman").write_text(PODMAN)
        (self.folder / "bin/podman").chmod(0o755)
        self.variables = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "PODMAN_LOG": str(self.log), "TMPDIR": str(self.temporary)}

    def chosen(self, **variables):
        """The kind of container, what lay in build/ and in /tmp while it was used, and what does afterwards."""
        with mock.patch.dict(os.environ, {**self.variables, **variables}), mock.patch.object(tempfile, "tempdir", None), \
                mock.patch.object(os, "geteuid", lambda: 0), mock.patch.object(containers, "BUILD", self.build):
            with containers.chosen() as kind:
                inside = self.left()
            return kind.kind, inside, self.left()

    def left(self):
        return [path.name for folder in (self.temporary, self.build) for path in folder.iterdir()]

    def test_its_storage_is_its_own_and_goes(self):
        before = set(Path("/tmp").glob("soak-root"))
        kind, (state, storage), left = self.chosen()
        self.assertEqual((kind, left), ("podman", []))
        self.assertTrue(storage.startswith("soak-containers-"), storage)
        asked = self.log.read_text().splitlines()
        for words in asked:
            self.assertIn(f" --root {self.build}/{storage}/containers --runroot {self.temporary}/{state} ", words)
        self.assertTrue(asked[-1].endswith(" rm --force --all --time 0"), asked)
        self.assertEqual(set(Path("/tmp").glob("soak-root")), before)

    def test_nothing_stays_of_a_podman_that_does_not_work(self):
        kind, _, left = self.chosen(RUNS="1")
        self.assertNotEqual(kind, "podman")
        self.assertEqual(left, [])

    def test_a_signal_leaves_nothing_either(self):
        script = (f"import os, pathlib, sys\nfrom bench.soak import containers, run, services\nos.geteuid = lambda: 0\n"
                  f"containers.BUILD = pathlib.Path({str(self.build)!r})\nservices.ALL = ()\nservices.require_programs = lambda: None\n"
                  f"sys.argv = ['run', '--results', {str(self.folder / 'results')!r}, '--cli', '/bin/true', '--library', '/bin/true']\nsys.exit(run.main())")
        process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).resolve().parents[2], text=True, stderr=subprocess.PIPE,
                                   env={**os.environ, **self.variables, containers.OWN_NAMESPACE: "1"})
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        deadline = time.monotonic() + 30
        while not (self.folder / "results/slices.json").exists():
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        self.assertEqual(len(self.left()), 3)
        for _ in range(2):  # the first would let it finish its round
            process.terminate()
            time.sleep(0.5)
        process.wait(30)
        self.assertEqual((process.returncode, self.left()), (128 + signal.SIGTERM, []))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("podman"), "needs root and podman")
    def test_a_container_that_is_left_ends(self):
        with mock.patch.object(containers, "BUILD", self.build):
            podman = containers.Podman()
            self.addCleanup(podman.remove)
            if not podman.works():
                self.skipTest("podman can't limit memory here")
            container = podman.start("left", ["sleep", "600"], {}, 64 << 20, self.temporary)
            self.assertTrue(Path(f"/proc/{container.pid}").exists())
            podman.remove()
            container.launcher.wait(30)
            self.assertFalse(Path(f"/proc/{container.pid}").exists())
            self.assertEqual(list(self.build.iterdir()), [])


class FakeContainer:
    """Counts what it is told to."""

    def __init__(self):
        self.counted, self.pids = 0, [1, 2, 3, 4]

    def kills(self):
        return self.counted

    def processes(self):
        return self.pids

    def limit_bytes(self):
        return 64 << 20


class HowNearTheLimit(unittest.TestCase):
    """What is live when a service uses most says whether a kill was the program's doing or the allocator's."""

    def test_the_highest_moment_of_each_phase_is_kept(self):
        container = FakeContainer()
        service = SimpleNamespace(name="rails", container=container)
        looks = peaks.Peaks("no tool")
        with mock.patch.object(peaks, "of_heaps", side_effect=[(1 * peaks.MB, 2 * peaks.MB), (3 * peaks.MB, 4 * peaks.MB),
                                                                         (5 * peaks.MB, 6 * peaks.MB)]):
            for phase, used_mb in ((None, 90), ("day", 10), ("day", 30), ("day", 20), ("burst", 25), (None, 99)):
                looks.phase, container.used_bytes = phase, lambda used_mb=used_mb: used_mb * peaks.MB
                looks.look(service)
        lines = peaks.table([{"slice": 1}, {"slice": 2, "peaks": list(looks.most.values())}], {"rails": 64})
        self.assertEqual(lines[4:-1], ["| rails | burst | 25.0 | 64 | 6.0 | 5.0 | 2 |", "| rails | day | 30.0 | 64 | 4.0 | 3.0 | 2 |"])
        self.assertEqual(peaks.table([{"slice": 1}], {}), [])

    def test_a_heap_is_asked_for_what_is_live(self):
        program = "import time; kept = [bytes(100000) for _ in range(300)]; print(flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                              env={**os.environ, "LD_PRELOAD": LIBRARY}) as running:
            running.stdout.readline()
            live_bytes, heap_bytes = peaks.of_heaps(SNUG, [running.pid, 1])
            running.kill()
        self.assertGreater(live_bytes, 29e6)
        self.assertGreater(heap_bytes, live_bytes)


class WhomTheKernelKilled(unittest.TestCase):
    def test_each_is_counted_once(self):
        container = FakeContainer()
        kills = Kills(container)
        self.assertIsNone(kills.look())
        kills.note_pressure(True)
        container.counted = 1
        self.assertIsNone(kills.look(), "it was the one that presses")
        kills.note_pressure(False)
        container.counted, container.pids = 3, [1, 4]
        self.assertRegex(kills.look(), "killed 2 of its processes.*last look: 2.*, 3")
        self.assertIsNone(kills.look())
        kills.note_pressure(True)  # by somebody else
        self.assertIsNone(kills.look())
        container.counted, container.pids = 4, [1]
        self.assertIn("killed 1 of its processes", kills.look(), "what presses did not end by the kernel, and excuses nothing")
        self.assertEqual((kills.of_pressure, kills.of_service, kills.pressures), (1, 3, 3))

    def start(self, script):
        group = containers.ControlGroup()
        if os.geteuid() != 0 or not group.works():
            self.skipTest("control groups with a memory limit need root")
        directory = Path(tempfile.mkdtemp(prefix="soak-test-"))
        self.addCleanup(shutil.rmtree, directory)
        container = group.start(self.id().rpartition(".")[2], [sys.executable, "-c", script], {}, 100 << 20, directory)
        self.addCleanup(self.remove, container)
        deadline = time.monotonic() + 30
        while "ready" not in container.log_path.read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        return container

    def remove(self, container):
        """Its processes may take a moment to leave the group."""
        container.stop()
        deadline = time.monotonic() + 30
        while (left := (container.group / "cgroup.procs").read_text().split()):
            self.assertLess(time.monotonic(), deadline, left)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        container.group.rmdir()

    def test_what_presses_goes_first(self):
        container = self.start("import time\nkept = b'x' * (50 << 20)\nprint('ready', flush=True)\ntime.sleep(60)")
        kills = Kills(container)
        kills.look()
        kills.note_pressure(run.press(container, share=1.5, seconds=1))
        self.assertIsNone(kills.look())
        self.assertEqual((kills.of_pressure, kills.of_service), (1, 0))
        self.assertTrue(container.running())

    def test_what_presses_gives_way(self):
        """To a service that grows by 60 % of the limit meanwhile, and keeps the container full while that does not."""
        container = self.start("import time\nkept = []\nprint('ready', flush=True)\ntime.sleep(1.5)\n"
                               "for _ in range(60):\n    kept.append(b'x' * (1 << 20))\n    time.sleep(0.05)\ntime.sleep(60)")
        kills = Kills(container)
        kills.look()
        used = []
        watcher = threading.Thread(target=lambda: used.extend(container.used_bytes() for _ in range(40) if not time.sleep(0.1)))
        watcher.start()
        kills.note_pressure(run.press(container, share=0.85, seconds=5))
        watcher.join()
        self.assertIsNone(kills.look())
        self.assertEqual((kills.of_pressure, kills.of_service, kills.pressures), (0, 0, 1))
        self.assertGreater(sum(number > 0.75 * container.limit_bytes() for number in used), 20, used)

    def test_a_process_of_the_service_is_named(self):
        """A worker that outgrows the limit, while the kernel kills what presses, too."""
        script = ("import os, signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nchild = os.fork()\n"
                  "if child == 0:\n    signal.sigwait([signal.SIGUSR1])\n    kept = [b'x' * (1 << 20) for _ in range(300)]\n"
                  "print('ready', child, flush=True)\nos.wait()\ntime.sleep(60)")
        container = self.start(script)
        child = int(container.log_path.read_text().split()[1])
        kills = Kills(container)
        kills.look()
        kills.note_pressure(run.press(container, share=1.5, seconds=0))
        os.kill(child, signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while container.kills() < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        said = kills.look()
        self.assertIn("killed 1 of its processes at its limit of 100 MiB", said)
        self.assertIn(f"{child} {sys.executable}", said)
        self.assertEqual((kills.of_pressure, kills.of_service), (1, 1))


if __name__ == "__main__":
    unittest.main()
