#!/usr/bin/env python3
"""Builds the site and looks at it as a visitor's browser does: links, what is loaded from elsewhere, width of a phone."""

import html.parser
import http.server
import json
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "build/site"
BROWSER_SECONDS = 120
WIDTHS = (1280, 390)  # CSS pixels: a desktop, a phone
LOOKED_AT = ("index.html", "docs/index.html", "docs/how-to/jemalloc.html", "commands/compare.html", "examples/index.html",
             "examples/report.html", "examples/profile.html", "bench/results/2026-11-27-full/index.html", "docs/decisions/0004-purging-is-paid-in-cpu-time.html")
# Shows pages in windows of a width, one after the other, and tells the server how wide their content and their window are.
FRAMES = """<!doctype html><body><script>
(async () => {
  const said = [];
  for (const [page, width] of %s) {
    const frame = document.createElement("iframe");
    frame.src = "/" + page;
    frame.style = `width:${width}px;height:900px;border:0`;
    await new Promise(loaded => { frame.onload = loaded; document.body.append(frame); });
    const shown = frame.contentDocument.documentElement;
    said.push({page, width, content: shown.scrollWidth, window: shown.clientWidth, search: !!shown.querySelector(".md-search:not([hidden])")});
    frame.remove();
  }
  await fetch("/said", {method: "POST", body: JSON.stringify(said)});
})();
</script>"""


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the places in it that a link may name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.names = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names.update(values[name] for name in ("id", "name") if values.get(name))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("next", "prev", "canonical"):
            self.loads.append(values["href"])
        elif values.get("src"):
            self.loads.append(values["src"])


class Server(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=str(SITE))

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path != "/frames":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((FRAMES % json.dumps([(page, width) for page in LOOKED_AT for width in WIDTHS])).encode())

    def do_POST(self):
        self.server.said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        built = subprocess.run([ROOT / "docs/site/build"], capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
        cls.pages = {path: Page(path) for path in sorted(SITE.rglob("*.html"))}
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        cls.server.said = queue.Queue()
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def test_links_lead_somewhere(self):
        for path, page in self.pages.items():
            for link in page.links:
                address = urllib.parse.urlsplit(link)
                if address.scheme or link.startswith("//"):
                    continue
                # 404.html is shown in place of any page, so its links begin at the top.
                place = SITE / address.path.lstrip("/") if address.path.startswith("/") else path.parent / urllib.parse.unquote(address.path)
                target = (place if address.path else path).resolve()
                target = target / "index.html" if target.is_dir() else target
                with self.subTest(page=str(path.relative_to(SITE)), link=link):
                    self.assertTrue(target.is_file())
                    if address.fragment and target in self.pages:
                        self.assertIn(urllib.parse.unquote(address.fragment), self.pages[target].names)

    def test_nothing_is_loaded_from_elsewhere(self):
        for path, page in self.pages.items():
            foreign = [one for one in page.loads if re.match(r"([a-z]+:)?//", one) and not one.startswith("data:")]
            self.assertEqual(foreign, [], path)

    def test_every_document_and_command_has_its_page(self):
        pages = [path for folder in ("tutorial", "how-to", "reference", "explanation") for path in (ROOT / "docs" / folder).glob("*.md")]
        self.assertGreater(len(pages), 20)
        for name in ("docs/index", *(str(path.relative_to(ROOT).with_suffix("")) for path in pages)):
            self.assertIn(SITE / f"{name}.html", self.pages)
            self.assertIn(f"{name}.html", self.pages[SITE / "index.html"].links)
        listed = subprocess.run([ROOT / "build/snug", "--help"], capture_output=True, text=True).stdout
        commands = re.findall(r"^  ([a-z]+) ", listed.partition("Commands:")[2].partition("\n\n")[0], re.M)
        self.assertGreater(len(commands), 10)
        for name in set(commands) - {"help"}:
            self.assertIn(f"Usage: snug {name}", (SITE / f"commands/{name}.html").read_text())

    def test_pages_fit_a_desktop_and_a_phone(self):
        chromium = shutil.which("chromium")
        self.assertIsNotNone(chromium, "tools/install-deps test")
        address = f"http://127.0.0.1:{self.server.server_address[1]}/frames"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its processes end a little later
            browser = subprocess.Popen([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                                        f"--user-data-dir={profile}", "--window-size=1400,1000", "--remote-debugging-port=0", address],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                seen = self.server.said.get(timeout=BROWSER_SECONDS)
            finally:
                browser.terminate()
                browser.wait()
        self.assertEqual([(one["page"], one["width"]) for one in seen], [(page, width) for page in LOOKED_AT for width in WIDTHS])
        for one in seen:
            with self.subTest(page=one["page"], width=one["width"]):
                self.assertLessEqual(one["content"], one["window"])
                self.assertTrue(one["search"] or one["page"].startswith("examples/"))


if __name__ == "__main__":
    unittest.main()
