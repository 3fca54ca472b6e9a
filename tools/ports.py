"""Ports for tests of servers."""

import random
import socket


def free_port():
    """A TCP port of 127.0.0.1 that nobody listens on. It is below those that the kernel gives to connections and to who
    asks for any port: nobody takes it before the server of the test does."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
