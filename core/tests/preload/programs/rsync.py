import os
import signal

from catalog import program
from programs.archives import write_text
from programs.network import content

CONFIGURATION = """
use chroot = no
munge symlinks = no
port = {port}
address = 127.0.0.1
pid file = {folder}/rsyncd.pid
[tree]
path = {folder}/served
read only = no
{owner}
"""


@program("rsync", needs={"rsync": "rsync"}, light=True, proves=["rsync --version"], watches=["rsync"], quick_limit_s=90)
def rsync(test):
    """rsync: trees copied, changed and copied again, deletions, compression; its daemon, both ways, at the same time"""
    make_tree(test)
    test.run(["rsync", "-aH", "--checksum", "tree/", "copy/"])
    same(test, "copy")
    change_tree(test)
    told = test.run(["rsync", "-aHz", "--checksum", "--no-whole-file", "--delete", "--stats", "tree/", "copy/"]).stdout
    test.expect("Number of deleted files: 1" in told, "rsync did not delete the one file that is gone")
    same(test, "copy")
    port = test.free_port()
    (test.folder / "served").mkdir()
    owner = "uid = root\ngid = root" if os.geteuid() == 0 else ""
    (test.folder / "rsyncd.conf").write_text(CONFIGURATION.format(port=port, folder=test.folder, owner=owner))
    server = test.start(["rsync", "--daemon", "--no-detach", f"--config={test.folder}/rsyncd.conf"])
    test.wait_for(lambda: test.accepts(port), "the daemon does not listen")
    test.expect_serves(test.pids("rsync"), "rsync's daemon")
    url = f"rsync://127.0.0.1:{port}/tree"
    test.run(["rsync", "-aHz", "tree/", f"{url}/"])
    same(test, "served")
    clients = 3 if test.quick else 12
    script = ('for n in $(seq $1); do rsync -aH "$2/" "back$n/" & jobs="$jobs $!"; done; '
              'for job in $jobs; do wait $job || exit; done')
    test.run(["bash", "-c", script, "clients", clients, url])
    for number in range(1, clients + 1):
        same(test, f"back{number}")
    test.stop(server, signal.SIGTERM, statuses=(0, 20))


def make_tree(test):
    files = 400 if test.quick else 5000
    for number in range(files):
        folder = test.folder / "tree" / f"d{number % 37}"
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"file{number}", 5 + number % 50)
    (test.folder / "tree/large").write_bytes(content("large", 8_000_000 if test.quick else 200_000_000))
    os.link(test.folder / "tree/d1/file1", test.folder / "tree/second_name")
    os.symlink("d1/file1", test.folder / "tree/symbolic")


def change_tree(test):
    with open(test.folder / "tree/large", "r+b") as file:
        file.seek(1_000_000)
        file.write(b"changed in the middle")
    (test.folder / "tree/d2/file2").unlink()
    write_text(test.folder / "tree/d3/new", 500)


def same(test, copy):
    """Names, modes, sizes, links, and every byte."""
    test.run(["diff", "-r", "tree", copy], preload=False)
    listing = "cd $1 && find . -not -type d -printf '%P %M %n %s %l\\n' | sort"
    ours, theirs = (test.run(["sh", "-c", listing, "list", folder], preload=False).stdout for folder in ("tree", copy))
    test.expect(ours == theirs, f"{copy} differs from tree in names, modes, sizes or links")
