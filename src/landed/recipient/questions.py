"""``seal`` and ``status``: what a sender in doubt may ask, with answers that stay true."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.orm import Session

from landed.clock import Clock, SystemClock
from landed.recipient.guard import WAIT_S, Answer
from landed.recipient.holding import connection_of, hold, is_free, make_durable, now_us
from landed.recipient.tables import key_digest, keys

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

T = TypeVar("T")


class KeyState(StrEnum):
    """What became of a key here."""

    ACTED = "acted"
    SEALED = "sealed"
    IN_PROGRESS = "in_progress"
    """Somebody is at it; nobody knows yet how it ends."""
    ABSENT = "absent"
    """No request under it has acted, and none is at it. One that is still on its way may act yet."""


class Found(NamedTuple):
    """An answer about a key, as of now; strongly consistent. ``answer`` is stored with ACTED."""

    state: KeyState
    answer: Answer | None = None


@overload
def seal(
    conn: Connection | Session,
    *,
    scope: str,
    key: str,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
) -> Found: ...
@overload
def seal(
    conn: AsyncConnection | AsyncSession,
    *,
    scope: str,
    key: str,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, Found]: ...
def seal(
    conn: Connection | Session | AsyncConnection | AsyncSession,
    *,
    scope: str,
    key: str,
    wait_s: float = WAIT_S,
    clock: Clock | None = None,
) -> Found | Coroutine[Any, Any, Found]:
    """Write a tombstone: after your commit this key can never act (rule RP-5).

    Of a guard and a seal on one key at once, one wins; sealing twice is one seal.

    Returns:
        SEALED, or ACTED with the stored answer if it acted before.

    Raises:
        RequestRefusedError: a request under the key did not end in time (reason IN_PROGRESS).
    """

    def _seal(sync: Connection) -> Found:
        digest = key_digest(scope, key)
        hold(sync, digest, wait_s=wait_s)
        found = _recorded(sync, digest)
        if found is not None:
            return found
        make_durable(sync)
        at = now_us(sync, SystemClock() if clock is None else clock)
        sync.execute(
            insert(keys).values(
                key_digest=digest, scope=scope, key=key, state="sealed", recorded_at=at
            )
        )
        return Found(KeyState.SEALED)

    return _on(conn, _seal)


@overload
def status(conn: Connection | Session, *, scope: str, key: str) -> Found: ...
@overload
def status(
    conn: AsyncConnection | AsyncSession, *, scope: str, key: str
) -> Coroutine[Any, Any, Found]: ...
def status(
    conn: Connection | Session | AsyncConnection | AsyncSession, *, scope: str, key: str
) -> Found | Coroutine[Any, Any, Found]:
    """Say what became of a key (rule RP-6). Never ``absent`` while a guard on it is open.

    Ask in a transaction of its own, and end it at once: while it is open, the key stands still.
    """

    def _status(sync: Connection) -> Found:
        digest = key_digest(scope, key)
        if not is_free(sync, digest):
            return Found(KeyState.IN_PROGRESS)
        return _recorded(sync, digest) or Found(KeyState.ABSENT)

    return _on(conn, _status)


def scrub(conn: Connection, *, older_than_us: int, now_us: int, rows_max: int = 1000) -> int:
    """Empty answers and readable keys of what is past its retention, in place (rule RP-9).

    The rows stay: a repeat still does not act, and is given the stored status without a body.

    Args:
        conn: in a transaction of yours.
        older_than_us: recorded before this time, microseconds since 1970.
        now_us: the time of the scrub.
        rows_max: at most so many; call again until it returns less.

    Returns:
        How many were scrubbed.
    """
    due = (
        select(keys.c.key_digest)
        .where(keys.c.recorded_at < older_than_us, keys.c.scrubbed_at.is_(None))
        .limit(rows_max)
    )
    done = conn.execute(
        update(keys)
        .where(keys.c.key_digest.in_(due))
        .values(key=None, body=None, scrubbed_at=now_us)
    )
    return done.rowcount


def _recorded(conn: Connection, digest: bytes) -> Found | None:
    row = conn.execute(select(keys).where(keys.c.key_digest == digest)).one_or_none()
    if row is None:
        return None
    if row.state == "sealed":
        return Found(KeyState.SEALED)
    return Found(KeyState.ACTED, Answer(row.status, bytes(row.body or b""), row.content_type))


def _on(
    target: Connection | Session | AsyncConnection | AsyncSession,
    work: Callable[[Connection], T],
) -> T | Coroutine[Any, Any, T]:
    if isinstance(target, Connection | Session):
        return work(connection_of(target))
    return target.run_sync(lambda sync: work(connection_of(sync)))
