"""Joining a transaction that somebody else began and will commit.

Nothing here commits, rolls back, opens a savepoint, changes isolation, or keeps state that outlives
a rollback (rule SQ-5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from landed.effects.order import Order
from landed.errors import NotInTransactionError
from landed.registry.effect_type import EffectType
from landed.registry.tx import EffectRef, Tx

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

P = TypeVar("P")
R = TypeVar("R")

Runner = Callable[[Callable[[Tx], Any]], Awaitable[Any]]
"""Run a function of the synchronous transaction where it may block."""


class AsyncTx:
    """A transaction in progress, for async code: the names of ``Tx``, awaited."""

    def __init__(self, run: Runner, conn: AsyncConnection | AsyncSession | None) -> None:
        self._run = run
        self.conn = conn
        """What was joined; None inside ``ledger.begin()``, where ``run`` reaches the connection."""

    async def run(self, work: Callable[[Tx], R]) -> R:
        """Run a synchronous function of the transaction, as a handler would be."""
        result: R = await self._run(work)
        return result

    async def request(
        self,
        effect_type: EffectType[P],
        key: str,
        payload: P,
        *,
        order: Order | None = None,
        not_after: datetime | None = None,
        correlation: Mapping[str, str] | None = None,
    ) -> EffectRef:
        """As ``Tx.request``."""
        return await self.run(
            lambda tx: tx.request(
                effect_type,
                key,
                payload,
                order=order,
                not_after=not_after,
                correlation=correlation,
            )
        )

    async def revise(
        self,
        previous: EffectRef | UUID,
        effect_type: EffectType[P],
        key: str,
        payload: P,
        *,
        order: Order | None = None,
        not_after: datetime | None = None,
        correlation: Mapping[str, str] | None = None,
    ) -> EffectRef:
        """As ``Tx.revise``."""
        return await self.run(
            lambda tx: tx.revise(
                previous,
                effect_type,
                key,
                payload,
                order=order,
                not_after=not_after,
                correlation=correlation,
            )
        )

    async def publish(
        self,
        type: str,
        data: object,
        *,
        to: str | None = None,
        key: str | None = None,
        domain: str = "events",
    ) -> UUID:
        """As ``Tx.publish``."""
        return await self.run(lambda tx: tx.publish(type, data, to=to, key=key, domain=domain))


def joined(target: Connection | Session) -> tuple[Connection, Session | None]:
    """The connection of a transaction that was begun, and its session.

    Raises:
        NotInTransactionError: there is none, or every statement commits itself.
    """
    if isinstance(target, Session):
        if not target.in_transaction():
            raise NotInTransactionError("begin a transaction on the session first: session.begin()")
        conn = target.connection()
        _check(conn)
        return conn, target
    _check(target)
    return target, None


def _check(conn: Connection) -> None:
    if not conn.in_transaction():
        raise NotInTransactionError("begin a transaction on the connection first: conn.begin()")
    driver: Any = conn.connection.driver_connection
    if conn.dialect.name == "sqlite":
        # The driver begins nothing by itself, and nobody has said BEGIN.
        is_autocommit = driver.isolation_level is None and not driver.in_transaction
    else:
        is_autocommit = driver.autocommit is True
    if is_autocommit:
        raise NotInTransactionError(
            "this connection is in autocommit: every statement would be kept on its own"
        )
