"""`python -m snug` and `snug`: the tool, with the library that lies beside it.

    python -m snug run celery -A app worker                under snug, and with its hooks
    python -m snug run --no-hooks celery -A app worker     without these; so does the variable SNUG_HOOKS=0
    python -m snug path                                    the library's path, for LD_PRELOAD
    python -m snug --help
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from snug import library_path, tool_path

OPTIONS_WITH_A_VALUE = ("--black-box",)
FORKING = ("celery", "gunicorn")
# Small objects lie in slabs then, which a worker leaves as they are; Python's own arenas have holes that it fills.
MALLOC = {"PYTHONMALLOC": "malloc"}
# uWSGI takes any option from a variable, too.
UWSGI = {"UWSGI_IMPORT": "snug.uwsgi"}
# What runs where applications were loaded, before workers are forked. With --lazy-apps that is in the workers, where there is
# nothing to share, and where since uWSGI 2.0.28 no thread holds Python's lock: the call would end them by a fault.
UWSGI_BEFORE_FORK = {"UWSGI_HOOK_POST_APP": "call:PyRun_SimpleString import snug.uwsgi as s; s.before_fork()"}
# Words in a configuration by which workers may load applications themselves, there or in a file that it names.
MAY_BE_LAZY = ("lazy", "emperor", "include", "inherit")


def main():
    """Becomes the tool. Returns an exit code only if that is impossible."""
    if sys.argv[1:] == ["path"]:
        print(library_path())
        return 0
    tool = tool_path()
    words, variables = with_hooks(sys.argv[1:])
    try:
        os.execve(tool, ["snug", *words], {**os.environ, **variables, "PATH": search_path()})
    except OSError as error:
        sys.stderr.write(f"snug: cannot run {tool}: {error.strerror}; it is for Linux on x86-64 or aarch64, as the wheel's "
                         f"name says, and this is {platform.system()} on {platform.machine()}\n")
        return 125


def with_hooks(words):
    """The words for the tool, and variables that switch hooks on in the servers that `run` starts."""
    if words[:1] != ["run"]:
        return words, {}
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] not in ("--", "--no-hooks"):
        place += 2 if words[place] in OPTIONS_WITH_A_VALUE else 1
    if words[place:place + 1] == ["--no-hooks"]:
        # For what the program starts, too, as long as it does not say otherwise.
        return words[:place] + words[place + 1:], {"SNUG_HOOKS": "0"}
    if os.environ.get("SNUG_HOOKS") == "0":
        return words, {}
    folder = str(Path(__file__).resolve().parent / "auto")
    found = os.environ.get("PYTHONPATH")
    return words, {"PYTHONPATH": os.pathsep.join([folder, found] if found else [folder]), **variables_of(words[place:])}


def variables_of(command):
    """The variables for a server by its name: `celery`, `python3 -m celery`. What is set stays as it is."""
    words = [os.path.basename(word) for word in command if word != "--"]
    name = words[2] if words[:1] and words[0].startswith("python") and words[1:2] == ["-m"] and len(words) > 2 else "".join(words[:1])
    wanted = MALLOC if name in FORKING else {}
    if name.startswith("uwsgi"):
        wanted = {**MALLOC, **UWSGI, **({} if may_be_lazy(command) else UWSGI_BEFORE_FORK)}
    return {variable: value for variable, value in wanted.items() if variable not in os.environ}


def may_be_lazy(command):
    """Whether uWSGI's workers may load applications themselves, by the command, the variables, and the files that these name."""
    words = [word.partition("=")[2] or word for word in command]
    words += [value for name, value in os.environ.items() if name.startswith("UWSGI_")]
    texts = [*command, *(name.lower() for name in os.environ if name.startswith("UWSGI_"))]
    for path in (word.partition(":")[0] for word in words):
        if path.endswith((".ini", ".xml", ".yaml", ".yml", ".json", ".conf", ".cfg")):
            try:
                texts.append(Path(path).read_text(encoding="utf-8", errors="replace"))
            except OSError:
                return True
    return any(word in text for text in texts for word in MAY_BE_LAZY)


def search_path():
    """PATH, with this interpreter's programs first if they were not in it: those of a virtual environment, activated or not."""
    own = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", os.defpath)
    return path if own in path.split(os.pathsep) else own + os.pathsep + path


if __name__ == "__main__":
    sys.exit(main())
