"""A transaction of the ledger's own, for code that has none: begun, committed, rolled back here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine

from landed.ledger.joining import AsyncTx
from landed.records.session import raise_durability
from landed.registry.tx import Tx


class Begun:
    """One transaction: ``with`` gives a ``Tx``, ``async with`` an ``AsyncTx``.

    Commits at the end of the block, rolls back if it raises. It cannot run your block again; give
    ``ledger.transact`` a function if it should.
    """

    def __init__(self, engine: Callable[[], Engine], make: Callable[[Connection], Tx]) -> None:
        self._engine = engine
        self._make = make
        self._conn: Connection | None = None

    def __enter__(self) -> Tx:
        self._conn = self._engine().connect()
        self._conn.begin()
        raise_durability(self._conn)
        return self._make(self._conn)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._conn is not None, "entered"
        try:
            if kind is None:
                self._conn.commit()
            else:
                self._conn.rollback()
        finally:
            self._conn.close()

    async def __aenter__(self) -> AsyncTx:
        tx = await asyncio.to_thread(self.__enter__)

        async def _run(work: Callable[[Tx], Any]) -> Any:
            return await asyncio.to_thread(work, tx)

        return AsyncTx(_run, None)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Shielded: a commit that was begun is awaited even if this task is cancelled.
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))
