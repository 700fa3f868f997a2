"""As much of HTTP/1.1 as the demo's balancer needs: one request head, one whole answer."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Final, NamedTuple

_HOP_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "upgrade", "expect"}
)
"""They speak of one connection; the one to the replica is ours."""


class BadRequestError(Exception):
    """The request cannot be passed on honestly."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RequestHead(NamedTuple):
    """A request line and its headers, and the lines as they came."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case; of a repeated one the last value."""
    lines: tuple[bytes, ...]
    content_length: int

    @property
    def expects_continue(self) -> bool:
        """The client waits for leave before it sends its body."""
        return self.headers.get("expect", "").lower() == "100-continue"


def parse_head(data: bytes, *, body_max: int) -> RequestHead:
    """Read a head that ends with its empty line.

    Raises:
        BadRequestError: not HTTP/1, a body above ``body_max`` bytes, or one whose length two
            readers could disagree about.
    """
    first, *lines = data[:-4].split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
    except ValueError:
        raise BadRequestError(400, "not an HTTP request") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequestError(505, "only HTTP/1.0 and 1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, "a header line is malformed")
        if name.lower() == "content-length" and name.lower() in headers:
            raise BadRequestError(400, "more than one Content-Length")
        headers[name.lower()] = value.strip(" \t")
    if "transfer-encoding" in headers:
        raise BadRequestError(411, "send a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or len(length) > 18:
        raise BadRequestError(400, "the Content-Length is no number")
    if int(length) > body_max:
        raise BadRequestError(413, "the body is too large")
    return RequestHead(method, target, headers, (first, *lines), int(length))


def without_hop_headers(head: RequestHead) -> bytes:
    """The head to pass on: every line as it came, but those about the connection."""
    kept = [
        line
        for index, line in enumerate(head.lines)
        if index == 0 or line.partition(b":")[0].decode("latin-1").lower() not in _HOP_HEADERS
    ]
    return b"\r\n".join([*kept, b"connection: close", b"", b""])


def answer(
    status: int,
    *,
    title: str,
    outcome: str = "not_applied",
    is_retryable: bool = False,
) -> bytes:
    """A problem document of the balancer's own, as a whole answer that ends its connection."""
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": title,
        "outcome": outcome,
        "retryable": is_retryable,
    }
    headers = ["Retry-After: 1"] if is_retryable else []
    return whole_answer(status, problem, kind="application/problem+json", headers=headers)


def whole_answer(
    status: int,
    document: object,
    *,
    kind: str = "application/json",
    headers: list[str] | None = None,
) -> bytes:
    """A JSON answer that ends its connection."""
    body = json.dumps(document).encode()
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
        *(headers or []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def ask(
    host: str, port: int, path: str, *, body: object = None, key: str = ""
) -> tuple[int, dict[str, object]]:
    """Send one request of the demo's own; return the status and the JSON answered.

    Raises:
        OSError, ValueError: no answer, or none that can be read.
    """
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {host}:{port}"]
    lines += ["Connection: close", f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"Idempotency-Key: {key}"] if key else []
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        answered = await reader.read()
    finally:
        writer.close()
    head, _, rest = answered.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(rest)
