"""Files and folders of a system's own, as only the processes of one test see them.

A daemon like sshd or cron reads fixed places (/etc/passwd, /var/spool/cron). Bound over in a mount namespace of its own,
they can hold an account or a job that the system never sees.
"""

import os
import subprocess

ACCOUNT = "snugtest"
ACCOUNT_ID = 54321
PASSWORD = "heap of sand"


def available():
    """True if this process may make mount namespaces: root, and not in a container that forbids it."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "mount", "--bind", "/mnt", "/mnt"],
                                                capture_output=True).returncode == 0


def bound(places, argv):
    """The command that runs argv where each of these places (path -> what is bound over it) is another one."""
    script = "".join(f"mount --bind '{source}' '{place}' && " for place, source in places.items()) + 'exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *argv]


def account(test):
    """An ordinary user with a password and a home; returns the places to bind over."""
    home = test.folder / "home"
    home.mkdir()
    os.chown(home, ACCOUNT_ID, ACCOUNT_ID)
    word = test.run(["openssl", "passwd", "-6", "-salt", "grains", PASSWORD], preload=False).stdout.strip()
    places = {}
    for name, line in (("passwd", f"{ACCOUNT}:{word}:{ACCOUNT_ID}:{ACCOUNT_ID}::{home}:/bin/bash"),
                       ("group", f"{ACCOUNT}:x:{ACCOUNT_ID}:")):
        with open(f"/etc/{name}", encoding="utf-8") as original:
            (test.folder / name).write_text(original.read().rstrip("\n") + f"\n{line}\n")
        (test.folder / name).chmod(0o644)
        places[f"/etc/{name}"] = test.folder / name
    return places
