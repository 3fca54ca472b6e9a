"""Programs that Debian links with libjemalloc.so.2, each in two ways: with the library preloaded, beside the real
jemalloc that the loader maps for them; and with its other file under jemalloc's name, in place of the real one."""

import json
import pathlib
import shutil
import signal

import processes
from catalog import SYSTEM_PATH, program

PREFIX = "5.3.1-"
ZONE = """$TTL 300
@ IN SOA ns hostmaster 1 3600 600 86400 300
@ IN NS ns
ns IN A 127.0.0.1
"""


class Way:
    """One way to bring the library in: what run and start are told, and which file then serves."""

    def __init__(self, test, name, library, options):
        self.test = test
        self.name = name
        self.library = library
        self.options = options

    def check(self, pids):
        """The library must serve these processes, and jemalloc's own file may be mapped only where ours is preloaded."""
        self.test.expect(pids, f"{self.name}: no process was found")
        for pid in pids if self.library else []:
            served = processes.serves(pid, self.library)
            self.test.expect(served is not False, f"{self.name}: process {pid} is not served by {self.library}")
            maps = processes.read(pid, "maps").decode(errors="replace")
            files = {line.split()[-1] for line in maps.splitlines() if "libjemalloc" in line}
            expected = {self.library} if "LD_LIBRARY_PATH" in self.options["env"] else files
            self.test.expect(files == expected, f"{self.name}: process {pid} maps {', '.join(sorted(files))}")


def ways(test, command=None):
    """Both, or without a library the plain one; a program that this release does not link with jemalloc has one way, too."""
    if not test.library:
        return [Way(test, "plain", None, {"preload": False, "env": {}})]
    alias = pathlib.Path(test.library).parent / "jemalloc/libjemalloc.so.2"
    found = [Way(test, "preloaded", test.library, {"preload": True, "env": {}})]
    linked = command is None or "libjemalloc.so.2" in test.run(["ldd", shutil.which(command, path=SYSTEM_PATH)], preload=False).stdout
    if alias.exists() and linked:  # another library than ours has no such file
        found.append(Way(test, "linked", str(alias), {"preload": False, "env": {"LD_LIBRARY_PATH": str(alias.parent)}}))
    return found


@program("jemalloc-redis", needs={"redis-server": "redis-server", "redis-benchmark": "redis-tools"}, light=True,
         watches=["redis-*"])
def redis(test):
    """redis-server, linked with jemalloc: MEMORY STATS, MALLOC-STATS and PURGE, INFO memory say what the library says"""
    for way in ways(test, "redis-server"):
        path = test.folder / f"{way.name}.socket"

        def ask(*command, path=path, way=way):
            return test.run(["redis-cli", "-s", path, *command], **way.options).stdout.strip()

        server = test.start(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", test.folder],
                            name=f"redis-{way.name}", **way.options)
        test.wait_for(lambda ask=ask: ask("PING") == "PONG", f"{way.name}: redis-server does not answer", 60)
        test.run(["redis-benchmark", "-s", path, "-n", "40000", "-r", "40000", "-d", "1500", "-P", "16", "-q", "-t", "set"],
                 **way.options)
        way.check([server.pid])

        def allocated_bytes(ask=ask):
            stats = ask("MEMORY", "STATS").splitlines()
            return int(stats[stats.index("allocator.allocated") + 1])

        def allocator_agrees(ask=ask, allocated_bytes=allocated_bytes):
            used = int(next(line for line in ask("INFO", "memory").splitlines() if line.startswith("used_memory:")).split(":")[1])
            return 0.8 * used < allocated_bytes() < 1.5 * used + 8e6

        # Redis asks for the allocator's numbers now and then.
        test.wait_for(allocator_agrees, f"{way.name}: allocator.allocated is far from used_memory", 60)
        allocated = allocated_bytes()
        report = ask("MEMORY", "MALLOC-STATS")
        test.expect("jemalloc statistics" in report, f"{way.name}: MEMORY MALLOC-STATS says {report[:80]!r}")
        if way.library:
            test.expect(f'Version: "{PREFIX}' in report and "snug" in report, f"{way.name}: it is not the library's")
        ask("FLUSHALL")
        test.expect(ask("MEMORY", "PURGE") == "OK", f"{way.name}: MEMORY PURGE failed")

        def resident(ask=ask):
            lines = ask("MEMORY", "STATS").splitlines()
            return int(lines[lines.index("allocator.resident") + 1])

        # Redis 8 says what it looked up some time before.
        test.wait_for(lambda most=allocated, resident=resident: resident() < most, f"{way.name}: MEMORY PURGE gives nothing back")
        test.note(f"{way.name}: {allocated >> 20} MiB allocated, {resident() >> 20} MiB resident when empty")
        test.stop(server)


def expect_answers(test, way, printed, wanted):
    """dig adds lines of its own where a query had to be repeated."""
    found = sum(line.startswith("192.0.2.") for line in printed.splitlines())
    test.expect(found == wanted, f"{way.name}: {found} answers of {wanted}")


@program("jemalloc-named", needs={"named": "bind9", "dig": "bind9-dnsutils"}, light=True, watches=["named", "dig"])
def named(test):
    """named and dig, whose library calls mallocx and sdallocx: a zone of 2000 names, reloaded while it is asked"""
    names = 2000
    records = "".join(f"h{number} IN A 192.0.2.{number % 250}\n" for number in range(names))
    (test.folder / "zone").write_text(ZONE + records)
    for way in ways(test, "named"):
        port, folder = test.free_port(), test.folder / way.name
        folder.mkdir()
        (folder / "conf").write_text(
            f'options {{ directory "{folder}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};'
            f' pid-file none; session-keyfile none; recursion no; dnssec-validation no; }}; controls {{ }};'
            f' zone "example.test" {{ type primary; file "{test.folder}/zone"; }};')
        server = test.start(["named", "-g", "-c", folder / "conf"], name=f"named-{way.name}", **way.options)

        def ask(name, port=port, way=way):
            return test.run(["dig", "+short", "+time=5", f"-p{port}", "@127.0.0.1", f"{name}.example.test"],
                            statuses=None, **way.options).stdout.strip()

        test.wait_for(lambda ask=ask: ask("h1") == "192.0.2.1", f"{way.name}: named does not answer", 60)
        (test.folder / "queries").write_text("".join(f"h{number}.example.test A\n" for number in range(names)))
        many = test.run(["dig", "+short", f"-p{port}", "@127.0.0.1", "-f", test.folder / "queries"], **way.options)
        expect_answers(test, way, many.stdout, names)
        for _ in range(3):
            server.send_signal(signal.SIGHUP)
            test.expect(ask("h7") == "192.0.2.7", f"{way.name}: named does not answer while it reloads")
        way.check([server.pid])
        test.stop(server)
    if test.library and way.name == "linked":  # both files in one process: the first serves, the second keeps still
        both = test.run(["dig", "-v"], preload=True, env={**way.options["env"], "SNUG": "verbose:1"})
        test.expect(both.stderr.count("active in PID") == 1, f"both files are active: {both.stderr}")


@program("jemalloc-kresd", needs={"kresd": "knot-resolver", "dig": "bind9-dnsutils"}, watches=["kresd"])
def kresd(test):
    """kresd, a resolver: 2000 answers from its own hints, and what it knows of its allocator"""
    for way in ways(test, "kresd"):
        port, folder = test.free_port(), test.folder / way.name
        folder.mkdir()
        (folder / "conf").write_text(
            f"net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})\nmodules = {{ 'hints > iterate' }}\n"
            "cache.size = 4 * MB\n" + "".join(f"hints['h{number}.example.com'] = '192.0.2.{number % 250}'\n" for number in range(500)))
        server = test.start(["kresd", "-n", "-c", folder / "conf", folder], name=f"kresd-{way.name}", **way.options)

        def ask(name, port=port):
            return test.run(["dig", "+short", "+time=5", f"-p{port}", "@127.0.0.1", f"{name}.example.com"], preload=False,
                            statuses=None).stdout.strip()

        test.wait_for(lambda ask=ask: ask("h1") == "192.0.2.1", f"{way.name}: kresd does not answer", 60)
        (test.folder / "queries").write_text("".join(f"h{number % 500}.example.com A\n" for number in range(2000)))
        many = test.run(["dig", "+short", f"-p{port}", "@127.0.0.1", "-f", test.folder / "queries"], preload=False)
        expect_answers(test, way, many.stdout, 2000)
        way.check([server.pid])
        test.stop(server)


def start_files(test):
    """A server of files behind those in front; returns its port."""
    www = test.folder / "www"
    www.mkdir()
    (www / "page.html").write_bytes(b"0123456789abcdef" * 4096)
    test.start(["/usr/bin/python3", test.scripts / "file_server.py", www, test.folder / "port"], preload=False,
               name="file_server")
    test.wait_for(lambda: (test.folder / "port").exists(), "the file server does not start")
    return int((test.folder / "port").read_text())


def fetch(test, what, url, times):
    """The page by so many requests, whole each time."""
    for number in range(times):
        test.run(["curl", "-sSf", "--http1.1", "-o", f"{what}{number}", url, url, "-o", "again"], preload=False)
        test.run(["cmp", "www/page.html", f"{what}{number}"], preload=False)


@program("jemalloc-varnish", needs={"varnishd": "varnish", "curl": "curl", "/usr/bin/python3": "python3"},
         watches=["varnishd"])
def varnish(test):
    """varnishd, which sets malloc_conf: it compiles a configuration, forks its worker, and caches"""
    backend = start_files(test)
    for way in ways(test, "varnishd"):
        port, folder = test.free_port(), test.folder / way.name
        server = test.start(["varnishd", "-F", "-j", "none", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{backend}",
                             "-n", folder, "-s", "malloc,64m"], name=f"varnishd-{way.name}", **way.options)
        test.wait_for(lambda port=port: test.accepts(port), f"{way.name}: varnishd does not listen", 90)
        fetch(test, way.name, f"http://127.0.0.1:{port}/page.html", 20 if test.quick else 100)
        way.check([server.pid, *test.pids("cache-main")])
        test.stop(server, statuses=(0, 2))


@program("jemalloc-nghttpx", needs={"nghttpx": "nghttp2-proxy", "h2load": "nghttp2-client", "curl": "curl",
                                    "/usr/bin/python3": "python3"}, watches=["nghttpx", "h2load"])
def nghttpx(test):
    """nghttpx, a proxy of HTTP/2, and h2load: thousands of requests over some connections"""
    backend = start_files(test)
    for way in ways(test, "nghttpx"):
        port, count = test.free_port(), 500 if test.quick else 5000
        server = test.start(["nghttpx", "--conf=/dev/null", f"--frontend=127.0.0.1,{port};no-tls",
                             f"--backend=127.0.0.1,{backend}", "--workers=2"], name=f"nghttpx-{way.name}", **way.options)
        test.wait_for(lambda port=port: test.accepts(port), f"{way.name}: nghttpx does not listen", 60)
        load = test.run(["h2load", "-n", str(count), "-c", "4", "-m", "8", f"http://127.0.0.1:{port}/page.html"], **way.options)
        test.expect(f"{count} succeeded, 0 failed" in load.stdout, f"{way.name}: {load.stdout[-300:]}")
        way.check(test.pids("nghttpx"))
        test.stop(server, signal.SIGQUIT)
        test.wait_for(lambda: not test.pids("nghttpx"), f"{way.name}: nghttpx leaves processes behind")


@program("jemalloc-found", needs={"/usr/bin/python3": "python3", "ruby": "ruby"}, light=True)
def found(test):
    """Programs that look for jemalloc: Synapse's way among their mappings, yabeda's by LD_PRELOAD; stats_print says it"""
    for way in ways(test)[1:]:
        environment = {"LD_PRELOAD": way.library, "MALLOC_CONF": "dirty_decay_ms:1000,narenas:2,background_thread:true"}
        for argv in (["/usr/bin/python3", test.scripts / "jemalloc_by_maps.py"], ["ruby", test.scripts / "jemalloc_by_preload.rb"]):
            result = test.run(argv, preload=False, env=environment)
            numbers = json.loads(result.stdout)
            test.expect(numbers["version"].startswith(PREFIX), f"{argv[0]}: version {numbers['version']}")
            test.expect(20_000_000 < numbers["grown"] < 30_000_000, f"{argv[0]}: 20 MB grew to {numbers['grown']} bytes")
            test.expect(numbers["allocated"] <= numbers["active"] <= numbers["mapped"], f"{argv[0]}: {numbers}")
            test.expect(not result.stderr, f"{argv[0]}: {result.stderr}")
        printed = test.run(["ruby", "-e", "exit"], preload=False,
                           env={**environment, "MALLOC_CONF": "stats_print:true"}).stderr
        test.expect("___ Begin jemalloc statistics ___" in printed and f'Version: "{PREFIX}' in printed, printed[:200])
