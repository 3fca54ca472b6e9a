"""Lists the workloads, or runs one.

  bench/workloads/run --list
  bench/workloads/run NAME [--quick] [options of the workload, see NAME --help]
"""

import os
import shlex
import sys

from . import catalog


def print_list():
    for workload in catalog.WORKLOADS:
        compare = ["build/snug", "compare", *workload.compare_options(), "--",
                   *(os.path.relpath(part, catalog.ROOT) if part.startswith("/") else part
                     for part in workload.command_line())]
        print(f"{workload.name}: {workload.summary}\n"
              f"    about {workload.full_seconds} s a run, {workload.quick_seconds} s with --quick\n"
              f"    {shlex.join(compare)}")


def main(arguments):
    if arguments == ["--list"]:
        print_list()
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__.strip()}\n\nNAME is one of: {catalog.names()}")
        return 0
    workload = catalog.find(arguments[0])
    if workload is None:
        print(f"run: no workload {arguments[0]!r}; there are: {catalog.names()}", file=sys.stderr)
        return 2
    command = workload.command_line(*arguments[1:])
    try:
        os.execv(command[0], command)
    except FileNotFoundError:
        print(f"run: the interpreter of {command[0]} is missing; run: tools/install-deps bench", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
