"""The process in which one program is driven and checked. See `run` for why it is a process of its own."""

import fnmatch
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
import catalog
import library
import processes
from ports import free_port

ALLOCATION_SYMBOLS = {"malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "memalign",
                      "malloc_usable_size", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm"}
BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\w+)'")
LOG_PIECE_BYTES = 100_000
CORE_MAX_BYTES = 4 << 30
DROPPED_VARIABLES = ("LD_", "MALLOC_", "PYTHON", "RUBY", "GEM_", "PERL", "JAVA", "NODE_", "GIT_", "PG", "SNUG")


class Failure(Exception):
    """The program did not do what it should; the text says what, in a sentence."""


class Skip(Exception):
    """The program cannot be driven here; the text says why."""


class TimeLimit(Exception):
    pass


class Result:
    """How a command ended."""

    def __init__(self, argv, status, stdout, stderr, seconds):
        self.argv = argv
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds

    def ending(self):
        """The exit status in words."""
        if self.status < 0:
            return f"was killed by {signal.Signals(-self.status).name}"
        if self.status > 128 and self.status - 128 in set(signal.Signals):
            return f"ended with status {self.status} ({signal.Signals(self.status - 128).name} in a child)"
        return f"ended with status {self.status}"


class Test:
    """What a program's function gets: run commands under the library, check, note.

    Everything that is started belongs to this process's tree and is ended with it.
    """

    def __init__(self, program, arguments):
        self.program = program
        self.quick = arguments.quick
        self.library = None if arguments.lib == "none" else arguments.lib
        self.logs = pathlib.Path(arguments.logs) / program.name
        self.scripts = pathlib.Path(__file__).resolve().parent / "scripts"
        self.folder = pathlib.Path(arguments.scratch) / program.name
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.notes = []
        self._log = open(self.logs / "log", "w", errors="replace")

    # --- commands ---------------------------------------------------------------------------------------------

    def environment(self, preload=True, extra=None):
        """The environment of a command: the caller's without what changes programs, plus the library unless off."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED_VARIABLES)}
        environment["PATH"] = catalog.SYSTEM_PATH
        environment["HOME"] = str(self.folder)
        environment["TMPDIR"] = str(self.folder)
        environment["LC_ALL"] = "C.UTF-8"
        if preload and self.library:
            environment["LD_PRELOAD"] = self.library
        environment.update(extra or {})
        return environment

    def run(self, argv, *, stdin=None, env=None, preload=True, statuses=(0,), user=None, folder=None, limit_s=None):
        """Runs a command to its end and returns a Result. A status that is not in statuses (None: any) is a Failure."""
        argv = [str(part) for part in argv]
        started = time.monotonic()
        process = subprocess.Popen(
            argv, env=self.environment(preload, env), cwd=folder or self.folder, text=True, errors="replace",
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **self._as_user(user))
        try:
            stdout, stderr = process.communicate(stdin, timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.report_hang()
            raise Failure(f"`{self._short(argv)}` did not end within {limit_s} s") from None
        result = Result(argv, process.returncode, stdout, stderr, time.monotonic() - started)
        self._log_result(result, preload)
        if statuses is not None and result.status not in statuses:
            last_line = (stderr.strip() or stdout.strip() or "no output").splitlines()[-1]
            raise Failure(f"`{self._short(argv)}` {result.ending()}: {last_line[:200]}")
        return result

    def start(self, argv, *, env=None, preload=True, user=None, folder=None, name=None):
        """Starts a server in the background; its output goes to NAME.log in the logs folder. Returns the Popen."""
        argv = [str(part) for part in argv]
        path = self.logs / f"{name or os.path.basename(argv[0])}.log"
        self.log(f"$ {' '.join(argv)} &  (output in {path.name})")
        with open(path, "ab") as output:
            return subprocess.Popen(argv, env=self.environment(preload, env), cwd=folder or self.folder,
                                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, **self._as_user(user))

    def stop(self, process, how=signal.SIGTERM, statuses=(0,), limit_s=30):
        """Ends a server by signal and checks the status it leaves with."""
        process.send_signal(how)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.report_hang()
            raise Failure(f"`{self._short(process.args)}` did not end {limit_s} s after {how.name}") from None
        if process.returncode not in statuses:
            ending = Result(process.args, process.returncode, "", "", 0).ending()
            raise Failure(f"`{self._short(process.args)}` {ending} after {how.name}")

    def wait_for(self, condition, what, limit_s=30):
        """Polls until condition() is true. It may raise Failure while things are still coming up."""
        deadline, reason = time.monotonic() + limit_s, ""
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except Failure as failure:
                reason = f": {failure}"
            time.sleep(0.1)
        self.report_hang()
        raise Failure(f"{what}: not within {limit_s} s{reason}")

    free_port = staticmethod(free_port)

    def accepts(self, port):
        """True if something listens on this port of 127.0.0.1."""
        with socket.socket() as probe:
            probe.settimeout(5)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def pids(self, name, *, user=None):
        """The processes below this one that have this name (/proc/PID/comm, a pattern) and belong to this user."""
        wanted = None if user is None else pwd.getpwnam(user).pw_uid
        found = []
        for pid in processes.descendants(os.getpid()):
            matches = fnmatch.fnmatch(processes.read(pid, "comm").decode(errors="replace").strip(), name)
            owner = re.search(rb"^Uid:\t(\d+)", processes.read(pid, "status"), re.M)
            if matches and owner and wanted in (None, int(owner.group(1))):
                found.append(pid)
        return found

    def same_as_plain(self, argv, **options):
        """Runs a command with and without the library; what it prints must not differ. Returns the Result."""
        result = self.run(argv, **options)
        plain = self.run(argv, preload=False, **options)
        if result.stdout != plain.stdout:
            lines = zip(result.stdout.splitlines() + [""], plain.stdout.splitlines() + [""], strict=False)
            different = next(((ours, theirs) for ours, theirs in lines if ours != theirs), ("", ""))
            raise Failure(f"`{self._short(result.argv)}` prints {different[0][:80]!r} under the library "
                          f"and {different[1][:80]!r} without")
        return result

    def _as_user(self, user):
        """Popen arguments to run as another user; only root can, everyone else runs all as himself."""
        if user is None or os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam(user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    # --- checks -----------------------------------------------------------------------------------------------

    def expect(self, condition, message):
        if not condition:
            raise Failure(message)

    def skip(self, why):
        raise Skip(why)

    def expect_serves(self, pids, what):
        """There must be such processes, and the library must answer the malloc of each that still lives."""
        self.expect(pids, f"no process {what} was found")
        if not self.library:
            return
        served = {pid: processes.serves(pid, self.library) for pid in pids}
        for pid, answer in served.items():
            self.expect(answer is not False, f"{what}, process {pid}: the library does not serve its malloc")
        self.expect(any(served.values()), f"{what}: the process ended while it was looked at")

    def note(self, text):
        """Adds a line to the program's row in the table."""
        self.notes.append(text)

    def prove_binding(self, argv):
        """Asks the dynamic loader to which library each allocation function of a program is bound."""
        trace = self.folder / "bindings"
        trace.mkdir()
        trace.chmod(0o777)
        snug = library.is_snug(self.library)
        result = self.run(argv, env={"LD_DEBUG": "bindings", "LD_BIND_NOW": "1", "LD_DEBUG_OUTPUT": str(trace / "pid"),
                                     **({"SNUG": "verbose:1"} if snug else {})})
        targets = {}  # (file, symbol) -> files that this symbol of it is bound to
        for path in trace.iterdir():
            for user, target, symbol in BINDING.findall(path.read_text(errors="replace")):
                if symbol in ALLOCATION_SYMBOLS and user != self.library:
                    targets.setdefault((user, symbol), set()).add(target)
        for (user, symbol), files in targets.items():
            for target in files - {self.library}:
                # A program that is not position-independent stands in for functions whose address it takes, and
                # jumps on from there: then where it jumps counts.
                self.expect(targets.get((target, symbol), set()) - {target} == {self.library},
                            f"{argv[0]}: {symbol} of {user} is bound to {target}")
        shutil.rmtree(trace)
        self.expect(targets, f"{argv[0]}: no allocation function is bound to the library")
        self.expect(not snug or re.search(r"^snug: \S+ active in ", result.stderr, re.M),
                    f"{argv[0]}: SNUG=verbose:1 does not say that snug is active")

    # --- log --------------------------------------------------------------------------------------------------

    def log(self, text):
        print(text, file=self._log, flush=True)

    def _log_result(self, result, preload):
        self.log(f"$ {' '.join(result.argv)}{'' if preload else '   (no preload)'}")
        for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if len(text) > 2 * LOG_PIECE_BYTES:
                text = f"{text[:LOG_PIECE_BYTES]}\n[... {len(text)} characters ...]\n{text[-LOG_PIECE_BYTES:]}"
            if text.strip():
                self.log(f"--- {name}\n{text.rstrip()}")
        self.log(f"--- {result.ending()} after {result.seconds:.1f} s\n")

    def report_hang(self):
        """Writes into the log what each process of the tree is doing: with gdb, its stacks."""
        for pid in processes.descendants(os.getpid()):
            state = processes.read(pid, "wchan").decode() or "?"
            self.log(f"hang: process {pid}, waits in {state}: {processes.command_line(pid)}")
        if not shutil.which("gdb"):
            self.log("hang: install gdb to get stacks here")
            return
        for pid in processes.descendants(os.getpid())[:8]:
            try:
                stacks = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 30"],
                                        capture_output=True, text=True, errors="replace", timeout=20)
                self.log(f"hang: stacks of process {pid}\n{stacks.stdout}")
            except subprocess.TimeoutExpired:
                self.log(f"hang: gdb could not attach to process {pid}")

    def report_cores(self):
        """Writes the stacks of processes that crashed into the log, as far as the system left core files for them."""
        for core in [path for path in self.folder.rglob("core*") if is_core(path)]:
            if not shutil.which("gdb"):
                self.log("crash: a process left a core file; install gdb to get its stacks here")
                return
            told = subprocess.run(["gdb", "-batch", "-c", core, "-ex", "info proc exe"], capture_output=True, text=True,
                                  errors="replace").stdout
            command = re.search(r"^exe = '(\S+)(.*)'", told, re.M)
            executable = command and shutil.which(command.group(1), path=catalog.SYSTEM_PATH)
            stacks = subprocess.run(["gdb", "-batch", *([executable] if executable else []), "-c", core,
                                     "-ex", "backtrace 40", "-ex", "x/6i $pc", "-ex", "info registers",
                                     "-ex", "thread apply all backtrace 12"], capture_output=True, text=True,
                                    errors="replace")
            self.log(f"crash: core of {command.group(0) if command else 'a process'}\n{stacks.stdout}{stacks.stderr}")

    @staticmethod
    def _short(argv):
        line = " ".join(str(part) for part in argv)
        return line if len(line) <= 90 else f"{line[:87]}..."


def is_core(path):
    """True for an ELF core file (type 4)."""
    try:
        with open(path, "rb") as file:
            header = file.read(18)
    except OSError:
        return False
    return header[:4] == b"\x7fELF" and header[16:18] in (b"\4\0", b"\0\4")


def check_presence(test, watcher):
    """The program's processes must have been seen with the library, and none without."""
    for image in watcher.without_library():
        raise Failure(f"process {image.pid} ran without the library: {image.command_line[:120]}")
    names = watcher.mapped_names()
    for pattern in test.program.watches:
        if not fnmatch.filter(names, pattern):
            raise Failure(f"no process {pattern} was seen with the library mapped; seen: {', '.join(set(names))}")


def check_messages(test):
    """A supervisor may hide the death of a child; the library's own last words are still in some log."""
    for path in sorted(test.logs.iterdir()):
        found = re.search(r"snug: (fatal|warning): .*", path.read_text(errors="replace"))
        if found:
            raise Failure(f"{path.name} has: {found.group(0)[:200]}")


def drive(test, watcher):
    """Runs the program's function with its checks. Returns (verdict, notes)."""
    try:
        if test.library:
            for command in test.program.proves:
                test.prove_binding(command.split())
        test.program.function(test)
        if watcher:
            check_presence(test, watcher)
        check_messages(test)
        return "passed", test.notes
    except Skip as reason:
        return "skipped", [str(reason)]
    except Failure as failure:
        test.report_cores()
        return "FAILED", [str(failure)] + test.notes
    except TimeLimit:
        test.report_hang()
        return "FAILED", [f"not done within {test.program.limit_s(test.quick)} s"] + test.notes
    except Exception as problem:  # a bug of the test itself must not look like a pass
        test.log(traceback.format_exc())
        return "FAILED", [f"the test itself broke: {type(problem).__name__}: {problem}"] + test.notes


def on_alarm(_number, _frame):
    raise TimeLimit


def main(program, arguments):
    processes.adopt_orphans()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (CORE_MAX_BYTES if hard == resource.RLIM_INFINITY else hard, hard))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # ignored when started in the background, and children would inherit that
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, on_alarm)
    test = Test(program, arguments)
    watcher = processes.Watcher(test.library) if test.library else None
    try:
        signal.alarm(program.limit_s(arguments.quick))
        verdict, notes = drive(test, watcher)
        signal.alarm(0)
        if watcher:
            watcher.stop()
        seen = len(watcher.mapped_names()) if watcher else 0
        result = {"verdict": verdict, "notes": notes, "processes": seen}
        (test.logs / "result.json").write_text(json.dumps(result, indent=1))
        if verdict == "FAILED":
            test.log(f"FAILED: {notes[0]}")
    finally:
        processes.end_tree(os.getpid())
        shutil.rmtree(test.folder, ignore_errors=True)
    return 0
