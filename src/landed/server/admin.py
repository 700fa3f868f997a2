"""Three questions of an operator, answered over HTTP: how much, is it alive, is it ready.

A responder of our own, for GET only and one request a connection: a web framework would be the
larger part of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, cast

from landed.errors import ListenFailedError

_REQUEST_BYTES_MAX: Final = 8 * 1024
"""Request line and headers; a scraper sends a few hundred bytes."""
_REQUEST_S_MAX: Final = 5.0
"""How long a request may take to arrive."""
_CONNECTIONS_MAX: Final = 64
"""Enough for any number of scrapers, too few to take the log's descriptors."""

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
PLAIN: Final = "text/plain; charset=utf-8"


class Reply:
    """What a page says now."""

    __slots__ = ("body", "kind", "status")

    def __init__(self, status: HTTPStatus, body: str, kind: str = PLAIN) -> None:
        self.status = status
        self.body = body
        self.kind = kind


Page = Callable[[], Reply]


class Admin:
    """The operator's port. Made by ``serve_admin``."""

    def __init__(self, listening: asyncio.Server, connections: set[_Asked]) -> None:
        name = listening.sockets[0].getsockname()
        self.host: str = name[0]
        self.port: int = name[1]
        self._listening = listening
        self._connections = connections

    async def close(self) -> None:
        """Stop answering."""
        self._listening.close()
        for connection in list(self._connections):
            connection.abort()


async def serve_admin(pages: Mapping[str, Page], *, host: str, port: int) -> Admin:
    """Answer GET requests for these paths; port 0 picks one.

    Raises:
        ListenFailedError: the address is taken, not ours or not allowed.
    """
    connections: set[_Asked] = set()
    loop = asyncio.get_running_loop()
    try:
        listening = await loop.create_server(lambda: _Asked(pages, connections), host, port)
    except OSError as error:
        raise ListenFailedError.of(host, port, error) from error
    return Admin(listening, connections)


class _Asked(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(self, pages: Mapping[str, Page], connections: set[_Asked]) -> None:
        self._pages = pages
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._connections) >= _CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_REQUEST_S_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._answer(*_asked_for(self._pages, bytes(self._received)))
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._answer(
                Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too long\n"), has_body=True
            )

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, reply: Reply, has_body: bool) -> None:
        body = reply.body.encode()
        head = (
            f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n"
            f"Content-Type: {reply.kind}\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        if self._transport is not None:
            self._transport.write(head.encode() + (body if has_body else b""))
            self._transport.close()


def _asked_for(pages: Mapping[str, Page], request: bytes) -> tuple[Reply, bool]:
    """The reply to a request, and whether its body is wanted."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Reply(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request\n"), True
    method, target, _version = words
    if method not in ("GET", "HEAD"):
        return Reply(HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n"), True
    page = pages.get(target.partition("?")[0])
    if page is None:
        listed = " ".join(pages)
        return Reply(HTTPStatus.NOT_FOUND, f"there is: {listed}\n"), method == "GET"
    return page(), method == "GET"
