import concurrent.futures
import glob
import hashlib
import os
import signal
import urllib.request

from catalog import program
from programs.network import FILES, content, write_files

MODULES = "/usr/lib/apache2/modules"
MOD_PHP = max(glob.glob(f"{MODULES}/libphp*.so"), default=f"{MODULES}/libphp8.2.so")
COMMON = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/httpd.pid
DefaultRuntimeDir {folder}
Mutex file:{folder} default
ErrorLog {logs}/apache_error.log
DocumentRoot {folder}/www
{user}
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
LoadModule mime_module {modules}/mod_mime.so
LoadModule deflate_module {modules}/mod_deflate.so
LoadModule filter_module {modules}/mod_filter.so
LoadModule env_module {modules}/mod_env.so
{environment}
TypesConfig /etc/mime.types
AddOutputFilterByType DEFLATE text/html
StartServers 2
MaxConnectionsPerChild 100
GracefulShutdownTimeout 10
"""
PREFORK = """
LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so
LoadModule php_module {mod_php}
MaxRequestWorkers 8
<FilesMatch "\\.php$">
  SetHandler application/x-httpd-php
</FilesMatch>
"""
EVENT = """
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule cgi_module {modules}/mod_cgi.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
ThreadsPerChild 8
MaxRequestWorkers 32
ScriptAlias /cgi/ {folder}/cgi/
ProxyPass /proxied/ http://127.0.0.1:{port}/ disablereuse=On
"""
NEEDS = {"/usr/sbin/apache2": "apache2", "/usr/bin/python3": "python3"}


@program("apache", needs=NEEDS, proves=["/usr/sbin/apache2 -v"], watches=["apache2"], quick_limit_s=90)
def apache(test):
    """Apache, event: threads serve files, compressed ones, CGI programs and a proxy, over graceful restarts"""
    (test.folder / "cgi").mkdir()
    script = test.folder / "cgi/sum"
    script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nprintf '%s' \"$QUERY_STRING\" | sha256sum\n"
                      "grep -c preload- /proc/self/maps\n")
    script.chmod(0o755)

    def answers(base, number):
        name = ("small.txt", "page.html")[number % 2]
        loads = 1 if test.library else 0
        words = fetch(f"{base}/cgi/sum?{number}").split()
        return (fetch(f"{base}/{name}") == content(name, FILES[name])
                and fetch(f"{base}/proxied/{name}") == content(name, FILES[name])
                and words[0] == hashlib.sha256(str(number).encode()).hexdigest().encode()
                and (int(words[2]) > 0) == bool(loads))

    serve(test, EVENT, answers)


@program("apache-php", needs={**NEEDS, MOD_PHP: "libapache2-mod-php", "php-cgi": "php-cgi"}, watches=["apache2"],
         quick_limit_s=90)
def apache_php(test):
    """Apache, prefork, with mod_php: pages as php-cgi prints them, over graceful restarts"""
    (test.folder / "www.php").write_bytes((test.scripts / "page.php").read_bytes())
    plain = {number: test.run(["php-cgi", "-q", test.folder / "www.php", f"n={number}"], preload=False).stdout.encode()
             for number in range(10)}
    test.expect(all(text.endswith(b"done\n") for text in plain.values()), "php-cgi does not print the page")
    serve(test, PREFORK, lambda base, number: fetch(f"{base}/page.php?n={number % 10}") == plain[number % 10],
          page=test.scripts / "page.php")


def fetch(url):
    request = urllib.request.Request(url, headers={"Connection": "close"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def serve(test, how, answers, page=None):
    """Starts Apache, asks it from several threads, restarts it gracefully meanwhile. answers(base, number) -> right?"""
    write_files(test.folder / "www")
    if page:
        (test.folder / "www/page.php").write_bytes(page.read_bytes())
    port = test.free_port()
    user = "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
    (test.folder / "httpd.conf").write_text((COMMON + how).format(
        environment="PassEnv LD_PRELOAD" if test.library else "",
        folder=test.folder, port=port, logs=test.logs, user=user, modules=MODULES, mod_php=MOD_PHP))
    # In a session of its own, because Apache ends by killing its process group.
    server = test.start(["setsid", "/usr/sbin/apache2", "-f", test.folder / "httpd.conf", "-DFOREGROUND"],
                        name="apache2")
    test.wait_for(lambda: test.accepts(port), "Apache does not listen")
    base = f"http://127.0.0.1:{port}"
    test.expect(answers(base, 0), "the first answer is wrong")
    test.expect_serves(test.pids("apache2"), "Apache")
    rounds = 3 if test.quick else 20
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for turn in range(rounds):
            asked = [pool.submit(answers, base, number) for number in range(60 if test.quick else 200)]
            if turn < rounds - 1:
                server.send_signal(signal.SIGUSR1)  # graceful: who is served is served to the end
            wrong = sum(not answer.result() for answer in asked)
            test.expect(not wrong, f"{wrong} answers were wrong in round {turn}")
    large = fetch(f"{base}/large.bin")
    test.expect(large == content("large.bin", FILES["large.bin"]), "the large file came changed")
    test.stop(server, signal.SIGTERM)
    log = (test.logs / "apache_error.log").read_text(errors="replace")
    test.expect("exit signal" not in log, "a child of Apache was killed, see apache_error.log")
    test.note(f"{len(asked) * rounds} requests, {rounds - 1} graceful restarts")
