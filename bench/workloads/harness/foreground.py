"""Runs a command in the foreground, so that whoever ends us ends it, in the way it knows."""

import signal
import subprocess


def run(command, **options):
    """Runs a command as subprocess.run does, passing on SIGTERM. Returns (exit status, its output or None).

    SIGINT of a terminal reaches the command by itself; we wait for it to clean up.
    """
    process = subprocess.Popen(command, **options)
    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
    }
    try:
        output, _ = process.communicate()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return process.returncode, output
