"""What every answer carries, whoever wrote it: its own id, the replica, and the request's key."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from landed.fastapi.key import BadKeyError, RequestKey, key_text

KEY_HEADER: Final = "idempotency-key"
_STATE: Final = "landed_request"
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Replica(NamedTuple):
    """What a replica says of itself with every answer."""

    name: str
    window_s: float
    """How long a key is promised to be remembered. Published, never a surprise (SW-55)."""


class RequestNotes:
    """What is known of one request while it is under way."""

    __slots__ = ("key", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.key: RequestKey | None = None


def notes_of(scope: MutableMapping[str, Any]) -> RequestNotes:
    """Return the notes of a request that went through the ``Edge``."""
    notes = scope.get("state", {}).get(_STATE)
    if not isinstance(notes, RequestNotes):
        raise TypeError("SafeWrites.install(app) was not called on the app that serves this route")
    return notes


class Edge:
    """ASGI middleware that gives every request an id and every answer its headers (SW-117)."""

    def __init__(self, app: ASGIApp, *, replica: Replica, mint: Callable[[], UUID]) -> None:
        self._app = app
        self._replica = replica
        self._mint = mint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; add to what comes back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        notes = RequestNotes(str(self._mint()))
        scope.setdefault("state", {})[_STATE] = notes

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(MutableHeaders(scope=message), scope, self._replica)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def add_headers(headers: MutableHeaders, scope: MutableMapping[str, Any], replica: Replica) -> None:
    """Add what is not there yet: replica and request id, and on a change all about its key."""
    notes = notes_of(scope)
    headers.setdefault("Service-Replica", replica.name)
    headers.setdefault("Request-Id", notes.request_id)
    key = notes.key.echo if notes.key is not None else _readable_key(scope)
    if key is not None:
        headers.setdefault("Idempotency-Key", key)
        headers.setdefault("Idempotency-Replayed", "false")
        headers.setdefault("Idempotency-Window", f"{replica.window_s:.15g}")


def _readable_key(scope: MutableMapping[str, Any]) -> str | None:
    """The key of a change that was refused before its key was looked at, if it has a good one."""
    lines = Headers(scope=scope).getlist(KEY_HEADER)
    if scope["method"] not in _CHANGING or len(lines) != 1:
        return None
    try:
        key_text(lines[0])
    except BadKeyError:
        return None
    return lines[0].strip(" \t")
