"""A transaction of the ledger's own, for code that has none: begun, committed, rolled back here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from landed.errors import StorageError
from landed.ledger.joining import AsyncTx
from landed.records.bell import Ring
from landed.records.session import as_retry, raise_durability
from landed.registry.tx import Tx


class Begun:
    """One transaction: ``with`` gives a ``Tx``, ``async with`` an ``AsyncTx``.

    Commits at the end of the block, rolls back if it raises. It cannot run your block again; give
    ``ledger.transact`` a function if it should.

    Raises:
        RetryTransactionError: the database asks for the whole block to run again.
        StorageError: the database failed; if at the commit, nobody knows whether it was kept.
    """

    def __init__(
        self, engine: Callable[[], Engine], make: Callable[[Connection], Tx], *, ring: Ring
    ) -> None:
        self._engine = engine
        self._make = make
        self._ring = ring
        self._conn: Connection | None = None
        self._turn = asyncio.Lock()
        self._busy: asyncio.Future[Any] | None = None

    def __enter__(self) -> Tx:
        with _translated(is_outcome_known=True):
            conn = self._conn = self._engine().connect()
            try:
                conn.begin()
                raise_durability(conn)
            except BaseException:
                conn.close()
                raise
        return self._make(conn)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._conn is not None, "entered"
        with self._conn as conn:
            if kind is None:
                with _translated(is_outcome_known=False):
                    conn.commit()
            else:
                conn.rollback()
        if kind is None:
            self._ring()

    async def __aenter__(self) -> AsyncTx:
        tx = await asyncio.to_thread(self.__enter__)

        async def _run(work: Callable[[Tx], Any]) -> Any:
            # One at a time, also after a cancellation that left a statement running.
            async with self._turn:
                await self._quiet()
                self._busy = asyncio.ensure_future(asyncio.to_thread(work, tx))
                return await asyncio.shield(self._busy)

        return AsyncTx(_run, None)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Shielded: an end that was begun comes about even if this task is cancelled meanwhile.
        await asyncio.shield(self._end(kind, error, trace))

    async def _end(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._quiet()
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    async def _quiet(self) -> None:
        """Wait until nothing uses the connection any more."""
        if self._busy is not None and not self._busy.done():
            await asyncio.wait({self._busy})


@contextmanager
def _translated(*, is_outcome_known: bool) -> Iterator[None]:
    """Say a database's failure in our words (rule SQ-6)."""
    try:
        yield
    except DBAPIError as e:
        detail = str(e.orig).partition("\n")[0]
        failure = StorageError(f"the database failed: {detail}", is_outcome_known=is_outcome_known)
        raise (as_retry(e) or failure) from e
