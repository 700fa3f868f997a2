"""The boundary over HTTP: an ASGI application that runs alone or is mounted into another one.

``POST /{endpoint}`` takes deliveries; ``OPTIONS /{endpoint}`` answers the CloudEvents webhook
handshake; ``/.well-known/landed`` says how long repeats are recognised; ``/healthz`` says whether
receipts can be written. What is read is bounded while it is read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from landed.deliveries.event import Rejected
from landed.errors import LandedError
from landed.intake.problems import problem
from landed.intake.receive import Acknowledged, Intake, word_of
from landed.intake.wellknown import describe
from landed.records.session import ping

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

RECEIPT_HEADER: Final = b"landed-receipt"
DISPOSITION_HEADER: Final = b"landed-disposition"


class _Gone(Exception):  # noqa: N818  # the sender left; there is nobody to answer
    """The sender left before its request was complete."""


class IntakeApp:
    """An ASGI application around an ``Intake``.

    Args:
        intake: the boundary; started by the first delivery, or by the server's lifespan.
        prefix: taken off the path, where the server does not do it.
    """

    def __init__(self, intake: Intake, *, prefix: str = "") -> None:
        self.intake = intake
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case _:
                # A websocket is refused by closing it before it was accepted.
                await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.intake.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.intake.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            status, headers, body = await self._answer(scope, receive)
        except _Gone:
            return
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"content-length", str(len(body)).encode())],
            }
        )
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )
        if status == 202:
            self.intake.note("kp", {"point": "KP-4"})

    async def _answer(
        self, scope: Message, receive: Receive
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        path = self._path(scope)
        method = scope["method"]
        if path == ".well-known/landed" and method in ("GET", "HEAD"):
            return await self._described()
        if path == "healthz" and method in ("GET", "HEAD"):
            return await self._health()
        if method == "OPTIONS":
            return self._handshake(path, scope)
        if method != "POST":
            is_endpoint = path in self.intake.endpoints
            return problem(Rejected(status=405 if is_endpoint else 404, reason="not_a_delivery"))
        if not path or "/" in path:
            return problem(Rejected(status=404, reason="not_a_delivery"))
        return await self._delivery(path, scope, receive)

    async def _delivery(
        self, endpoint: str, scope: Message, receive: Receive
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        headers = self._headers(scope)
        if isinstance(headers, Rejected):
            return problem(self.intake.refuse(headers))
        if endpoint not in self.intake.endpoints:
            return problem(
                self.intake.refuse(
                    Rejected(status=403, reason="no_endpoint", detail="no endpoint has this name")
                )
            )
        body = await self._body(endpoint, headers, receive)
        if isinstance(body, Rejected):
            return problem(self.intake.refuse(body))
        answer = await self.intake.receive(endpoint, headers, body)
        return problem(answer) if isinstance(answer, Rejected) else acknowledged(answer)

    def _path(self, scope: Message) -> str:
        path: str = scope["path"]
        for prefix in (scope.get("root_path", ""), self._prefix):
            if prefix and path.startswith(prefix + "/"):
                path = path[len(prefix) :]
        return path.removeprefix("/")

    def _headers(self, scope: Message) -> dict[str, list[str]] | Rejected:
        bounds = self.intake.bounds
        lines = scope["headers"]
        if len(lines) > bounds.headers:
            return _bad(f"more than {bounds.headers} headers")
        if sum(len(name) + len(value) for name, value in lines) > bounds.header_bytes:
            return _bad(f"more than {bounds.header_bytes} bytes of headers")
        headers: dict[str, list[str]] = {}
        for name, value in lines:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return headers

    async def _body(
        self, endpoint: str, headers: dict[str, list[str]], receive: Receive
    ) -> bytes | Rejected:
        """Read a body up to the endpoint's limit, and not one chunk further."""
        limit = self.intake.body_bytes_max(endpoint)
        too_large = Rejected(
            status=413, reason="too_large", detail=f"a body has at most {limit} bytes here"
        )
        stated = headers.get("content-length", [""])[0]
        if stated.isdecimal() and (len(stated) > 18 or int(stated) > limit):
            return too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.intake.bounds.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        return too_large
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            return _bad("the body did not arrive in time")

    def _handshake(
        self, endpoint: str, scope: Message
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Answer for declared origins only (rule AU-10); the request is never echoed otherwise."""
        headers = self._headers(scope)
        if isinstance(headers, Rejected):
            return problem(self.intake.refuse(headers))
        origins = headers.get("webhook-request-origin", ())
        namespaces = self.intake.endpoints.get(endpoint, ())
        producers = [self.intake.registry.producers[name] for name in namespaces]
        for producer in producers:
            if len(origins) == 1 and origins[0] in producer.webhook_origins:
                rate = producer.rate_per_s
                allowed = "*" if rate is None else str(max(1, int(rate * 60)))
                return (
                    200,
                    [
                        (b"webhook-allowed-origin", origins[0].encode("latin-1")),
                        (b"webhook-allowed-rate", allowed.encode()),
                        (b"allow", b"POST, OPTIONS"),
                    ],
                    b"",
                )
        return problem(
            self.intake.refuse(
                Rejected(status=403, reason="origin", detail="this origin is not declared here")
            )
        )

    async def _described(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        try:
            described = await asyncio.to_thread(describe, self.intake.engine, self.intake.registry)
        except LandedError:
            return problem(Rejected(status=503, reason="unavailable", retry_after_s=1))
        return _json(200, described)

    async def _health(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        try:
            await asyncio.to_thread(ping, self.intake.engine)
        except LandedError:
            return problem(Rejected(status=503, reason="unavailable", retry_after_s=1))
        return _json(200, {"status": "ok"})


def acknowledged(answer: Acknowledged) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """202: durably held. Of a single event its receipt and disposition are headers as well."""
    events = [
        {"disposition": word_of(item)}
        if isinstance(item, Rejected)
        else {"disposition": word_of(item), "receipt": str(item.receipt_id)}
        for item in answer.items
    ]
    status, headers, body = _json(202, {"events": events})
    if len(events) == 1:
        headers.append((DISPOSITION_HEADER, events[0]["disposition"].encode()))
        headers.append((RECEIPT_HEADER, events[0].get("receipt", "").encode()))
    return status, headers, body


def _json(status: int, document: object) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    return status, [(b"content-type", b"application/json")], json.dumps(document).encode()


def _bad(detail: str) -> Rejected:
    return Rejected(status=400, reason="bad_syntax", detail=detail)
