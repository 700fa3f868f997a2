"""``Saving``: what an application is given within one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

from landed.clock import Clock
from landed.errors import QueueError
from landed.ids import AggregateKey, EventId
from landed.offline.entry import Entry, Saved

Put = Callable[[sqlite3.Connection, AggregateKey, Entry, bool], Saved]
"""Gives an event its number and stores it, within the transaction; the flag: its id is not new."""


class Saving:
    """One transaction on the device: queue events, and change tables of your own with them.

    What was done in it is on the disk together, or not at all.
    """

    def __init__(self, sql: sqlite3.Connection, clock: Clock, put: Put) -> None:
        self._sql: sqlite3.Connection | None = sql
        self._clock = clock
        self._put = put

    def enqueue(
        self,
        key: AggregateKey,
        type_major: int,
        value: bytes,
        *,
        event_id: UUID | None = None,
        type_minor: int = 0,
        event_ms: int | None = None,
        iv: bytes | None = None,
    ) -> Saved:
        """Give an event its number and queue it. See ``Queue.enqueue``."""
        entry = Entry(
            client_seq=0,
            event_id=EventId(event_id or uuid4()),
            event_ms=self._clock.wall_ms() if event_ms is None else event_ms,
            type_major=type_major,
            type_minor=type_minor,
            value=bytes(value),
            iv=iv,
            is_attempted=False,
        )
        return self._put(self._open(), key, entry, event_id is not None)

    def execute(self, statement: str, parameters: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run a statement on tables of your own in the same file, for the local view (rule SW-98).

        Name them as you like, but not as the queue's: device, counter, aggregates, events.
        """
        return self._open().execute(statement, tuple(parameters))

    def _open(self) -> sqlite3.Connection:
        if self._sql is None:
            raise QueueError("this save is over")
        return self._sql

    def end(self) -> None:
        """Nothing more is done in it."""
        self._sql = None
