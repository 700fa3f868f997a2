"""The HTTP side of a recipient, for Starlette and FastAPI: headers in, problem+json out (RP-10).

``Recipient.act`` runs a plain function in one guarded transaction; ``Recipient.routes`` are the
questions. Who opens transactions otherwise uses ``asked_of`` and ``problem``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from landed.clock import Clock, SystemClock
from landed.effects.headers import FenceText, parse_expires, parse_fence
from landed.errors import RetryTransactionError
from landed.fingerprint import fingerprint_raw
from landed.recipient.guard import WAIT_S, Answer, guard
from landed.recipient.migrations import create_tables
from landed.recipient.promises import WELL_KNOWN, Promises, describe
from landed.recipient.questions import Found, KeyState, seal, status
from landed.recipient.refusals import RETRY_AFTER_S, Reason, RequestRefusedError

T = TypeVar("T")

BODY_BYTES_MAX: Final = 1024 * 1024
_TRIES: Final = 3
_REFUSED: Final = "refused"
"""The state of a key whose stored answer says that nothing was done. Asked about, it is answered as
if absent, and sealed as if it never acted: a sender who reads only statuses confirms nothing."""
_RETRYABLE_STATES: Final = frozenset({"40001", "40P01"})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as its headers say it."""

    key: str
    fence: FenceText | None
    expires_us: int | None
    body: bytes

    @property
    def fingerprint(self) -> bytes:
        return fingerprint_raw(self.body).digest


def asked_of(headers: Mapping[str, str], body: bytes) -> Asked:
    """Read ``Idempotency-Key``, ``Landed-Fence`` and ``Landed-Expires``.

    Args:
        headers: with names that match in any case, as Starlette's do.
        body: the raw bytes; their digest is the payload's fingerprint.

    Raises:
        RequestRefusedError: the key is missing, or a header is none (reason MALFORMED).
    """
    key = headers.get("idempotency-key", "")
    if not key:
        raise RequestRefusedError(Reason.MALFORMED, "Idempotency-Key is required")
    fence, expires = headers.get("landed-fence"), headers.get("landed-expires")
    try:
        return Asked(
            key,
            None if fence is None else parse_fence(fence),
            None if expires is None else parse_expires(expires),
            body,
        )
    except ValueError as e:
        raise RequestRefusedError(Reason.MALFORMED, str(e)) from None


def problem(refused: RequestRefusedError) -> Response:
    """The refusal as an RFC 9457 problem."""
    document = {
        "type": f"urn:landed:recipient:{refused.reason}",
        "title": refused.reason.replace("-", " "),
        "status": refused.status,
        "detail": refused.detail,
    }
    if refused.current_version is not None:
        document["current_version"] = refused.current_version
    headers = {}
    if refused.reason is Reason.IN_PROGRESS:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return JSONResponse(
        document, refused.status, headers=headers, media_type="application/problem+json"
    )


class Recipient:
    """One service as a recipient over HTTP.

    Args:
        engine: the service's own; a SQLite one should begin its transactions as a writer.
        promises: what is published, and kept.
        scope_of: says whose keys a request uses, from what authenticated it. Must not be taken
            from what a sender can choose freely.
        wait_s: how long a request waits for another under its key.
        clock: for tests.
    """

    def __init__(
        self,
        engine: Engine,
        promises: Promises,
        *,
        scope_of: Callable[[Request], str],
        wait_s: float = WAIT_S,
        clock: Clock | None = None,
    ) -> None:
        self.engine = engine
        self.promises = promises
        self._scope_of = scope_of
        self._wait_s = wait_s
        self._clock = SystemClock() if clock is None else clock

    def prepare(self) -> None:
        """Make the tables where they are missing."""
        with self.engine.begin() as conn:
            create_tables(conn)

    async def act(self, request: Request, work: Callable[[Connection, Asked], Answer]) -> Response:
        """Act once under the request's key, or give the first answer again.

        Args:
            request: from the route.
            work: the business change, on a thread, inside the one transaction. Its answer is
                stored; if it raises, nothing is, and a repeat acts.
        """
        try:
            body = await _read(request)
            asked = asked_of(request.headers, body)
            scope = self._scope_of(request)
            answer, is_replayed = await asyncio.to_thread(
                self._transact, lambda conn: self._act(conn, scope, asked, work)
            )
        except RequestRefusedError as refused:
            return problem(refused)
        headers = {"Landed-Replayed": "true"} if is_replayed else {}
        return Response(answer.body, answer.status, headers, answer.content_type)

    def routes(self, prefix: str = "/landed/keys") -> list[Route]:
        """``/.well-known/landed-recipient``, ``GET PREFIX/KEY`` and ``POST PREFIX/KEY/seal``."""
        routes = [Route(WELL_KNOWN, self._describe)]
        if self.promises.has_lookup:
            routes.append(Route(prefix + "/{key}", self._status))
        if self.promises.has_seal:
            routes.append(Route(prefix + "/{key}/seal", self._seal, methods=["POST"]))
        return routes

    # --- Inside ---------------------------------------------------------------------------------

    def _act(
        self,
        conn: Connection,
        scope: str,
        asked: Asked,
        work: Callable[[Connection, Asked], Answer],
    ) -> tuple[Answer, bool]:
        promises = self.promises
        with guard(
            conn,
            scope=scope,
            key=asked.key,
            fingerprint=asked.fingerprint,
            fence=asked.fence if promises.has_fence else None,
            expires_us=None if promises.expiry_tolerance_s is None else asked.expires_us,
            wait_s=self._wait_s,
            clock=self._clock,
        ) as op:
            if not op.replayed:
                op.answer = work(conn, asked)
        assert op.answer is not None, "the guard saw to it"
        return op.answer, op.replayed

    def _transact(self, work: Callable[[Connection], T]) -> T:
        """One transaction; again if the database refused all of it."""
        for left in reversed(range(_TRIES)):
            try:
                with self.engine.begin() as conn:
                    return work(conn)
            except RetryTransactionError:
                pass
            except DBAPIError as e:
                is_locked = "database is locked" in str(e.orig)
                if getattr(e.orig, "sqlstate", None) not in _RETRYABLE_STATES and not is_locked:
                    raise
            if not left:
                break
        raise RequestRefusedError(Reason.IN_PROGRESS, "the database is busy; ask again later")

    async def _describe(self, _request: Request) -> Response:
        return JSONResponse(describe(self.promises))

    async def _status(self, request: Request) -> Response:
        scope, key = self._scope_of(request), request.path_params["key"]
        try:
            found = await asyncio.to_thread(
                self._transact, lambda conn: status(conn, scope=scope, key=key)
            )
        except RequestRefusedError as refused:
            return problem(refused)
        if self._is_refusal(found):
            return _told(found, 404, _REFUSED)
        return _told(found, 404 if found.state is KeyState.ABSENT else 200)

    async def _seal(self, request: Request) -> Response:
        scope, key = self._scope_of(request), request.path_params["key"]
        try:
            found = await asyncio.to_thread(
                self._transact,
                lambda conn: seal(
                    conn, scope=scope, key=key, wait_s=self._wait_s, clock=self._clock
                ),
            )
        except RequestRefusedError as refused:
            return problem(refused)
        if self._is_refusal(found):
            return _told(found, 200, _REFUSED)
        return _told(found, 200 if found.state is KeyState.SEALED else 409)

    def _is_refusal(self, found: Found) -> bool:
        """What is on record is that nothing was done, and nothing will be: as good as a seal."""
        return found.answer is not None and found.answer.status in self.promises.refusals


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise RequestRefusedError(Reason.MALFORMED, f"above {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _told(found: Found, status_code: int, state: str | None = None) -> Response:
    """The state in a header; the stored answer as the body, where there is one."""
    headers = {"Landed-Key-State": state or found.state.value}
    if found.answer is None:
        return JSONResponse({"state": found.state.value}, status_code, headers)
    headers["Landed-Answer-Status"] = str(found.answer.status)
    return Response(found.answer.body, status_code, headers, found.answer.content_type)
