"""Plants leaks in programs, lets `snug leak` and `snug profile` look for them, and counts how often the guilty line is the
first that they name.

  bench/leaks/run --seeds 40                every kind of leak, 40 variations of each
  bench/leaks/run --kinds c_extension --seed 7 --keep DIRECTORY     one of them, whose program stays there

Status 0: in at least 95 % of each kind, less what chance allows so few; 1: not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import programs

ROOT = Path(__file__).resolve().parent.parent.parent
SNUG = ROOT / "build/snug"
LIBRARY = ROOT / "build/libsnug.so"
WANTED = 0.95
WATCH_S = {"leak": 30, "profile": 10}
SIDE_BY_SIDE = 6  # most of the time each waits


@dataclass
class Result:
    """What one tool said of one variation."""

    kind: str
    seed: int
    tool: str
    found: bool
    said: str
    verdict: str = ""
    shares: list = field(default_factory=list)


def telling(frames):
    """The innermost frame with a line, or else the innermost: what the tool's texts show of a stack."""
    return next((frame for frame in frames if frame["line"]), frames[0] if frames else None)


def is_guilty(frame, planted):
    """Whether the frame is the planted line."""
    return (frame is not None and frame["function"].split("#")[-1] == planted.function and frame["line"] in planted.lines
            and os.path.basename(frame["file"]) == os.path.basename(planted.file))


def shown(frame):
    """A frame in a few letters."""
    return f"{frame['function']}:{frame['line']}" if frame else "nothing"


def by_line(sites):
    """Bytes of each telling frame, the most first: pairs of (frame, bytes)."""
    lines = {}
    for site in sites:
        frame = telling(site["frames"])
        key = (frame["function"], frame["file"], frame["line"])
        lines.setdefault(key, [frame, 0])[1] += site["bytes"]
    return sorted(lines.values(), key=lambda line: -line[1])


def first_lines(answer, tool):
    """What the tool names, as pairs of (frame, share of all), the first first."""
    lines = [(line["line"], line["bytes_per_s"]) for line in answer["lines"]] if tool == "leak" else by_line(answer["sites"])
    total = sum(size for _, size in lines) or 1
    return [(frame, size / total) for frame, size in lines]


def look(tool, process, pid, watch_s):
    """The tool's answer about the running program."""
    command = [SNUG, tool, "--json", "--for", f"{watch_s}s"]
    command += ["--interval", "50ms", str(process.pid)] if tool == "leak" else ["--view", "kept", "--mean-bytes", "65536", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120 + 5 * watch_s)
    if done.returncode != 0:
        raise RuntimeError(f"snug {tool} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def measure(kind, seed, tool, folder, watch_s):
    """Plants one leak, and lets one tool look for it."""
    variation = programs.draw(kind, seed, watch_s)
    planted = programs.plant(variation, folder)
    environment = {name: value for name, value in os.environ.items() if name not in ("SNUG", "LD_PRELOAD")}
    environment |= planted.environment | {"LD_PRELOAD": str(LIBRARY)}
    process = subprocess.Popen(planted.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    try:
        pid = int(process.stdout.readline().split()[1])
        answer = look(tool, process, pid, watch_s)
    finally:
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()
    lines = first_lines(answer, tool)
    first = lines[0][0] if lines else None
    shares = [(shown(frame), round(share, 2)) for frame, share in lines[:4]]
    return Result(kind, seed, tool, is_guilty(first, planted), shown(first), answer.get("verdict", ""), shares)


def fewest(trials):
    """The number that must be found, of this many: 95 %, less two standard deviations, so that chance seldom fails a right tool."""
    return WANTED * trials - 2 * (WANTED * (1 - WANTED) * trials) ** 0.5


def run(kinds, seeds, tools, watch_s=None, keep=None, report=print):
    """Results of all variations; each is told as it comes."""
    lock = threading.Lock()

    def one(work):
        kind, seed, tool = work
        with tempfile.TemporaryDirectory(prefix="snug-leaks-") as scratch:
            folder = scratch
            if keep:
                folder = Path(keep) / f"{kind}-{seed}-{tool}"
                folder.mkdir(parents=True, exist_ok=True)
            result = measure(kind, seed, tool, folder, watch_s or WATCH_S[tool])
        with lock:
            if not result.found:
                report(f"missed: {kind} {seed}, {tool}: {result.said} first; {result.verdict} {result.shares}")
        return result

    work = [(kind, seed, tool) for seed in seeds for kind in kinds for tool in tools]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(one, work))


def table(results):
    """Lines of text: found of all, by kind and tool."""
    tools = sorted({result.tool for result in results})
    lines = [f"{'found first':16}" + "".join(f"{tool:>16}" for tool in tools)]
    for kind in dict.fromkeys(result.kind for result in results):
        row = f"{kind:16}"
        for tool in tools:
            those = [result.found for result in results if (result.kind, result.tool) == (kind, tool)]
            row += f"{f'{sum(those)} of {len(those)}':>16}"
        lines.append(row)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="variations of each kind")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--kinds", default=",".join(programs.KINDS), help="separated by commas")
    parser.add_argument("--tools", default="leak,profile", help="separated by commas")
    parser.add_argument("--watch-s", type=float, help="seconds to watch")
    parser.add_argument("--keep", help="leave the programs in this directory")
    arguments = parser.parse_args()
    seeds = [arguments.seed] if arguments.seed is not None else range(arguments.seeds)
    results = run(arguments.kinds.split(","), seeds, arguments.tools.split(","), arguments.watch_s, arguments.keep)
    print("\n".join(table(results)))
    failed = False
    for kind, tool in dict.fromkeys((result.kind, result.tool) for result in results):
        those = [result.found for result in results if (result.kind, result.tool) == (kind, tool)]
        failed |= sum(those) < fewest(len(those))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
