import os
import pathlib
import time

import namespaces
from catalog import program

PLACES = ("/etc/cron.d", "/var/spool/cron", "/run")


@program("cron", needs={"/usr/sbin/cron": "cron", "crontab": "cron"}, light=True, watches=["cron"], quick_limit_s=60, full_limit_s=240)
def cron(test):
    """cron: a job of the system at its start, and one of a user's crontab; the user's again on the minute, in full"""
    if not namespaces.available():
        test.skip("cron needs root and folders of the test's own")
    places = namespaces.account(test)
    for place in PLACES:
        folder = test.folder / place.strip("/").replace("/", "-")
        folder.mkdir()
        folder.chmod(0o755)
        places[place] = folder
    (places["/var/spool/cron"] / "crontabs").mkdir(mode=0o1730)
    out = test.folder / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    preload = f"LD_PRELOAD={test.library}\n" if test.library else ""  # cron cleans the environment of its jobs
    job = "id -un; seq 20000 | sort -R | sort -n | sha256sum; grep -c preload- /proc/self/maps"
    (places["/etc/cron.d"] / "battery").write_text(f"{preload}SHELL=/bin/bash\n@reboot root ({job}) >{out}/system 2>&1\n")
    (places["/etc/cron.d"] / "battery").chmod(0o644)
    table = places["/var/spool/cron"] / "crontabs" / namespaces.ACCOUNT
    table.write_text(f"{preload}SHELL=/bin/bash\n@reboot ({job}) >{out}/user 2>&1\n* * * * * ({job}) >{out}/minute.$$ 2>&1\n")
    table.chmod(0o600)
    os.chown(table, namespaces.ACCOUNT_ID, namespaces.ACCOUNT_ID)
    server = test.start(namespaces.bound(places, ["cron", "-f"]), name="cron")
    test.wait_for(lambda: ended(out / "system") and ended(out / "user"), "cron does not run the jobs of its start")
    test.expect_serves([server.pid], "cron")
    check(test, out / "system", "root")
    check(test, out / "user", namespaces.ACCOUNT)
    if not test.quick:
        started = time.monotonic()
        test.wait_for(lambda: len([path for path in out.glob("minute.*") if ended(path)]) >= 2, "no job on the minute", 130)
        for path in out.glob("minute.*"):
            check(test, path, namespaces.ACCOUNT)
        test.note(f"jobs on two minutes after {time.monotonic() - started:.0f} s")
    test.stop(server, statuses=(0, -15))


def ended(path):
    return path.exists() and len(path.read_text().splitlines()) >= 3


def check(test, path, user):
    lines = pathlib.Path(path).read_text().splitlines()
    expected = test.run(["sh", "-c", "seq 20000 | sha256sum"], preload=False).stdout.strip()
    test.expect(lines[:2] == [user, expected], f"the job in {path.name} printed {lines}")
    test.expect(not test.library or int(lines[2]) > 0, f"the job in {path.name} ran without the library")
