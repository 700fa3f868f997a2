"""A proxy that pools transactions, as PgBouncer does: a client has a server for one transaction only.

Sessions of clients therefore hop between servers, and whatever a client leaves behind in a session
(settings, named statements, locks) is another client's next.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import make_url

_NO_ENCRYPTION: Final = (80877103, 80877104)  # requests for TLS and GSSAPI
_ANSWERED: Final = (b"Q", b"S")  # what the server ends its answer to, with ReadyForQuery
_GREETING: Final = {
    "server_version": "18.0",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
}


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def read_message(sock: socket.socket) -> tuple[bytes, bytes]:
    kind = read(sock, 1)
    (length,) = struct.unpack("!i", read(sock, 4))
    return kind, read(sock, length - 4)


class Pooler:
    """Listens on a port of its own; ``hops`` counts how often a client got another server."""

    def __init__(self, url: str, *, servers: int) -> None:
        self._url = make_url(url)
        self._servers: queue.Queue[socket.socket] = queue.Queue()
        self.hops = 0
        for _ in range(servers):
            self._servers.put(self._connect())
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = self._url.set(host="127.0.0.1", port=port, query={})
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # A listener that is only closed would go on waiting.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)
        while not self._servers.empty():
            self._servers.get().close()

    def _connect(self) -> socket.socket:
        url = self._url
        host = url.query.get("host", url.host or "127.0.0.1")
        if str(host).startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{url.port or url.query.get('port', 5432)}")
        else:
            server = socket.create_connection((str(host), url.port or 5432))
        words = ["user", url.username or "postgres", "database", url.database or "postgres", ""]
        body = struct.pack("!i", 196608) + b"\0".join(w.encode() for w in words) + b"\0"
        server.sendall(struct.pack("!i", len(body) + 4) + body)
        while read_message(server)[0] != b"Z":
            pass
        return server

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        last: socket.socket | None = None
        with client, suppress(ConnectionError, OSError):
            self._greet(client)
            while True:
                kind, body = read_message(client)
                if kind == b"X":
                    break
                if server is None:
                    server = self._servers.get()
                    self.hops += last not in (None, server)
                    last = server
                server.sendall(message(kind, body))
                if kind in _ANSWERED and self._relay(server, client) == b"I":
                    self._servers.put(server)
                    server = None
        if server is not None:  # it left within a transaction
            server.sendall(message(b"S", b"") + message(b"Q", b"ROLLBACK\0"))
            for _ in range(2):
                while read_message(server)[0] != b"Z":
                    pass
            self._servers.put(server)

    @staticmethod
    def _greet(client: socket.socket) -> None:
        while True:
            (length,) = struct.unpack("!i", read(client, 4))
            (code,) = struct.unpack("!i", read(client, length - 4)[:4])
            if code not in _NO_ENCRYPTION:
                break
            client.sendall(b"N")
        told = message(b"R", struct.pack("!i", 0))
        for name, value in _GREETING.items():
            told += message(b"S", f"{name}\0{value}\0".encode())
        client.sendall(told + message(b"K", struct.pack("!ii", 1, 1)) + message(b"Z", b"I"))

    @staticmethod
    def _relay(server: socket.socket, client: socket.socket) -> bytes:
        while True:
            kind, body = read_message(server)
            client.sendall(message(kind, body))
            if kind == b"Z":
                return body


@contextmanager
def pooled(url: str, *, servers: int = 3) -> Iterator[Pooler]:
    running = Pooler(url, servers=servers)
    try:
        yield running
    finally:
        running.close()
