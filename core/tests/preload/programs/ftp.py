import ftplib
import io
import re
import signal

import namespaces
from catalog import program
from programs.network import content

BYTES = {True: 2_000_000, False: 50_000_000}
# Its seccomp sandbox ends each session on current kernels, whatever allocates; its other ways to lock itself in are used.
CONFIGURATION = """
listen=YES
listen_address=127.0.0.1
listen_port={port}
background=NO
local_enable=YES
write_enable=YES
anonymous_enable=NO
pam_service_name=login
chroot_local_user=YES
allow_writeable_chroot=YES
local_umask=022
pasv_address=127.0.0.1
secure_chroot_dir={folder}/empty
seccomp_sandbox=NO
isolate=YES
isolate_network=YES
"""


@program("vsftpd", needs={"vsftpd": "vsftpd", "openssl": "openssl"}, light=True, watches=["vsftpd"], quick_limit_s=90,
         full_limit_s=200)
def vsftpd(test):
    """vsftpd: logins, refused ones too, lists, files sent and fetched, some at the same time, each in its own namespaces"""
    if not namespaces.available():
        test.skip("vsftpd needs root and an account of the test's own")
    (test.folder / "empty").mkdir()
    port = test.free_port()
    (test.folder / "vsftpd.conf").write_text(CONFIGURATION.format(port=port, folder=test.folder))
    places = namespaces.account(test)
    server = test.start(namespaces.bound(places, ["vsftpd", test.folder / "vsftpd.conf"]), name="vsftpd")
    test.wait_for(lambda: test.accepts(port), "vsftpd does not listen")
    for number in range(3 if test.quick else 30):
        check_session(test, port, number)
    check_refusal(test, port)
    test.stop(server, signal.SIGTERM, statuses=(0, -signal.SIGTERM))
    text = (test.logs / "vsftpd.log").read_text(errors="replace")
    test.expect("OOPS" not in text, f"vsftpd.log: {text[:200]}")


def connect(port, word=namespaces.PASSWORD):
    connection = ftplib.FTP(timeout=30)
    connection.connect("127.0.0.1", port)
    try:
        connection.login(namespaces.ACCOUNT, word)
    except BaseException:
        connection.close()
        raise
    return connection


def check_session(test, port, number):
    """One user with two connections at once. vsftpd tells of its own troubles by a reply 500."""
    sent = content(f"file{number}", BYTES[test.quick] + number)
    try:
        with connect(port) as first, connect(port) as second:
            test.expect_serves(test.pids("vsftpd"), "vsftpd in a session")
            first.storbinary(f"STOR file{number}", io.BytesIO(sent))
            second.mkd(f"folder{number}")
            listed = {line.split()[-1] for line in lines(first)}
            test.expect(f"file{number}" in listed and f"folder{number}" in listed, f"listed are {sorted(listed)}")
            got = io.BytesIO()
            second.retrbinary(f"RETR file{number}", got.write)
            test.expect(got.getvalue() == sent, f"file{number} came back changed")
            test.expect(first.size(f"file{number}") == len(sent), f"the size of file{number} is wrong")
            second.rename(f"file{number}", f"folder{number}/moved")
            first.delete(f"folder{number}/moved")
    except (ftplib.Error, OSError, EOFError) as problem:
        test.expect(False, f"session {number}: {problem or type(problem).__name__}")
    test.log(f"session {number}: {len(sent)} bytes there and back")


def lines(connection):
    found = []
    connection.retrlines("LIST", found.append)
    return found


def check_refusal(test, port):
    try:
        connect(port, "another word").close()
    except ftplib.error_perm as refusal:
        test.expect(re.match("530", str(refusal)), f"a wrong password was answered with {refusal}")
    else:
        test.expect(False, "a wrong password was let in")
