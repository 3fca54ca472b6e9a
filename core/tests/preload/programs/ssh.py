import os
import pathlib
import pwd
import re
import signal
import socket

import namespaces
import processes
from catalog import program
from programs.network import content

SSHD = "/usr/sbin/sshd"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
BYTES = {True: 3_000_000, False: 60_000_000}
CONFIGURATION = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM {pam}
PasswordAuthentication no
PermitRootLogin no
MaxStartups 50
LogLevel VERBOSE
Subsystem sftp {sftp}
{set_environment}
"""


@program("sshd", needs={SSHD: "openssh-server", "ssh": "openssh-client", "sftp": "openssh-client",
                        SFTP_SERVER: "openssh-sftp-server", "openssl": "openssl"}, light=True,
         proves=["ssh -V"], watches=["sshd", "sftp-server"], quick_limit_s=120, full_limit_s=300)
def sshd(test):
    """OpenSSH: logins with a key through its sandbox, at the same time too, a terminal, sftp both ways, a wrong key"""
    private = namespaces.available()
    user = namespaces.ACCOUNT if private else pwd.getpwuid(os.geteuid()).pw_name
    server, port = start(test, private)
    check_sandbox(test, port)
    login = [*client(test, port, "key"), f"{user}@127.0.0.1"]
    want_uid = str(namespaces.ACCOUNT_ID if private else os.geteuid())
    for number in range(3 if test.quick else 20):
        answer = test.run([*login, f"id -u; echo {number}; grep -c preload- /proc/self/maps || true"]).stdout.split()
        test.expect(answer[:2] == [want_uid, str(number)], f"the session printed {answer}")
        test.expect(not test.library or int(answer[2]) > 0, "the session's shell runs without the library")
    check_many(test, login, 4 if test.quick else 20)
    terminal = test.run([*login[:1], "-tt", *login[1:], "tty; stty -a | head -1"], preload=False).stdout
    test.expect("/dev/pts/" in terminal, f"a session with a terminal printed {terminal!r}")
    check_transfer(test, port, user)
    stranger = [*client(test, port, "stranger"), f"{user}@127.0.0.1", "true"]
    refused = test.run(stranger, statuses=(255,)).stderr
    test.expect("Permission denied" in refused, f"a wrong key was answered with {refused!r}")
    test.run([*login, "true"])
    test.stop(server, signal.SIGTERM, statuses=(0, 255, -signal.SIGTERM))
    check_log(test)


def start(test, private):
    for name in ("host_key", "key", "stranger"):
        test.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name])
    (test.folder / "authorized_keys").write_bytes((test.folder / "key.pub").read_bytes())
    (test.folder / "authorized_keys").chmod(0o644)
    port = test.free_port()
    # sshd gives a session an environment of its own, so what the session runs has to be told of the library again.
    setting = f"SetEnv LD_PRELOAD={test.library}" if test.library else ""
    (test.folder / "sshd_config").write_text(CONFIGURATION.format(
        port=port, folder=test.folder, pam="yes" if private else "no", sftp=SFTP_SERVER, set_environment=setting))
    command = [SSHD, "-D", "-e", "-f", test.folder / "sshd_config"]
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # as sshd's own unit makes it
    if private:
        command = namespaces.bound(namespaces.account(test), command)
        test.note("the sessions are those of an ordinary user, by PAM")
    if test.library:
        test.prove_binding([SSHD, "-t", "-f", str(test.folder / "sshd_config")])
    server = test.start(command, name="sshd")
    test.wait_for(lambda: test.accepts(port), "sshd does not listen")
    return server, port


def client(test, port, key):
    return ["ssh", "-F", "none", "-p", port, "-i", test.folder / key, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={test.folder}/known_hosts"]


def check_sandbox(test, port):
    """Holds a connection before its login, and finds the process that speaks with it in its filter of system calls."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"SSH-2.0-snug\r\n")
        connection.settimeout(20)
        test.expect(connection.recv(200).startswith(b"SSH-2.0-"), "no greeting")

        def sandboxed():
            return [pid for pid in test.pids("sshd*") if b"\nSeccomp:\t2" in processes.read(pid, "status")]

        test.wait_for(sandboxed, "no process of sshd entered its sandbox", 20)
        test.expect_serves(sandboxed(), "sshd in its sandbox")


def check_many(test, login, count):
    """Sessions side by side; each sends back what it was sent."""
    text = content("session", 200_000).decode()
    (test.folder / "sent").write_text(text)
    script = (f"for n in $(seq {count}); do \"$@\" cat <sent >back$n & jobs=\"$jobs $!\"; done; "
              "for job in $jobs; do wait $job || exit 1; done; "
              f"for n in $(seq {count}); do cmp sent back$n || exit 1; done")
    test.run(["bash", "-c", script, "many", *login], limit_s=100)


def check_transfer(test, port, user):
    (test.folder / "there").mkdir(mode=0o777)
    (test.folder / "there").chmod(0o777)
    (test.folder / "large").write_bytes(content("large", BYTES[test.quick]))
    options = [option if option != "-p" else "-P" for option in client(test, port, "key")[1:]]
    (test.folder / "batch").write_text(f"put large {test.folder}/there/large\nls -l {test.folder}/there\n"
                                       f"rename {test.folder}/there/large {test.folder}/there/moved\n"
                                       f"get {test.folder}/there/moved fetched\n"
                                       "!sleep 2\n")  # so that its server is seen on a busy machine, too
    test.run(["sftp", "-q", *options, "-b", "batch", f"{user}@127.0.0.1"])
    test.run(["cmp", "large", "fetched"], preload=False)
    test.run(["cmp", "large", "there/moved"], preload=False)


def check_log(test):
    text = (test.logs / "sshd.log").read_text(errors="replace")
    found = re.search(r".*(fatal: |terminated by signal|unexpected|segfault).*", text)
    test.expect(not found, f"sshd.log: {found and found.group(0)[:150]}")
