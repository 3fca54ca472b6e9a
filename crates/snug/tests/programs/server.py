"""A server for tests, on the port given: / answers, /grow keeps a megabyte for each request and /keep 20 kB, /missing
is a 404, /error a 500, /die ends it. The second argument says what else it does."""
import http.server
import os
import signal
import subprocess
import sys
import time

port, how = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
if how == "exit":
    print("the cause of it", file=sys.stderr)
    sys.exit(3)
if how == "slow":
    time.sleep(60)
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "child":
    subprocess.Popen(["sleep", f"5151.{port}"], start_new_session=True)
kept = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/grow":
            kept.append(bytearray(os.urandom(1 << 20)))
        if self.path == "/keep":
            time.sleep(0.005)
            kept.append(bytearray(os.urandom(20_000)))
        if self.path == "/die":
            os._exit(9)
        status = {"/missing": 404, "/error": 500}.get(self.path, 200)
        body = b"kept " + str(len(kept)).encode() + self.headers.get("X-Who", "").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer.daemon_threads = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print("Listening on", port, flush=True)
server.serve_forever()
