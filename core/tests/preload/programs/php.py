import concurrent.futures
import os
import signal

from catalog import newest, program

FPM = newest("/usr/sbin/php-fpm[0-9]*.[0-9]*", "/usr/sbin/php-fpm8.2")
POOL = """
[global]
error_log = {logs}/fpm_error.log
daemonize = no
[www]
{user}
listen = {folder}/php.socket
listen.mode = 0666
clear_env = no
pm = dynamic
pm.max_children = 6
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 3
pm.max_requests = 40
pm.status_path = /status
catch_workers_output = yes
"""


@program("php-fpm", needs={FPM: "php-fpm", "cgi-fcgi": "libfcgi-bin", "php-cgi": "php-cgi"},
         proves=[f"{FPM} -v", "php-cgi -v"], watches=["php-fpm*"])
def php_fpm(test):
    """PHP with Debian's extensions: php-fpm's workers answer requests at once, are replaced after 40, and reload; each page as php-cgi prints it"""
    user = "user = www-data\ngroup = www-data" if os.geteuid() == 0 else ""
    (test.folder / "pool.conf").write_text(POOL.format(logs=test.logs, folder=test.folder, user=user))
    page = test.folder / "page.php"
    page.write_bytes((test.scripts / "page.php").read_bytes())
    server = test.start([FPM, "-F", "-y", test.folder / "pool.conf"], name="php-fpm")
    test.wait_for(lambda: (test.folder / "php.socket").exists(), "php-fpm does not open its socket")
    test.wait_for(lambda: len(test.pids("php-fpm*")) >= 3, "php-fpm starts no workers")
    request(test, page, 1)
    test.expect_serves(test.pids("php-fpm*"), "php-fpm")
    requests = 120 if test.quick else 2000
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda number: request(test, page, number % 40), range(requests)))
    for number in range(0, 40, 1 if not test.quick else 9):
        plain = test.run(["php-cgi", "-q", page, f"n={number}"], preload=False).stdout
        test.expect(plain.endswith("done\n") and all(answer == plain for answer in answers[number::40]),
                    f"page {number} is not what php-cgi prints")
    server.send_signal(signal.SIGUSR2)  # reload: executes itself anew
    test.wait_for(lambda: answers_again(test, page), "php-fpm does not answer after a reload")
    test.expect_serves(test.pids("php-fpm*"), "php-fpm after a reload")
    test.stop(server, signal.SIGQUIT)
    log = (test.logs / "fpm_error.log").read_text(errors="replace")
    test.expect("exited on signal" not in log, "a worker of php-fpm was killed, see fpm_error.log")
    test.note(f"{requests} requests")


def request(test, page, number):
    """One page by FastCGI. Returns its body."""
    told = test.run(["cgi-fcgi", "-bind", "-connect", test.folder / "php.socket"], preload=False,
                    env={"SCRIPT_FILENAME": str(page), "REQUEST_METHOD": "GET", "QUERY_STRING": f"n={number}"}).stdout
    return told.partition("\n\n")[2]


def answers_again(test, page):
    return "done" in request(test, page, 2)
