"""How threads scale, as far as a machine with few CPUs can say: what a lock of the core and a line that moves between CPUs
cost (bench/lock_costs.c), how often an operation takes each lock, and for how long (bench/counted_locks.c under
bench/patterns.c and a recorded server), and from these a model of more CPUs. Peers are measured as far as there are CPUs.

With --out the results are kept there, with a page about them.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .large_heap import compile_counted, default_allocators, short
from .small_servers import ROOT, environment_of

PATTERNS = ("own", "handed", "batches")
TRACE = ROOT / "bench/traces/small/ruby.trace"
CPUS = (1, 2, 4, 8, 16, 32, 64)
# The share of the most frequent class (896 to 1,024) in the requests of bench/patterns.c, 16 to 1,008 bytes and all as likely.
HOTTEST_CLASS = 0.13
GLOBAL_LOCKS = ("records", "pages", "large", "map")  # one each; those of classes are one per class and arena
FAR = 3  # a line from another socket or another group of cores costs so much more than here: an assumption


@dataclass(frozen=True)
class Lock:
    """A lock as an operation meets it."""

    visits: float  # per operation
    held_ns: float  # where the lines are in the CPU's own cache
    moved_ns: float  # besides, where another CPU had the lock last


def throughput(think_ns, stations, threads):
    """Operations per ns of a closed network: `threads` customers, a delay of think_ns, and stations [(visits, service in ns)].
    Mean value analysis, which is exact for exponential service times (Reiser and Lavenberg, 1980)."""
    queues, rate = [0.0] * len(stations), 0.0
    for count in range(1, threads + 1):
        waits = [visits * service * (1 + queue) for (visits, service), queue in zip(stations, queues, strict=True)]
        rate = count / (think_ns + sum(waits))
        queues = [rate * wait for wait in waits]
    return rate


def stations_of(locks, threads, arenas, far):
    """The stations that threads meet. A line moves if another CPU had it last, which is as likely as that another thread of
    the same arena comes: all, for a lock of which there is one."""
    stations = []
    for name, lock in locks.items():
        sharing = threads if name in GLOBAL_LOCKS else max(threads / arenas, 1)
        service = lock.held_ns + lock.moved_ns * far * (sharing - 1) / sharing
        if name in GLOBAL_LOCKS:
            stations.append((lock.visits, service))
        else:  # all arenas are visited alike; a class's share is that of the most frequent one, and the rest of them alike
            classes = round(1 / HOTTEST_CLASS)
            stations += [(lock.visits / arenas / classes, service)] * (arenas * classes)
    return stations


def speedups(cpu_ns, locks, arenas_of, far):
    """{CPUs: throughput of as many threads over that of one}. cpu_ns is what an operation costs, its locks in it."""
    think_ns = max(cpu_ns - sum(lock.visits * lock.held_ns for lock in locks.values()), 0)
    one = throughput(think_ns, stations_of(locks, 1, 1, 1), 1)
    return {cpus: throughput(think_ns, stations_of(locks, cpus, arenas_of(cpus), far), cpus) / one for cpus in CPUS}


def saturated_by(cpu_ns, locks, far):
    """(lock, CPUs from which it is always held) of the lock of which there is one that is busiest."""
    busiest = max((name for name in locks if name in GLOBAL_LOCKS), key=lambda name: locks[name].visits * (locks[name].held_ns + locks[name].moved_ns),
                  default=None)
    demand = locks[busiest].visits * (locks[busiest].held_ns + locks[busiest].moved_ns * far) if busiest else 0
    return (busiest, cpu_ns / demand) if demand else (None, float("inf"))


def counts_of(stderr):
    return next(json.loads(line) for line in stderr.splitlines() if line.startswith('{"locks"'))


def locks_of(counts, operations, costs):
    """{name: Lock} of what counted_locks.c counted. Of a lock that another CPU had last its own line moves, and two that it
    guards: the head of a list and what is in it."""
    found = {}
    for name, (taken, _, held_ticks, noted) in counts["locks"].items():
        if taken and name not in ("janitor", "purge", "profile"):
            held_ns = held_ticks / noted / costs["ticks_per_ns"] if noted else 0.0
            found[name] = Lock(taken / operations, held_ns + costs["pair_ns"], 3 * costs["line_ns"])
    return found


def measure_costs(program, bursts):
    done = subprocess.run([program, str(bursts)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure_pattern(program, pattern, threads, operations, spelling, variables=None):
    """(wall ns, CPU ns) per operation, and what the library said at its end."""
    command = ["setpriv", "--pdeathsig", "KILL", program, pattern, str(threads), str(operations)]
    done = subprocess.run(command, env=environment_of(spelling) | (variables or {}), capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr
    return tuple(map(float, done.stdout.split())), done.stderr


def measure_trace(library):
    """CPU ns per operation of the recorded server, one thread at a time as it was recorded, and the counts."""
    command = [ROOT / "build/snug-replay", "--speed", "max", "--touch", "first", "--samples", "2", "--idle", "0", "--json", "-", TRACE]
    done = subprocess.run(command, env=environment_of(str(library)), capture_output=True, text=True, check=True)
    return json.loads(done.stdout), counts_of(done.stderr)


def compile_all(folder):
    flags = ["-O2", "-U_FORTIFY_SOURCE", "-fno-builtin-malloc", "-fno-builtin-free", "-pthread"]
    costs, patterns, library = (Path(folder) / name for name in ("lock_costs", "patterns", "libsnug-counted.so"))
    shared = sorted((ROOT / "core/shared").glob("*.c"))
    subprocess.run(["gcc", "-std=gnu11", *flags, ROOT / "bench/lock_costs.c", *shared, "-o", costs], check=True)
    subprocess.run(["gcc", *flags, ROOT / "bench/patterns.c", "-o", patterns], check=True)
    compile_counted(library)
    return costs, patterns, library


def best_of(rounds, *arguments):
    """The least wall and CPU time of several measurements of a pattern; None if one failed."""
    results = [measure_pattern(*arguments)[0] for _ in range(rounds)]
    return None if any(result is None for result in results) else tuple(min(column) for column in zip(*results, strict=True))


def measure(arguments):
    """All numbers, for JSON."""
    with tempfile.TemporaryDirectory(prefix="snug-scaling-") as folder:
        costs_program, patterns, library = compile_all(folder)
        results = {"load_before": os.getloadavg()[0], "cpus": len(os.sched_getaffinity(0)), "rounds": arguments.rounds}
        several = [measure_costs(costs_program, arguments.bursts) for _ in range(arguments.rounds)]
        results["costs"] = least_costs(several)
        results["counts"], results["peers"] = {}, {}
        for pattern in PATTERNS:
            for threads, arenas in ((1, 0), (2, 1), (2, 0), (8, 1), (8, 0)):
                _, stderr = measure_pattern(patterns, pattern, threads, arguments.operations, str(library), {"SNUG": f"arenas_max:{arenas}"})
                results["counts"][f"{pattern} {threads} {arenas}"] = counts_of(stderr) | {"operations": arguments.operations * threads}
        for pattern in PATTERNS:
            for spelling in arguments.allocators:
                for threads in (1, 2, 8):
                    results["peers"][f"{pattern} {threads} {short(spelling)}"] = best_of(
                        arguments.rounds, patterns, pattern, threads, arguments.operations, spelling)
        if (ROOT / "build/snug-replay").exists():
            replayed, counts = measure_trace(library)
            results["trace"] = {"replayed": replayed, "counts": counts}
        results["load_after"] = os.getloadavg()[0]
        return results


def least_costs(several):
    """The least of several measurements of lock_costs, which anything beside it only makes longer."""
    costs = {name: min(one[name] for one in several) for name in ("pair_ns", "line_ns")}
    costs["ticks_per_ns"] = statistics.median(one["ticks_per_ns"] for one in several)
    costs["taken"] = [rows[0] | {name: min(row[name] for row in rows) for name in ("alone_ns", "of_two_ns")}
                      for rows in zip(*(one["taken"] for one in several), strict=True)]
    return costs


def checked_model(costs):
    """What the model says of two threads at one lock, beside what was measured: [(row, measured, said)], ns per turn."""
    found = []
    for row in costs["taken"]:
        think_ns = max(row["alone_ns"] - costs["pair_ns"], 0)
        service_ns = costs["pair_ns"] + (1 + row["lines"]) * costs["line_ns"] / 2
        found.append((row, row["of_two_ns"], 2 / throughput(think_ns, [(1, service_ns)], 2)))
    return found


def page_of(results, arguments):
    """The lines of README.md."""
    costs = results["costs"]
    yield f"# Measured {arguments.day}: what threads share"
    yield ""
    yield f"`bench/scaling`: {results['cpus']} CPUs, load {results['load_before']:.1f} before and {results['load_after']:.1f} after, the least of"
    yield f"{results['rounds']} runs where one number is said. What follows from it is docs/decisions/0045."
    yield ""
    yield f"A lock of the core taken and given by one thread: {costs['pair_ns']:.1f} ns. A line that another CPU has changed, one way:"
    yield f"{costs['line_ns']:.0f} ns. Two threads at one lock, ns per turn of either, and what the model says (a lock's line and those"
    yield "changed under it move every second time):"
    yield ""
    yield "| work between turns, ns | lines changed | alone | of two | model |"
    yield "|--:|--:|--:|--:|--:|"
    for row, measured, said in checked_model(costs):
        yield f"| {row['work_ns']} | {row['lines']} | {row['alone_ns']:.0f} | {measured:.0f} | {said:.0f} |"
    yield from page_of_counts(results)
    yield from page_of_peers(results)
    yield from page_of_model(results)


def page_of_counts(results):
    ticks = results["costs"]["ticks_per_ns"]
    yield ""
    yield "## Locks per operation"
    yield ""
    yield "An operation is a malloc and a free. Times a thousand operations each lock was taken, in parentheses how often of a"
    yield "thousand times another thread had it; ns for which it was held, with what noting that costs. arenas_max as said, 0: free."
    yield ""
    yield "| pattern | threads | arenas_max | arenas | class | held | records | pages | held |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    rows = [(*name.split(), counts) for name, counts in results["counts"].items()]
    if "trace" in results:
        rows.append(("a Ruby server", "4", "0", results["trace"]["counts"] | {"operations": operations_of(results["trace"]["replayed"])}))
    for pattern, threads, arenas, counts in rows:
        cells = {name: lock_cells(counts, name, ticks) for name in ("class", "records", "pages")}
        yield (f"| {pattern} | {threads} | {arenas} | {counts['arenas']} | {cells['class'][0]} | {cells['class'][1]} | {cells['records'][0]} "
               f"| {cells['pages'][0]} | {cells['pages'][1]} |")


def lock_cells(counts, name, ticks_per_ns):
    taken, contended, held_ticks, noted = counts["locks"][name]
    return (f"{taken * 1e3 / counts['operations']:.2f} ({contended * 1e3 / max(taken, 1):.1f})",
            f"{held_ticks / max(noted, 1) / ticks_per_ns:.0f}")


def operations_of(replayed):
    """Pairs of calls that a replay did."""
    return replayed["calls"] / 2


def page_of_peers(results):
    yield ""
    yield "## Threads, measured"
    yield ""
    yield "ns per operation on the clock, all threads together: half as many with two threads is twice the throughput."
    yield ""
    names = list(dict.fromkeys(key.split(" ", 2)[2] for key in results["peers"]))
    columns = [(pattern, threads) for pattern in PATTERNS for threads in (1, 2, 8)]
    yield f"| allocator | {' | '.join(f'{pattern}, {threads}' for pattern, threads in columns)} |"
    yield f"|---|{'--:|' * len(columns)}"
    for name in names:
        values = [results["peers"][f"{pattern} {threads} {name}"] for pattern, threads in columns]
        yield f"| {name} | {' | '.join('failed' if value is None else f'{value[0]:.1f}' for value in values)} |"


def page_of_model(results):
    yield ""
    yield "## Model"
    yield ""
    yield "Throughput of N threads on N CPUs over that of one. Each row has the counts of two threads, so many arenas, and lines"
    yield f"that cost what they cost here, or {FAR} times as much."
    yield ""
    yield f"| pattern | arenas | lines | {' | '.join(map(str, CPUS))} | first lock that is always held | from CPUs |"
    yield f"|---|---|--:|{'--:|' * len(CPUS)}---|--:|"
    for pattern in PATTERNS:
        wall_cpu = results["peers"].get(f"{pattern} 2 snug")
        if wall_cpu is None:
            continue
        for arenas, arenas_of in (("1", lambda _: 1), ("as many as CPUs", lambda cpus: min(cpus, 60))):
            counts = results["counts"][f"{pattern} 2 {1 if arenas == '1' else 0}"]
            locks = locks_of(counts, counts["operations"], results["costs"])
            for far in (1, FAR):
                rises = speedups(wall_cpu[1], locks, arenas_of, far)
                name, cpus = saturated_by(wall_cpu[1], locks, far)
                yield (f"| {pattern} | {arenas} | {far} | {' | '.join(f'{rises[count]:.1f}' for count in CPUS)} | {name or 'none'} "
                       f"| {cpus:.0f} |")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Example: bench/scaling glibc jemalloc snug --rounds 5")
    parser.add_argument("allocators", nargs="*", metavar="ALLOCATOR", help="for the patterns [all that there are]")
    parser.add_argument("--operations", type=int, default=3_000_000, metavar="N", help="of each thread [%(default)s]")
    parser.add_argument("--bursts", type=int, default=300, metavar="N", help="of 200 turns at a lock [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of which the least counts [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="a round with 50,000 operations and one burst")
    parser.add_argument("--out", type=Path, help="a directory for scaling.json and README.md")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.operations, arguments.bursts, arguments.rounds = 50_000, 1, 1
    arguments.allocators = arguments.allocators or default_allocators()
    arguments.day = datetime.date.today().isoformat()
    return arguments


def main():
    arguments = parse_arguments()
    results = measure(arguments)
    page = list(page_of(results, arguments))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "scaling.json").write_text(json.dumps(results, indent=1) + "\n")
        (arguments.out / "README.md").write_text("\n".join(page) + "\n")
    print("\n".join(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
