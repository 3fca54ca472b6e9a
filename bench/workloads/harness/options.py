"""The command line that all drivers have in common."""

import argparse
import os
from pathlib import Path

BINDINGS = Path(__file__).resolve().parents[3] / "bindings"
# What bench/compare --hooks puts beside an allocator's settings: 1, or by_hand.
HOOKS_VARIABLE = "BENCH_HOOKS"
OURS, BY_HAND = "1", "by_hand"


def parser(name, description, unit, full_count, quick_count):
    """A parser with the common options; `unit` is what is counted: requests, jobs, tasks."""
    result = argparse.ArgumentParser(prog=name, description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    result.set_defaults(counts=(full_count, quick_count))
    result.add_argument("--quick", action="store_true", help="a short form, about 15 s")
    result.add_argument(f"--{unit}", type=positive, dest="count", metavar="N",
                        help=f"{unit} per burst ({full_count}; quick: {quick_count})")
    result.add_argument("--bursts", type=positive, default=1, metavar="N",
                        help="times that load and idle phase are repeated (1)")
    result.add_argument("--idle-seconds", type=float, metavar="S", help="quiet time after each burst (5; quick: 2)")
    result.add_argument("--hooks", nargs="?", const=OURS, choices=(OURS, BY_HAND), default=os.environ.get(HOOKS_VARIABLE, "0").strip("0"),
                        help=f"the server has the hooks of bindings/, whatever its allocator; by_hand: what people do without "
                             f"them, gc.freeze() or Process.warmup before the fork; also {HOOKS_VARIABLE}=1 or by_hand")
    result.add_argument("--seed", type=int, default=1, metavar="N", help="what the work is (1)")
    return result


def parse(filled_parser, words=None):
    """Parses words, the command line if there are none, and fills in what --quick decides."""
    arguments = filled_parser.parse_args(words)
    if arguments.count is None:
        arguments.count = arguments.counts[1 if arguments.quick else 0]
    if arguments.idle_seconds is None:
        arguments.idle_seconds = 2 if arguments.quick else 5
    return arguments


def hook_variables(arguments):
    """The variables that a server with hooks needs: where they are, and when it is idle, so that a short run has idle moments."""
    if not arguments.hooks:
        return {}
    if arguments.hooks == BY_HAND:
        return {"BENCH_BY_HAND": 1}
    return {"RUBYLIB": BINDINGS / "gem/lib", "PYTHONPATH": BINDINGS / "wheel", "PYTHONDONTWRITEBYTECODE": 1,
            "SNUG_IDLE_SECONDS": arguments.idle_seconds / 2}


def python_variables(arguments, *folders):
    """The same, with folders of modules."""
    hooks = hook_variables(arguments)
    found = [*folders, *([hooks["PYTHONPATH"]] if "PYTHONPATH" in hooks else [])]
    return {**hooks, "PYTHONPATH": ":".join(map(str, found)), "PYTHONDONTWRITEBYTECODE": 1}


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
