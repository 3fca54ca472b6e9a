"""One run of a workload: its temporary directory, its processes, and their certain end."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import environment, memory

RUBY = "/usr/bin/ruby"
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# What processes get to end by themselves. Whoever interrupts us may kill us after a few seconds.
GRACE_SECONDS = 10
GRACE_SECONDS_INTERRUPTED = 0.5
LOG_LINES_SHOWN = 15
# What programs print when they die; Ruby follows it with thousands of lines.
LAST_WORDS = re.compile(
    r"snug: fatal|\[BUG\]|Segmentation fault|Aborted|Fatal Python error|WorkerLostError|double free|corrupt")
FAILURE_LOGS = Path(__file__).resolve().parent.parent.parent.parent / "build/bench-failures"


class WorkloadError(Exception):
    """Something that ends the run; the text says what to do."""


def require_program(path):
    """Fails with the install command if a program that a Debian package brings is missing."""
    if not os.access(path, os.X_OK):
        raise WorkloadError(f"{path} is missing; run: tools/install-deps bench")


def require_ruby(*libraries):
    """The same for Ruby and libraries of its."""
    require_program(RUBY)
    tried = subprocess.run([RUBY, "-e", "ARGV.each { |name| require name }", *libraries], capture_output=True, text=True)
    if tried.returncode != 0:
        said = re.search(r"cannot load such file -- [\w/]+", tried.stderr)
        why = said[0] if said else tried.stderr.strip()[-300:]
        raise WorkloadError(f"{RUBY} lacks a library ({why}); run: tools/install-deps bench")


class Process:
    """A started process, with its output in a log file."""

    def __init__(self, name, popen, log_path):
        self.name = name
        self.popen = popen
        self.log_path = log_path

    def running(self):
        return self.popen.poll() is None

    def report(self):
        """What matters of its output, which is saved whole, since the temporary directory goes."""
        FAILURE_LOGS.mkdir(parents=True, exist_ok=True)
        saved = FAILURE_LOGS / f"{self.log_path.parent.name}-{self.log_path.name}"
        shutil.copyfile(self.log_path, saved)
        lines = self.log_path.read_text(errors="replace").splitlines()
        last_words = [line for line in lines if LAST_WORDS.search(line)][:LOG_LINES_SHOWN]
        shown = [*last_words, "...", *lines[-LOG_LINES_SHOWN:]] if last_words else lines[-LOG_LINES_SHOWN:]
        return "\n".join([*(f"  {line[:300]}" for line in shown), f"  (all of it: {saved})"])

    def stop(self, grace_seconds):
        """Asks it to end, insists after grace_seconds. Returns its exit status as subprocess gives it."""
        if self.running():
            self.popen.terminate()
            try:
                self.popen.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self.kill_group()
        return self.popen.wait()

    def kill_group(self):
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Session:
    """Use as a context manager; leaving it stops every process, last started first, and removes the directory.

    That also happens on SIGINT and SIGTERM. Should this process be killed outright, the kernel sends
    SIGTERM to what it started.
    """

    def __init__(self, name, server_variables):
        self.name = name
        self.server_variables = server_variables
        self.processes = []
        self.server = None
        self.server_pids = set()
        self.directory = None

    def __enter__(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: sys.exit(128 + received))
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        return self

    def __exit__(self, exception_type, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for process in reversed(self.processes):
            process.stop(GRACE_SECONDS if exception_type is None else GRACE_SECONDS_INTERRUPTED)
            process.kill_group()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start_helper(self, name, command, **variables):
        """Starts a process that is not measured."""
        return self._start(name, command, {**os.environ, **variables})

    def start_server(self, command, **variables):
        """Starts the process that is measured, under the allocator that was asked for."""
        self.server = self._start("server", command, {**os.environ, **variables, **self.server_variables})
        return self.server

    def _start(self, name, command, variables):
        log_path = self.directory / f"{name}.log"
        with open(log_path, "wb") as log:
            popen = subprocess.Popen(
                [str(part) for part in command],
                env={key: str(value) for key, value in variables.items()},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_end_with_parent,
            )
        process = Process(name, popen, log_path)
        self.processes.append(process)
        return process

    def wait_until(self, condition, what, timeout_seconds=60):
        """Polls until condition() is true; fails if a process ends meanwhile or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            self.check_running()
            if time.monotonic() > deadline:
                raise WorkloadError(f"{what}: not after {timeout_seconds} s\n{self._all_logs()}")
            time.sleep(0.05)

    def wait_for_helper(self, helper, timeout_seconds):
        """Waits until a helper has done its work; fails if it fails, or if the server ends meanwhile."""
        self.processes.remove(helper)
        try:
            self.wait_until(lambda: not helper.running(), f"waiting for {helper.name}", timeout_seconds)
        finally:
            status = helper.stop(grace_seconds=5)
        if status != 0:
            raise WorkloadError(f"{helper.name} failed, {describe_status(status)}\n{helper.report()}")

    def check_running(self):
        for process in self.processes:
            if not process.running():
                status = process.popen.returncode
                raise WorkloadError(
                    f"{process.name} ended by itself, {describe_status(status)}; its output:\n"
                    f"{process.report()}"
                )

    def note_server_processes(self):
        """Remembers the processes of the server, so that one that dies and is replaced is noticed."""
        self.server_pids = set(memory.process_tree(self.server.popen.pid))

    def lost_processes(self):
        """Those of the noted processes that are gone."""
        return self.server_pids - set(memory.process_tree(self.server.popen.pid))

    def count_lost_processes(self):
        """How many of the noted processes are gone, each of them an error; says so."""
        lost = self.lost_processes()
        if lost:
            print(f"{self.name}: processes of the server died under load: {sorted(lost)}; its output:\n"
                  f"{self.server.report()}", file=sys.stderr)
        return len(lost)

    def stop_server(self, expected=(0, -signal.SIGTERM, 128 + signal.SIGTERM)):
        """Stops the server. Returns 1 if it ended otherwise than by our request, else 0."""
        status = self.server.stop(grace_seconds=20)
        self.processes.remove(self.server)
        self.server.kill_group()
        if status in expected:
            return 0
        print(f"{self.name}: the server did not stop cleanly, {describe_status(status)}; its output:\n"
              f"{self.server.report()}", file=sys.stderr)
        return 1

    def _all_logs(self):
        return "\n".join(f"{process.name}:\n{process.report()}" for process in self.processes)


def describe_status(status):
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def _end_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run(name, body):
    """Runs a driver: body(session) returns the metrics, which are printed. Returns the exit status."""
    server_variables = environment.detach_allocator()
    try:
        with Session(name, server_variables) as session:
            metrics = body(session)
    except WorkloadError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    for key, value in metrics.items():
        print(f"snug-metric: {key}={value if isinstance(value, int) else round(value, 2)}")
    return 1 if metrics["errors"] else 0
