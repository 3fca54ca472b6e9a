"""What an allocator costs and holds where gigabytes are live: a hash map of strings (bench/hash_map.cpp), one run at a time,
under each setting of the kernel's huge pages. Those are of the whole machine: they are set for a run, and set back after
it, which needs root. Multi-size ones are written as 64kB=madvise: then pages of that size alone, and none of 2 MiB.

With --out the results are kept there, added to those that are there already, with a page about them.
"""

import argparse
import contextlib
import datetime
import fcntl
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

from .compare import TUNED
from .small_servers import ALLOCATORS, ROOT, environment_of

PROGRAM = ROOT / "bench/hash_map.cpp"
COUNTED = ROOT / "bench/counted_locks.c"
# As the Makefile compiles the library.
COUNTED_FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-fno-builtin-malloc",
                 "-U_FORTIFY_SOURCE", "-shared", "-nostdlib", "-Wl,-z,now,-z,nodelete,-z,relro")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
OPERATIONS_PER_GB = 600_000
IDLE_S = 3
GOAL_GB = 50  # for which the ticks are worked out


@dataclass
class Phase:
    """One line of hash_map's."""

    operations: int
    cpu_s: float
    faults: int
    resident_mb: float
    peak_mb: float
    longest_ms: float
    helpers_s: float

    def per_cpu_s(self):
        return self.operations / self.cpu_s if self.cpu_s else 0.0


@dataclass
class Run:
    allocator: str
    huge_pages: str
    gigabytes: float
    phases: dict  # by name: fill, work, idle
    load: float  # of the machine, over the minute before
    housekeeping: dict  # what counted_locks.c says; empty for other libraries


def sizes_offered():
    """Sizes in kB of the kernel's multi-size huge pages, without that of ordinary huge pages; none: it has only those."""
    whole = int((HUGE_PAGES / "hpage_pmd_size").read_text()) // 1024 if (HUGE_PAGES / "hpage_pmd_size").exists() else 0
    found = [int(path.name.removeprefix("hugepages-").removesuffix("kB")) for path in HUGE_PAGES.glob("hugepages-*kB")]
    return sorted(size for size in found if size != whole)


def files_of(setting):
    """What is written where for a setting: [(file, word)]."""
    size, multi, word = setting.partition("=")
    if word not in ("always", "madvise") if multi else setting not in ("always", "madvise", "never"):
        raise SystemExit(f"large_heap: huge pages are always, madvise, never, or as 64kB=madvise, not {setting}")
    if not multi:
        return [(HUGE_PAGES / "enabled", setting)]
    if int(size.removesuffix("kB")) not in sizes_offered():
        raise SystemExit(f"large_heap: this kernel has no huge pages of {size}; it has {sizes_offered()} kB")
    whole = HUGE_PAGES / f"hugepages-{int((HUGE_PAGES / 'hpage_pmd_size').read_text()) // 1024}kB"
    return [(whole / "enabled", "never"), (HUGE_PAGES / f"hugepages-{size}/enabled", word)]


def selected(text):
    """`always [madvise] never` is madvise."""
    return text.partition("[")[2].partition("]")[0]


@contextlib.contextmanager
def huge_pages(setting):
    """The kernel's setting meanwhile. It waits for another one of these: two would set back what the other had set."""
    with (HUGE_PAGES / "enabled").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        yield from set_meanwhile(setting)


def set_meanwhile(setting):
    before = []
    try:
        for file, word in files_of(setting):
            was = selected(file.read_text())
            if was != word:
                before.append((file, was))
                file.write_text(word)
        yield
    except PermissionError as refused:
        raise SystemExit(f"large_heap: {refused.filename} may not be written, which needs root; "
                         f"--huge-pages {selected((HUGE_PAGES / 'enabled').read_text())} leaves it as it is") from None
    finally:
        for file, word in reversed(before):
            file.write_text(word)


def compile_program(folder):
    program = Path(folder) / "hash_map"
    subprocess.run(["g++", "-O2", "-o", program, PROGRAM], check=True)
    return program


def compile_counted(library):
    """The library that counts."""
    subprocess.run(["gcc", *COUNTED_FLAGS, COUNTED, *sorted((ROOT / "core/shared").glob("*.c")), "-lgcc", "-o", library], check=True)


def phases_of(text):
    """{name: Phase} of what hash_map prints."""
    types = (int, float, int, float, float, float, float)
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: Phase(*(kind(word) for kind, word in zip(types, row[1:], strict=True))) for row in rows}


def run_one(program, spelling, setting, gigabytes, operations, label=None):
    command = ["setpriv", "--pdeathsig", "KILL", program, str(gigabytes * 1000), str(operations), str(IDLE_S)]
    load = os.getloadavg()[0]
    with huge_pages(setting):
        done = subprocess.run(command, env=environment_of(spelling), capture_output=True, text=True)
    if done.returncode != 0:
        print(f"large_heap: under {spelling} the program ended with {done.returncode}: {done.stderr}", file=sys.stderr)
        return None
    counts = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"locks"')]
    return Run(label or spelling, setting, gigabytes, phases_of(done.stdout), load, counts[0]["housekeeping"] if counts else {})


def kept_in(directory):
    """The runs that were kept there; none if there are none."""
    file = directory / "large_heap.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    return [Run(**row | {"phases": {name: Phase(**phase) for name, phase in row["phases"].items()}}) for row in rows]


def keep(runs, arguments):
    """Writes all runs and the page, after each run: they take long, and may be ended."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "large_heap.json").write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    (arguments.out / "README.md").write_text("\n".join(page_of(runs, arguments, machine_line())) + "\n")


def medians(runs):
    """{(huge pages, allocator): {name: median over the runs}}, in the order of the runs."""
    groups = {}
    for run in runs:
        groups.setdefault((run.huge_pages, run.allocator), []).append(run)
    return {key: {"fill_per_s": statistics.median(run.phases["fill"].per_cpu_s() for run in group),
                  "work_per_s": statistics.median(run.phases["work"].per_cpu_s() for run in group),
                  "fill_faults": statistics.median(run.phases["fill"].faults for run in group),
                  "work_faults": statistics.median(run.phases["work"].faults for run in group),
                  "longest_ms": statistics.median(run.phases["work"].longest_ms for run in group),
                  "peak_mb": statistics.median(run.phases["work"].peak_mb for run in group),
                  "idle_mb": statistics.median(run.phases["idle"].resident_mb for run in group)} for key, group in groups.items()}


def short(spelling):
    """An allocator's name for a table: files without their folders, jemalloc's usual tuning in one word."""
    return "jemalloc, tuned" if spelling == TUNED else spelling.rpartition("/")[2].replace("snug:SNUG=", "snug, ")


# Quantities of a row as the table has them: name, its unit in the table's, format, whether the least or the most is the best.
COLUMNS = (("fill_per_s", 1e-3, "{:.1f}", max), ("work_per_s", 1e-3, "{:.1f}", max), ("fill_faults", 1e-3, "{:.1f}", None),
           ("work_faults", 1e-3, "{:.1f}", None), ("longest_ms", 1, "{:.1f}", None), ("peak_mb", 1, "{:.0f}", min),
           ("idle_mb", 1, "{:.0f}", min))


def cells_of(runs):
    """{(huge pages, allocator): {name: its cell's text}} of the medians."""
    return {key: {name: pattern.format(row[name] * factor) for name, factor, pattern, _ in COLUMNS}
            for key, row in medians(runs).items()}


def table_of(runs):
    """Lines of Markdown, one per setting and allocator; the best of each setting is bold."""
    rows = cells_of(runs)
    yield ("| huge pages | allocator | fill, k/CPU s | work, k/CPU s | faults of fill, k | of work, k | longest of work, ms | peak, MB "
           "| at the end, MB |")
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for setting, group in itertools.groupby(rows, key=lambda key: key[0]):
        group = list(group)
        for key in group:
            cells = []
            for name, _, _, best in COLUMNS:
                text = rows[key][name]
                is_best = best is not None and len(group) > 1 and text == best((rows[other][name] for other in group), key=float)
                cells.append(f"**{text}**" if is_best else text)
            yield f"| {setting} | {short(key[1])} | {' | '.join(cells)} |"


def housekeeping_of(runs):
    """Lines about runs of the library that counts: the CPU time of ticks by the size of the heap, and of a larger one."""
    points = [(run.gigabytes, run.housekeeping) for run in runs if run.housekeeping]
    if not points:
        return
    yield "| live, GB | ticks | a tick, µs in the mean | the longest, µs | at 10 a second, of a core |"
    yield "|--:|--:|--:|--:|--:|"
    means = []
    for gigabytes, counts in points:
        mean_us = counts["cpu_ns"] / max(counts["times"], 1) / 1e3
        means.append((gigabytes, mean_us, counts["longest_ns"] / 1e3))
        yield f"| {gigabytes:g} | {counts['ticks']} | {mean_us:.0f} | {counts['longest_ns'] / 1e3:.0f} | {round(mean_us) * 10 / 1e4:.3f} % |"
    if len({gigabytes for gigabytes, *_ in means}) > 1:
        mean_us, longest_us = (line_at([(row[0], row[column]) for row in means], GOAL_GB) for column in (1, 2))
        yield f"| {GOAL_GB}, on the line through these | | {mean_us:.0f} | {longest_us:.0f} | {round(mean_us) * 10 / 1e4:.3f} % |"


def line_at(points, x):
    """The value at x of the line through points by least squares."""
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    return intercept + slope * x


def verdicts(runs):
    """Lines: the goals on each setting, snug against the best other allocator, of what the table shows (docs/decisions/0021).
    Of snug's rows the default counts."""
    rows = {key: {name: float(text) for name, text in cells.items()} for key, cells in cells_of(runs).items()}
    for setting in dict.fromkeys(key[0] for key in rows):
        peers = {key[1]: row for key, row in rows.items() if key[0] == setting and not key[1].startswith("snug")}
        for spelling in (key[1] for key in rows if key[0] == setting and key[1].startswith("snug")):
            if not peers:
                continue
            row, parts = rows[setting, spelling], []
            for quantity, what, best in (("fill_per_s", "fills per CPU second", max), ("work_per_s", "operations per CPU second", max),
                                         ("peak_mb", "peak", min), ("idle_mb", "memory at the end", min)):
                name = best(peers, key=lambda peer: peers[peer][quantity])
                parts.append(f"{what} {row[quantity] / peers[name][quantity]:.3f} of {short(name)}'s")
            yield from textwrap.wrap(f"- {setting}, {short(spelling)}: {'; '.join(parts)}.", 118, subsequent_indent="  ",
                                     break_on_hyphens=False)


def page_of(runs, arguments, machine):
    """The lines of README.md."""
    yield f"# Measured {arguments.day}: a large heap"
    yield ""
    yield from wrapped(
        f"`bench/large_heap --gigabytes {arguments.gigabytes:g} --rounds {arguments.rounds}`: a hash map of strings of 32 bytes to 16 KiB, "
        f"{arguments.gigabytes:g} GB of them with their nodes, is filled, then half of {arguments.operations:,} operations read a string "
        "and half replace one. k/CPU s: thousands of operations per second of CPU time, the allocator's threads and the kernel's work "
        f"for the process in it. Longest: of one operation, on the clock. The end: {IDLE_S} s of idleness later. 64kB=madvise: the "
        f"kernel's huge pages of that size, and none of 2 MiB. Medians, of {arguments.rounds} each. {machine} The load before a run: "
        f"{min(run.load for run in runs):.1f} to {max(run.load for run in runs):.1f}.")
    yield ""
    yield from table_of([run for run in runs if not run.housekeeping])
    yield ""
    yield "Against the best other allocator of the same setting (throughput: more is better; memory: less):"
    yield ""
    yield from verdicts([run for run in runs if not run.housekeeping])
    if any(run.housekeeping for run in runs):
        yield ""
        yield "## Ticks"
        yield ""
        yield "CPU time under the purge lock, of snug compiled with counters (`bench/counted_locks.c`), with the same program:"
        yield ""
        yield from housekeeping_of(runs)


def wrapped(text):
    """Lines of Markdown."""
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def machine_line():
    model = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown CPU")
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return (f"{model}, {os.cpu_count()} CPUs, {memory_gb:.0f} GB, Linux {os.uname().release}, which offers multi-size "
            f"huge pages of {', '.join(map(str, sizes_offered())) or 'no'} kB.")


def default_allocators():
    peers = [str(path) for path in sorted((ROOT / "build/peers").glob("lib*.so.*"))]
    there = [name for name, library in ALLOCATORS.items() if name != "snug" and (not library or Path(library).is_file())]
    return [*there, TUNED, *peers, "snug"]


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/large_heap", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/large_heap jemalloc snug snug:SNUG=thp:1 --huge-pages madvise,64kB=madvise")
    parser.add_argument("allocators", nargs="*", metavar="ALLOCATOR",
                        help="names or libraries, each with :VARIABLE=VALUE if wanted [all that there are]")
    parser.add_argument("--gigabytes", type=float, default=10, metavar="N", help="live, of 10^9 bytes [%(default)s]")
    parser.add_argument("--operations", type=int, metavar="N", help=f"after the fill [{OPERATIONS_PER_GB} per GB]")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each, interleaved [%(default)s]")
    parser.add_argument("--huge-pages", default="madvise,always", metavar="LIST", help="settings of the kernel [%(default)s]")
    parser.add_argument("--ticks", default="", metavar="LIST", help="heaps in GB, as 5,10, on which snug's ticks are measured, too")
    parser.add_argument("--quick", action="store_true", help="0.2 GB, and the setting that the kernel has")
    parser.add_argument("--out", type=Path, help="a directory for large_heap.json and README.md")
    arguments = parser.parse_args()
    arguments.day = datetime.date.today().isoformat()
    if arguments.quick:
        arguments.gigabytes = 0.2
        arguments.huge_pages = selected((HUGE_PAGES / "enabled").read_text())
    arguments.allocators = arguments.allocators or default_allocators()
    arguments.operations = arguments.operations or int(arguments.gigabytes * OPERATIONS_PER_GB)
    arguments.settings = arguments.huge_pages.split(",")
    for setting in arguments.settings:
        files_of(setting)
    for spelling in arguments.allocators:
        environment_of(spelling)
    return arguments


def runs_of(arguments, folder):
    """Does all runs. Yields each, as they end."""
    program, library = compile_program(folder), Path(folder) / "libsnug-counted.so"
    for _, setting in itertools.product(range(arguments.rounds), arguments.settings):
        for spelling in arguments.allocators:
            yield run_one(program, spelling, setting, arguments.gigabytes, arguments.operations)
    sizes = list(map(float, filter(None, arguments.ticks.split(","))))
    if sizes:
        compile_counted(library)
    for gigabytes in sizes:
        operations = int(gigabytes * OPERATIONS_PER_GB)
        yield run_one(program, str(library), arguments.settings[0], gigabytes, operations, "snug, counted")


def main():
    arguments = parse_arguments()
    if shutil.which("g++") is None:
        raise SystemExit("large_heap: g++ is missing; run: tools/install-deps bench")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the kernel's settings are set back
    runs, failed = kept_in(arguments.out) if arguments.out else [], False
    with tempfile.TemporaryDirectory(prefix="snug-large-") as folder:
        for run in runs_of(arguments, folder):
            failed |= run is None
            if run is None:
                continue
            runs.append(run)
            print(f"{run.huge_pages} {short(run.allocator)} {run.gigabytes:g} GB: fill {run.phases['fill'].cpu_s:.1f} s, work "
                  f"{run.phases['work'].cpu_s:.1f} s, {run.phases['idle'].resident_mb:.0f} MB", file=sys.stderr, flush=True)
            if arguments.out:
                keep(runs, arguments)
    print("\n".join(page_of(runs, arguments, machine_line())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
