# Serves a folder on a free port of the loopback interface. usage: file_server.py FOLDER PORT_FILE
import functools
import http.server
import os
import sys

folder, port_file = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    with open(port_file + ".new", "w") as out:
        out.write(str(server.server_port))
    os.rename(port_file + ".new", port_file)
    server.serve_forever()
