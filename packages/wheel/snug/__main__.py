"""`python -m snug` and `snug`: the tool, with the library that lies beside it.

    python -m snug run celery -A app worker
    python -m snug path                        the library's path, for LD_PRELOAD
    python -m snug --help
"""

import os
import platform
import sys
import sysconfig

from snug import library_path, tool_path


def main():
    """Becomes the tool. Returns an exit code only if that is impossible."""
    if sys.argv[1:] == ["path"]:
        print(library_path())
        return 0
    tool = tool_path()
    try:
        os.execve(tool, ["snug", *sys.argv[1:]], {**os.environ, "PATH": search_path()})
    except OSError as error:
        sys.stderr.write(f"snug: cannot run {tool}: {error.strerror}; it is for Linux on x86-64 or aarch64, as the wheel's "
                         f"name says, and this is {platform.system()} on {platform.machine()}\n")
        return 125


def search_path():
    """PATH, with this interpreter's programs first if they were not in it: those of a virtual environment, activated or not."""
    own = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", os.defpath)
    return path if own in path.split(os.pathsep) else own + os.pathsep + path


if __name__ == "__main__":
    sys.exit(main())
