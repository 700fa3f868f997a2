"""One process's transactions on one database, off the event loop, and in turn where there is one writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from sqlalchemy import Connection, Engine

from landed.records.session import transact

T = TypeVar("T")


class Turns:
    """Who writes next, among the agents of one event loop.

    SQLite has one writer. Those that meet at its lock sleep for longer than the one before them takes,
    so ours take turns before they get there. On PostgreSQL nobody waits.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock() if engine.dialect.name == "sqlite" else None

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        """The right to write, for a transaction that is run elsewhere."""
        return nullcontext() if self._lock is None else self._lock

    async def transact(self, work: Callable[[Connection], T], *, is_durable: bool = True) -> T:
        """Run one transaction on a thread, and commit it.

        Raises:
            StorageError: the database failed.
        """
        async with self.turn:
            return await asyncio.to_thread(transact, self._engine, work, is_durable=is_durable)
