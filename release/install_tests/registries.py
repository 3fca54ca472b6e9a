"""Registries on the loopback, each as its users' own programs expect it: uploads with the right token, and downloads.

They stand in for PyPI, RubyGems and crates.io up to the credential: each refuses an upload without one, as those do.
"""

import base64
import contextlib
import email.parser
import email.policy
import functools
import hashlib
import http.server
import json
import re
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from release.install_tests.roots import check

TOKEN = "for-tests"


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder."""

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def say(self, status, text=""):
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def allowed(self, token):
        """Whether the header names this token. Says no by itself."""
        self.upload = self.body()
        if self.headers.get("Authorization") == token:
            return True
        self.say(401, "Access denied. A token is missing, or wrong.")
        return False

    @property
    def folder(self):
        return Path(self.directory)


class PyPI(Files):
    """https://docs.pypi.org/api/upload/ and PEP 503."""

    def do_POST(self):
        if not self.allowed("Basic " + base64.b64encode(f"__token__:{TOKEN}".encode()).decode()):
            return
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        fields = {}
        for part in email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.upload).iter_parts():
            fields[part.get_param("name", header="content-disposition")] = part.get_filename(), part.get_payload(decode=True)
        name, content = fields["content"]
        if hashlib.sha256(content).hexdigest() != fields["sha256_digest"][1].decode().strip():
            self.say(400, "the digest is another one")
            return
        project = self.folder / "simple" / re.sub(r"[-_.]+", "-", fields["name"][1].decode().strip()).lower()
        project.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(content)
        (project / "index.html").write_text("".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(project.glob("*.whl"))))
        self.say(200)


class RubyGems(Files):
    """POST /api/v1/gems of https://guides.rubygems.org/rubygems-org-api/; the index is made by RubyGems' own command."""

    def do_POST(self):
        if not self.allowed(TOKEN):
            return
        with tempfile.NamedTemporaryFile(suffix=".gem") as file:
            file.write(self.upload)
            file.flush()
            name = check(["ruby", "-rrubygems/package", "-e", "puts Gem::Package.new(ARGV[0]).spec.full_name", file.name]).strip()
        (self.folder / "gems").mkdir(exist_ok=True)
        (self.folder / f"gems/{name}.gem").write_bytes(self.upload)
        check(["gem", "generate_index", "--directory", str(self.folder)])
        self.say(200, f"Successfully registered gem: {name}")


class CratesIo(Files):
    """https://doc.rust-lang.org/cargo/reference/registry-web-api.html, with a sparse index."""

    def do_GET(self):
        if self.path == "/index/config.json":
            site = f"http://{self.headers['Host']}"
            self.say(200, json.dumps({"dl": f"{site}/crates/{{crate}}-{{version}}.crate", "api": site}))
        else:
            super().do_GET()

    def do_PUT(self):
        if not self.allowed(TOKEN):
            return
        size, = struct.unpack_from("<I", self.upload)
        described = json.loads(self.upload[4 : 4 + size])
        content = self.upload[8 + size :]
        name, version = described["name"], described["vers"]
        dependencies = [{"req": one.pop("version_req"), "package": None} | one for one in described["deps"]]
        line = {"name": name, "vers": version, "deps": dependencies, "cksum": hashlib.sha256(content).hexdigest(), "features": described["features"],
                "yanked": False, "links": described["links"]}
        place = self.folder / "index" / name[:2] / name[2:4]
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(json.dumps(line) + "\n")
        (self.folder / "crates").mkdir(exist_ok=True)
        (self.folder / f"crates/{name}-{version}.crate").write_bytes(content)
        self.say(200, json.dumps({"warnings": {"invalid_categories": [], "invalid_badges": [], "other": []}}))


@contextlib.contextmanager
def served(folder, handler=Files):
    """The address of a server for the folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def of_images(folder):
    """The address, without a scheme, of Debian's docker-registry, which keeps its images in the folder."""
    with served(folder) as free:
        address = free.removeprefix("http://")
    config = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": f"{folder}/images"}}, "http": {"addr": address}}
    Path(folder, "config.json").write_text(json.dumps(config))  # which is YAML
    with subprocess.Popen(["docker-registry", "serve", f"{folder}/config.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as registry:
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(f"http://{address}/v2/").close()
                    break
                except OSError:
                    if registry.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
            yield address
        finally:
            registry.terminate()
