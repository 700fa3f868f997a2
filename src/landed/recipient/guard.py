"""``guard``: let a request act once under its key, in the service's own transaction.

Checks come in this order: expiry, tombstone, key record, fence (rule RP-1). The key record comes
before the fence, so that a repeat of something that acted gets its own answer even after newer
versions have passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from landed.clock import Clock, SystemClock
from landed.effects.headers import FenceText
from landed.effects.order import FenceVerdict, compare_fence
from landed.errors import ConfigurationError, RetryTransactionError
from landed.fingerprint import digest_parts
from landed.recipient.holding import connection_of, hold, make_durable, now_us
from landed.recipient.refusals import Reason, RequestRefusedError
from landed.recipient.tables import fences, key_digest, keys

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

WAIT_S: Final = 5.0
"""How long a request waits for another under the same key before it is answered "in progress"."""
KEY_LENGTH_MAX: Final = 255


class Answer(NamedTuple):
    """What is stored under a key, and given again to every repeat."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"


@dataclass(slots=True)
class Operation:
    """One guarded request. If ``replayed``, act no more and give ``answer``; else set ``answer``."""

    replayed: bool = False
    answer: Answer | None = None


class _Taken(NamedTuple):
    """What the fence holds now."""

    version: int | None
    by: bytes | None


class Guard:
    """A context manager, sync or async as the connection is. Made by ``guard``."""

    def __init__(
        self,
        conn: Connection | Session | AsyncConnection | AsyncSession,
        *,
        scope: str,
        key: str,
        fingerprint: bytes,
        fence: FenceText | None,
        expires_us: int | None,
        wait_s: float,
        clock: Clock,
    ) -> None:
        self._target = conn
        self._scope = scope
        self._key = key
        self._fingerprint = fingerprint
        self._fence = fence
        self._expires_us = expires_us
        self._wait_s = wait_s
        self._clock = clock
        self._digest = key_digest(scope, key)
        self._taken = _Taken(None, None)
        self._operation = Operation()

    def __enter__(self) -> Operation:
        if not isinstance(self._target, Connection | Session):
            raise ConfigurationError("an asynchronous connection is guarded with `async with`")
        return self._enter(connection_of(self._target))

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None and not self._operation.replayed:
            assert isinstance(self._target, Connection | Session)
            self._keep(connection_of(self._target))

    async def __aenter__(self) -> Operation:
        if isinstance(self._target, Connection | Session):
            raise ConfigurationError("a synchronous connection is guarded with a plain `with`")
        return await self._target.run_sync(lambda conn: self._enter(connection_of(conn)))

    async def __aexit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None and not self._operation.replayed:
            assert not isinstance(self._target, Connection | Session)
            await self._target.run_sync(lambda conn: self._keep(connection_of(conn)))

    # --- Before ---------------------------------------------------------------------------------

    def _enter(self, conn: Connection) -> Operation:
        if not self._key or len(self._key) > KEY_LENGTH_MAX:
            raise RequestRefusedError(
                Reason.MALFORMED, f"a key of 1 to {KEY_LENGTH_MAX} characters is required"
            )
        # The deadline is asked about again once nobody else can be ahead of us (rule RP-7).
        self._check_expiry(conn)
        hold(conn, self._digest, wait_s=self._wait_s)
        self._check_expiry(conn)
        found = self._recorded(conn)
        if found is not None:
            self._operation = Operation(replayed=True, answer=found)
            return self._operation
        if self._fence is not None:
            self._check_fence(conn, self._fence)
        return self._operation

    def _check_expiry(self, conn: Connection) -> None:
        if self._expires_us is not None and now_us(conn, self._clock) > self._expires_us:
            raise RequestRefusedError(Reason.EXPIRED, "the request came after its deadline")

    def _recorded(self, conn: Connection) -> Answer | None:
        row = conn.execute(select(keys).where(keys.c.key_digest == self._digest)).one_or_none()
        if row is None:
            return None
        if row.state == "sealed":
            raise RequestRefusedError(Reason.SEALED, "this key is sealed and can never act")
        if bytes(row.fingerprint) != self._fingerprint:
            raise RequestRefusedError(
                Reason.KEY_CONFLICT, "this key was used with another payload; use another key"
            )
        return Answer(row.status, bytes(row.body or b""), row.content_type)

    def _check_fence(self, conn: Connection, fence: FenceText) -> None:
        name = digest_parts(self._scope.encode(), fence.domain.encode(), fence.key.encode())
        hold(conn, name, wait_s=self._wait_s)
        row = conn.execute(
            select(fences.c.version, fences.c.taken_by).where(self._is_my_fence(fence))
        ).one_or_none()
        if row is not None:
            self._taken = _Taken(row.version, bytes(row.taken_by))
        verdict = compare_fence(
            fence.version,
            self._digest.hex(),
            taken_version=self._taken.version,
            taken_key=None if self._taken.by is None else self._taken.by.hex(),
        )
        if verdict is FenceVerdict.REFUSE:
            raise RequestRefusedError(
                Reason.FENCED,
                f"version {fence.version} is not above version {self._taken.version}, which was "
                "taken here",
                current_version=self._taken.version,
            )

    def _is_my_fence(self, fence: FenceText) -> ColumnElement[bool]:
        return and_(
            fences.c.scope == self._scope,
            fences.c.domain == fence.domain,
            fences.c.fence_key == fence.key,
        )

    # --- After ----------------------------------------------------------------------------------

    def _keep(self, conn: Connection) -> None:
        """Key record and fence movement, with the business change or not at all (rule RP-2)."""
        answer = self._operation.answer
        if answer is None:
            raise ConfigurationError("a guarded request ends with an answer: set op.answer")
        at = now_us(conn, self._clock)
        make_durable(conn)
        try:
            conn.execute(
                insert(keys).values(
                    key_digest=self._digest,
                    scope=self._scope,
                    key=self._key,
                    state="acted",
                    fingerprint=self._fingerprint,
                    status=answer.status,
                    content_type=answer.content_type,
                    body=answer.body,
                    recorded_at=at,
                )
            )
            if self._fence is not None:
                self._move_fence(conn, self._fence, at)
        except IntegrityError as e:
            # Only under a snapshot older than our lock: somebody was first, unseen.
            raise RetryTransactionError(
                "another request was first; run the whole transaction again"
            ) from e

    def _move_fence(self, conn: Connection, fence: FenceText, at: int) -> None:
        values = {"version": fence.version, "taken_by": self._digest, "taken_at": at}
        if self._taken.version is None:
            place = {"scope": self._scope, "domain": fence.domain, "fence_key": fence.key}
            conn.execute(insert(fences).values(**place, **values))
            return
        moved = conn.execute(
            update(fences)
            .where(self._is_my_fence(fence), fences.c.version == self._taken.version)
            .values(**values)
        )
        if moved.rowcount != 1:
            raise RetryTransactionError(
                "the fence moved meanwhile; run the whole transaction again"
            )


def guard(
    conn: Connection | Session | AsyncConnection | AsyncSession,
    *,
    scope: str,
    key: str,
    fingerprint: bytes,
    fence: FenceText | tuple[str, str, int] | None = None,
    expires_us: int | None = None,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
) -> Guard:
    """Let a business change happen once under its key.

    ``with guard(conn, ...) as op``, or ``async with`` on an asynchronous connection.

    Args:
        conn: in a transaction that you began and will commit; answer the sender only after that.
        scope: whose keys they are, for example the authenticated account.
        key: the sender's idempotency key.
        fingerprint: of the payload; ``landed.fingerprint.fingerprint_raw(body).digest``.
        fence: domain, order key and version, where order matters.
        expires_us: the request's deadline, microseconds since 1970.
        wait_s: how long to wait for another request under this key (PostgreSQL; SQLite waits as
            long as its busy timeout says).
        clock: for tests.

    Raises:
        RequestRefusedError: on entry: it must not act; nothing was written.
        RetryTransactionError: on exit, under snapshot isolation: run the transaction again.
    """
    return Guard(
        conn,
        scope=scope,
        key=key,
        fingerprint=fingerprint,
        fence=None if fence is None else FenceText(*fence),
        expires_us=expires_us,
        wait_s=wait_s,
        clock=SystemClock() if clock is None else clock,
    )
