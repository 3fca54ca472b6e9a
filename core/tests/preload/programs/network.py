import hashlib

from catalog import program

FILES = {"small.txt": 3_000, "page.html": 70_000, "large.bin": 20_000_000}


def content(name, size_bytes):
    block = hashlib.sha512(name.encode()).hexdigest().encode() + b"\n"
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def write_files(folder):
    folder.mkdir()
    for name, size_bytes in FILES.items():
        (folder / name).write_bytes(content(name, size_bytes))


def make_certificate(test):
    test.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
              "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])


@program("openssl", needs={"openssl": "openssl"}, light=True, proves=["openssl version"], watches=["openssl"])
def openssl(test):
    """openssl: keys, certificates, encryption round trips, speed on two processes"""
    make_certificate(test)
    verified = test.run(["openssl", "verify", "-CAfile", "cert.pem", "cert.pem"])
    test.expect("cert.pem: OK" in verified.stdout, "the certificate does not verify")
    (test.folder / "plain").write_bytes(content("plain", 30_000_000))
    for cipher in ("aes-256-cbc", "chacha20", "aria-128-ctr"):
        test.run(["openssl", "enc", f"-{cipher}", "-pbkdf2", "-k", "word", "-in", "plain", "-out", "secret"])
        test.run(["openssl", "enc", "-d", f"-{cipher}", "-pbkdf2", "-k", "word", "-in", "secret", "-out", "back"])
        test.run(["cmp", "plain", "back"])
    test.same_as_plain(["openssl", "dgst", "-sha3-512", "plain"])
    speed = test.run(["openssl", "speed", "-seconds", "1", "-multi", "2", "-mr", "rsa2048", "ecdsap256", "sha256"])
    test.expect("+F2:" in speed.stdout or "+F:" in speed.stdout, "openssl speed printed no result")


@program("curl", needs={"curl": "curl", "wget": "wget", "/usr/bin/python3": "python3"}, light=True,
         proves=["curl --version", "wget --version"])
def curl(test):
    """curl and wget: versions, and downloads in parallel from a local server"""
    write_files(test.folder / "www")
    test.start(["/usr/bin/python3", test.scripts / "file_server.py", test.folder / "www", test.folder / "port"],
               preload=False, name="file_server")
    test.wait_for(lambda: (test.folder / "port").exists(), "the file server does not start")
    base = f"http://127.0.0.1:{(test.folder / 'port').read_text()}"
    downloads = 20 if test.quick else 200
    names = [list(FILES)[number % 2] for number in range(downloads)] + ["large.bin"] * 3
    targets = [part for number, name in enumerate(names) for part in ("-o", f"curl{number}", f"{base}/{name}")]
    test.run(["curl", "-sSf", "--parallel", "--parallel-max", "8"] + targets)
    test.run(["wget", "-q", "-r", "-nH", "-P", "wget"] + [f"{base}/{name}" for name in FILES])
    for number, name in enumerate(names):
        test.run(["cmp", f"www/{name}", f"curl{number}"], preload=False)
    for name in FILES:
        test.run(["cmp", f"www/{name}", f"wget/{name}"], preload=False)
    test.note(f"{len(names) + len(FILES)} files")


@program("nginx", needs={"nginx": "nginx-light", "curl": "curl", "openssl": "openssl"}, light=True, proves=["nginx -v"],
         watches=["nginx"])
def nginx(test):
    """nginx: two workers, HTTPS, gzip, proxying, and a reload while requests run"""
    write_files(test.folder / "www")
    make_certificate(test)
    for folder in ("body", "proxy"):
        (test.folder / folder).mkdir(mode=0o777)
    configuration = (test.scripts / "nginx.conf").read_text().replace("@FOLDER@", str(test.folder))
    (test.folder / "nginx.conf").write_text(configuration)
    nginx_here = ["nginx", "-p", test.folder, "-c", test.folder / "nginx.conf", "-e", test.logs / "nginx_error.log"]
    server = test.start(nginx_here)
    sockets = ("https.socket", "proxy.socket")
    test.wait_for(lambda: all((test.folder / name).exists() for name in sockets), "nginx does not open its sockets")
    rounds = 3 if test.quick else 15
    for _ in range(rounds):
        for name in FILES:
            for options in ([], ["--compressed"]):
                fetch(test, "https.socket", name, options)
            fetch(test, "proxy.socket", name, ["--compressed"])
        test.run(nginx_here + ["-s", "reload"])
    test.stop(server)
    errors = (test.logs / "nginx_error.log").read_text() if (test.logs / "nginx_error.log").exists() else ""
    test.expect("exited on signal" not in errors, "a worker of nginx was killed by a signal, see nginx_error.log")
    test.note(f"{rounds} reloads")


def fetch(test, socket, name, options):
    # nginx may close a new connection while it reloads, whatever the allocator is.
    test.run(["curl", "-sSf", "--retry", "5", "--retry-all-errors", "--cacert", "cert.pem", "--unix-socket", test.folder / socket, *options,
              "-o", "fetched", f"https://localhost/{name}"])
    test.run(["cmp", f"www/{name}", "fetched"], preload=False)
