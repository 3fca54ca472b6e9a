"""A redis-server of our own on a unix socket, and as much of a client as the drivers need."""

import socket

from .session import require_program

REDIS_SERVER = "/usr/bin/redis-server"


class Redis:
    """Speaks the protocol RESP2 with one server, one command at a time."""

    def __init__(self, socket_path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(socket_path))
        self._stream = self._socket.makefile("rb")

    def command(self, *arguments):
        return self.pipeline([arguments])[0]

    def pipeline(self, commands):
        """Sends all commands at once and returns all answers."""
        request = bytearray()
        for arguments in commands:
            request += b"*%d\r\n" % len(arguments)
            for argument in arguments:
                data = argument if isinstance(argument, bytes) else str(argument).encode()
                request += b"$%d\r\n%s\r\n" % (len(data), data)
        self._socket.sendall(request)
        return [self._read_answer() for _ in commands]

    def close(self):
        self._stream.close()
        self._socket.close()

    def _read_answer(self):
        line = self._stream.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self._stream.read(length + 2)[:-2]
        if kind == b"*":
            return [self._read_answer() for _ in range(int(rest))]
        raise ConnectionError(f"redis answered {line!r}")


def start(session):
    """Starts redis-server for this session, in memory only. Returns (client, path of its socket)."""
    require_program(REDIS_SERVER)
    socket_path = session.directory / "redis.sock"
    process = session.start_helper("redis", [
        REDIS_SERVER, "--port", "0", "--unixsocket", socket_path, "--unixsocketperm", "700",
        "--dir", session.directory, "--save", "", "--appendonly", "no", "--daemonize", "no",
    ])
    session.wait_until(lambda: "ready to accept connections" in process.log_path.read_text().lower(), "starting redis-server")
    return Redis(socket_path), socket_path
