#!/usr/bin/env python3
"""Runs the commands that README.md and the guide show for real servers (Rails, Puma, gunicorn, Celery, Sidekiq).

What a reader would paste is found in the pages: lines "$ snug ..." and words in code that hold one of these servers'
commands. Only the port, the length and the allocators of a comparison are replaced. crates/snug/tests/guide.rs and bindings/tests
run the others.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "tools"))
import applications
from ports import free_port

SNUG = ROOT / "build/snug"
LIBRARY = ROOT / "build/libsnug.so"
PAGES = (ROOT / "README.md", *sorted(page for folder in ("tutorial", "how-to", "reference", "explanation") for page in (ROOT / "docs" / folder).glob("*.md")))
# How each server's command begins.
SERVERS = ("bin/rails server", "bundle exec puma", "gunicorn", "celery -A", "sidekiq -")
# With a wheel or a gem installed, or an image unpacked: bindings/tests, release/tests and crates/snug/tests.
OF_A_PACKAGE = r"""(SNUG_\w+="[^"]*" )?(python -m snug |bundle exec snug )|gunicorn -c python:snug|celery --include snug|snug check .*--image """
COMMAND_SECONDS = 240


def servers_in(text):
    return [server for server in SERVERS if re.search(rf"(^|\s){re.escape(server)}", text)]


def shown(page):
    """(line, command) of all that a page shows for these servers, as a reader would paste it."""
    found = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        spans = [line.strip().removeprefix("$ ")] if re.match(r"(\$ |    )", line) else re.findall(r"`([^`]+)`", line)
        for span in spans:
            command = re.sub(r"^\w+: (?=snug )", "", span.partition("  #")[0].strip())  # a Procfile's line names the process first
            if servers_in(command) and not re.match(OF_A_PACKAGE, command):
                found.append((number, command))
    return found


def complete(command):
    """A shown command as a whole one: some are only what comes after `--`, or the options and that."""
    if command.startswith("snug "):
        return command
    if command.startswith("-"):
        return f"snug compare {command}"
    if re.match(r"\w+=", command):
        command = f"env {command}"
    return f"snug compare --ready 3000 --requests 300 -- {command}"


def shortened(command, port):
    """The command with a free port, and in a minute's form."""
    command = command.replace("3000", str(port))
    words = shlex.split(command, comments=True)
    if "puma" in words and "-p" in words:  # this machine only
        place = words.index("-p")
        words[place:place + 2] = ["-b", f"tcp://127.0.0.1:{port}"]
    at = words.index("--")
    options, program = words[:at], words[at:]
    if options[1] == "compare":
        for name, value in (("--requests", "60"), ("--runs", "1"), ("--idle", "1s")):
            if name in options:
                options[options.index(name) + 1] = value
        while "--with" in options:
            place = options.index("--with")
            del options[place:place + 2]
        options += ["--runs", "1", "--with", "glibc,snug"] if "--runs" not in options else ["--with", "glibc,snug"]
        options += ["--idle", "1s"] if "--idle" not in options else []
    elif options[1] == "leak":
        options[options.index("--for") + 1] = "5s"
    return options + program


class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = subprocess.run([ROOT / "tools/install-deps", "--missing", "servers"], capture_output=True, text=True)
        if missing.returncode != 0:
            raise AssertionError(missing.stderr)
        folder = tempfile.TemporaryDirectory(prefix="snug-servers.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        applications.write(cls.folder)
        (cls.folder / "path").mkdir()
        (cls.folder / "path/snug").symlink_to(SNUG)
        port = free_port()
        cls.redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder.name],
                                     stdout=subprocess.DEVNULL)
        cls.addClassCleanup(cls.end_redis)
        cls.redis_url = f"redis://127.0.0.1:{port}/0"
        for _ in range(1200):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)

    @classmethod
    def end_redis(cls):
        cls.redis.terminate()
        cls.redis.wait()

    def environment(self, command):
        inherited = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "SNUG", "BUNDLE_GEMFILE")}
        extra = {"PATH": f"{self.folder}/path:/usr/local/bin:/usr/bin:/bin", "SNUG_LIBRARY": str(LIBRARY), "NO_COLOR": "1",
                 "REDIS_URL": self.redis_url, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.folder), "BUNDLE_PATH__SYSTEM": "1",
                 "BINDING": "127.0.0.1"}  # of bin/rails server: nothing here is for other machines
        if "celery" in command:
            extra["APP_IS_CELERY"] = "1"
        if "puma" in command:
            extra["SHOP_RACK"] = "1"
        return {**inherited, **extra}

    def run_in_group(self, words, command):
        """Runs a command and ends all that it started. Returns (status, output)."""
        process = subprocess.Popen(words, cwd=self.folder, env=self.environment(command), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, f"not done in {COMMAND_SECONDS} s: {process.communicate()[0]}"

    def check(self, command):
        words = shortened(complete(command), free_port())
        if words[1] == "run":
            self.check_run(words, command)
            return
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        status, output = self.run_in_group(words, command)
        self.assertEqual(status, 0, f"{shlex.join(words)}\n{output}")
        if words[1] == "compare" and "--out" in words:
            comparison = json.loads((self.folder / "results/compare.json").read_text())
            self.assertEqual([run["failure"] for run in comparison["runs"]], [None, None])

    def check_leak(self, server, load, path):
        """A leak that was planted in a server is named by its line. A watch that does not suffice is made again, longer."""
        lines = applications.FILES[path].splitlines()
        planted = next(number for number, line in enumerate(lines, 1) if re.search(r"KEPT( <<|\.append)", line))
        for seconds in (15, 60):
            port = str(free_port())
            words = ["snug", "leak", "--for", f"{seconds}s", "--interval", "100ms", "--json", *load, "--", *server]
            words = [word.replace("PORT", port) for word in words]
            environment = {**self.environment(shlex.join(server)), "SHOP_LEAKS": "1"}
            ended = subprocess.run(words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True, timeout=COMMAND_SECONDS)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            answer = json.loads(ended.stdout)
            found = [(line["line"]["file"].removeprefix(f"{self.folder}/"), line["line"]["line"]) for line in answer["lines"]]
            if answer["verdict"] == "leak" and found[:1] == [(path, planted)]:
                return
        self.fail(f"{answer['answer']} {found[:5]} instead of {path}:{planted}; {answer['notes']}")

    def test_leak_of_rails_is_named(self):
        self.check_leak(["bin/rails", "server", "-e", "production", "-p", "PORT"], ["--url", "http://127.0.0.1:PORT/"],
                        "config/application.rb")

    def test_leak_of_celery_is_named(self):
        self.check_leak(["celery", "-A", "app", "worker", "-c", "2"], ["--load", "python3 enqueue.py"], "app.py")

    def test_leak_of_sidekiq_is_named(self):
        self.check_leak(["sidekiq", "-e", "production", "-r", "./app.rb"], ["--load", "ruby enqueue.rb"], "app.rb")

    def check_run(self, words, command):
        """`snug run` stays: the server must come up under snug, in each of its processes."""
        program = words[words.index("--") + 1:]
        if "puma" in command and "-p" not in program:
            words = [*words, "-b", f"tcp://127.0.0.1:{free_port()}"]
        process = subprocess.Popen(words, cwd=self.folder, env=self.environment(command), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            for _ in range(360):
                time.sleep(0.5)
                checked = subprocess.run([SNUG, "check", "--expect", "snug", str(process.pid)], capture_output=True, text=True)
                if process.poll() is not None or checked.returncode == 0:
                    break
            self.assertIsNone(process.poll(), f"{shlex.join(words)} ended by itself")
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def add_tests():
    """A test for each command; the same on several pages is run once."""
    seen = {}
    for page in PAGES:
        for number, command in shown(page):
            seen.setdefault(command, f"{page.relative_to(ROOT)}:{number}")
    for index, (command, place) in enumerate(seen.items()):
        def test(self, command=command):
            self.check(command)
        test.__doc__ = f"{place}: {command}"
        setattr(Servers, f"test_{index:02}_{servers_in(command)[0].split('/')[-1].split()[0]}", test)
    return seen


COMMANDS = add_tests()


class Pages(unittest.TestCase):
    def test_each_server_is_shown(self):
        missing = [server for server in SERVERS if not any(server in command for command in COMMANDS)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
