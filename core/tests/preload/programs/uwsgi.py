import concurrent.futures
import hashlib
import json
import os
import signal
import urllib.request

from catalog import newest, program

PLUGINS = "/usr/lib/uwsgi/plugins"
PYTHON = newest(f"{PLUGINS}/python3[0-9]*_plugin.so", f"{PLUGINS}/python3_plugin.so")
PASSENGER = "/usr/lib/apache2/modules/mod_passenger.so"
WSGI = '''
import hashlib, json, os, threading, zlib

def application(environment, start_response):
    n = int(environment["QUERY_STRING"])
    rows = [{"id": i, "text": "x" * (i % 300), "part": [i] * (i % 9)} for i in range(500 + n * 37 % 1500)]
    text = json.dumps(rows).encode()
    assert zlib.decompress(zlib.compress(text)) == text
    found = []
    thread = threading.Thread(target=lambda: found.append(hashlib.sha256(text).hexdigest()))
    thread.start()
    thread.join()
    start_response("200 OK", [("Content-Type", "application/json"), ("Connection", "close")])
    return [json.dumps({"n": n, "sum": found[0], "pid": os.getpid()}).encode()]
'''


def expected(number):
    rows = [{"id": i, "text": "x" * (i % 300), "part": [i] * (i % 9)} for i in range(500 + number * 37 % 1500)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def ask_many(test, base, count):
    """Asks from eight threads at once; returns the processes that answered."""
    def ask(number):
        with urllib.request.urlopen(f"{base}/?{number}", timeout=60) as answer:
            got = json.loads(answer.read())
        return got["pid"] if (got["n"], got["sum"]) == (number, expected(number)) else None

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pids = list(pool.map(ask, range(count)))
    test.expect(None not in pids, f"{pids.count(None)} of {count} answers are wrong")
    return set(pids)


@program("uwsgi", needs={"uwsgi": "uwsgi-core", PYTHON: "uwsgi-plugin-python3"}, proves=["uwsgi --version"],
         watches=["uwsgi*"], quick_limit_s=90)
def uwsgi(test):
    """uWSGI with a Python application: processes and threads, replaced after some requests; a graceful reload"""
    (test.folder / "app.py").write_text(WSGI)
    port = test.free_port()
    server = test.start(["uwsgi", "--plugin", PYTHON, "--http-socket", f"127.0.0.1:{port}", "--wsgi-file", "app.py",
                         "--master", "--processes", "3", "--threads", "3", "--enable-threads", "--max-requests", "60",
                         "--thunder-lock", "--need-app", "--reload-mercy", "20", "--die-on-term", "--lazy-apps"],
                        name="uwsgi")
    test.wait_for(lambda: test.accepts(port), "uWSGI does not listen")
    base = f"http://127.0.0.1:{port}"
    count = 100 if test.quick else 2000
    ask_many(test, base, 10)
    test.expect_serves(test.pids("uwsgi*"), "uWSGI")
    first = ask_many(test, base, count)
    server.send_signal(signal.SIGHUP)
    test.wait_for(lambda: "gracefully" in (test.logs / "uwsgi.log").read_text(errors="replace"), "uWSGI does not reload")
    test.wait_for(lambda: not first & set(test.pids("uwsgi*")) - {server.pid}, "old workers do not end", 60)
    ask_many(test, base, count)
    test.stop(server, signal.SIGTERM, statuses=(0, 30))
    log = (test.logs / "uwsgi.log").read_text(errors="replace")
    test.expect("by signal" not in log and "segmentation" not in log.lower(), "a worker was killed, see uwsgi.log")


PASSENGER_CONFIGURATION = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/httpd.pid
DefaultRuntimeDir {folder}
Mutex file:{folder} default
ErrorLog {logs}/apache_error.log
DocumentRoot {folder}/app/public
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule passenger_module {modules}/mod_passenger.so
PassengerRoot {root}
PassengerRuby /usr/bin/ruby
PassengerPython /usr/bin/python3
PassengerUserSwitching off
PassengerDefaultUser root
PassengerMaxPoolSize 3
PassengerStatThrottleRate 0
User www-data
Group www-data
PassengerInstanceRegistryDir {folder}
PassengerDisableSecurityUpdateCheck on
PassengerDisableAnonymousTelemetry on
PassengerAppType wsgi
PassengerStartupFile passenger_wsgi.py
PassengerAppRoot {folder}/app
"""
LOCATIONS = "/usr/lib/ruby/vendor_ruby/phusion_passenger/locations.ini"


@program("passenger", needs={PASSENGER: "libapache2-mod-passenger", "/usr/sbin/apache2": "apache2", "/usr/bin/ruby": "ruby",
                             "/usr/bin/python3": "python3"},
         watches=["apache2", "Passenger*"], quick_limit_s=120)
def passenger(test):
    """Passenger in Apache: its watchdog, core and spawned applications answer; restarted by tmp/restart.txt"""
    if os.geteuid() != 0:
        test.skip("Passenger switches users, and needs root for that")
    for folder in ("app", "app/public", "app/tmp"):
        (test.folder / folder).mkdir()
    (test.folder / "app/passenger_wsgi.py").write_text(WSGI)
    port = test.free_port()
    (test.folder / "httpd.conf").write_text(PASSENGER_CONFIGURATION.format(
        folder=test.folder, port=port, logs=test.logs, modules="/usr/lib/apache2/modules", root=LOCATIONS))
    server = test.start(["setsid", "/usr/sbin/apache2", "-f", test.folder / "httpd.conf", "-DFOREGROUND"], name="apache2")
    test.wait_for(lambda: test.accepts(port), "Apache does not listen", 60)
    base = f"http://127.0.0.1:{port}"
    first = ask_many(test, base, 40 if test.quick else 1000)
    test.expect_serves([*test.pids("Passenger*"), *first], "Passenger")
    (test.folder / "app/tmp/restart.txt").touch()
    second = ask_many(test, base, 40 if test.quick else 1000)
    test.expect(not first & second, "the application was not restarted")
    test.expect_serves(list(second), "the application under Passenger")
    test.stop(server, signal.SIGTERM)
    log = (test.logs / "apache_error.log").read_text(errors="replace")
    test.expect("SIGSEGV" not in log and "SIGABRT" not in log, "a part of Passenger crashed, see apache_error.log")
