"""The log in one SQLite file: a store for the lane."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from landed.engines.port import LogIdentity, Staged, Stored
from landed.engines.sqlite.append import Appender
from landed.engines.sqlite.file import (
    check_frozen,
    check_header,
    connect,
    create,
    heads_until,
    keep_recovered,
    read_meta,
    resolve,
    translated,
)
from landed.engines.sqlite.lock import FileLock
from landed.engines.sqlite.lookup import find_head, find_mark
from landed.engines.sqlite.owed import Owed
from landed.engines.sqlite.page import read_feed, read_page
from landed.engines.sqlite.reclaim import reclaim
from landed.engines.sqlite.recovered import check_recovered
from landed.engines.sqlite.row import HeadRow
from landed.engines.sqlite.tail import check_tail, replay
from landed.engines.sqlite.upgrade import upgrade
from landed.errors import StorageError
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import AggregateMissing, BelowFloor, FeedPage, FeedRead, Head, Page, Read

_T = TypeVar("_T")

_WRITER_CACHE_KIB: Final = 8_192
"""Heads are written in the order of their rows, so only new keys touch pages at random; more of the
cache gained them nothing and is memory of every server."""
_READER_CACHE_KIB: Final = 2_048
"""SQLite's own default; the operating system caches the rest."""


class SqliteStore:
    """One log file. See ``engines.port.Store``; every checksum is verified on every read.

    One connection writes, on whatever thread the lane commits; each reading thread borrows a
    connection of its own for one call. All of them flush fully (case BC-08).
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits) -> None:
        """Nothing is touched before ``open``.

        Raises:
            ConfigurationError: no file can be at this path.
        """
        self._path = resolve(path)
        self._limits = limits
        self._lock = FileLock(self._path)
        self._writer: sqlite3.Connection | None = None
        self._appender: Appender | None = None
        self._owed = Owed({}, until=0, changes_max=0)
        # Taking from and giving back to a deque are single steps, so that threads share it.
        self._idle: deque[sqlite3.Connection] = deque()
        self._identity: LogIdentity | None = None

    @property
    def identity(self) -> LogIdentity:
        """Which log this is; known once it is open."""
        assert self._identity is not None, "open it first"
        return self._identity

    def open(self) -> tuple[int, int]:
        """Open the log, or create it where there is nothing.

        What a killed process left in the write-ahead log and is found whole is committed by this,
        and made durable before anybody sees it (log rule C10).

        Returns:
            The highest position ever used and the newest server time; 0 and 0 of an empty log.

        Raises:
            ConfigurationError: the path, or this user's rights to it, are no good.
            StorageInUseError: another process, or this one, has it open.
            StorageForeignError: another application's, a newer one's, or placed by other shards.
            StorageDamagedError: it is not what was written.
            StorageError: the database cannot open it now.
        """
        self._lock.take()
        try:
            return self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> tuple[int, int]:
        if not check_header(self._path):
            create(self._path, self._limits)
        check_recovered(self._path)
        writer = self._writer = connect(self._path, cache_kib=_WRITER_CACHE_KIB, is_writer=True)
        settings = read_meta(writer, self._path)
        check_frozen(settings, self._limits, self._path)
        self._identity = LogIdentity(UUID(settings["log_id"]), int(settings["restore_epoch"]))
        try:
            keep_recovered(writer, self._path)
            upgrade(writer, settings)
            until = heads_until(writer, settings, self._path)
            owed = replay(writer, until)
            ends = check_tail(writer, owed)
            self._owed = Owed(owed, until=until, changes_max=self._limits.replayed_max)
            self._appender = Appender(writer, self._owed, position=ends[0])
        except sqlite3.Error as error:
            raise translated(error, f"cannot open {self._path}") from error
        return ends

    def load(
        self, keys: Sequence[AggregateKey], pairs: Sequence[tuple[AggregateKey, ClientId]]
    ) -> Stored:
        """Look up heads and marks: index lookups only, whatever the length of a history (I17).

        Raises:
            StorageDamagedError: one of them is not what was written.
        """
        owed = self._owed.rows  # before the file: what is not owed by then stands in it
        return self._reading(lambda connection: _load(connection, keys, pairs, owed))

    def commit(self, group: Sequence[Staged]) -> None:
        """Make a group durable, all of it or nothing of it. See ``Store.commit``."""
        assert self._appender is not None, "open it first"
        self._appender.append(group)

    def read(self, read: Read, head: Head, budget: int) -> Page | BelowFloor | AggregateMissing:
        """Read one page of the life that ``head`` describes. See ``Store.read``."""
        owed = self._owed.rows
        return self._reading(lambda connection: read_page(connection, read, head, budget, owed))

    def feed(self, read: FeedRead, budget: int) -> FeedPage:
        """Read entries after a position. See ``Store.feed``."""
        owed = self._owed.rows
        return self._reading(lambda connection: read_feed(connection, read, budget, owed))

    def reclaim(self) -> int:
        """Drop a bounded slice of dead batches, on the committing thread; returns how many."""
        assert self._writer is not None, "open it first"
        assert self._appender is not None, "open it first"
        return reclaim(self._writer, self._appender)

    def close(self) -> None:
        """Let go of the file. Idempotent. The last connection tidies the write-ahead log away."""
        while self._idle:
            self._idle.pop().close()
        writer, self._writer = self._writer, None
        appender, self._appender = self._appender, None
        if appender is not None:
            # Where it fails, the next opening tells the heads from the entries, as after a kill.
            with suppress(StorageError):
                appender.settle()
        if writer is not None:
            writer.close()
        self._lock.release()

    def _reading(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something on a reading connection, all of it at one moment of the log."""
        connection = self._borrow()
        try:
            connection.execute("BEGIN")
            return work(connection)
        except sqlite3.Error as error:
            raise translated(error, "cannot read") from error
        finally:
            self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return connect(self._path, cache_kib=_READER_CACHE_KIB)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        """End the reading transaction, whatever happened in it (case BC-10)."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
        else:
            self._idle.append(connection)


def _load(
    connection: sqlite3.Connection,
    keys: Sequence[AggregateKey],
    pairs: Sequence[tuple[AggregateKey, ClientId]],
    owed: Mapping[bytes, HeadRow],
) -> Stored:
    wanted = dict.fromkeys([*keys, *(key for key, _ in pairs)])
    # All of them before the first statement, which fixes the moment that the file is seen at: a head
    # that is owed since may name a writer whose predecessor's mark this moment does not show.
    due = {key: owed.get(key.packed) for key in wanted}
    found = {key: row or find_head(connection, key.packed) for key, row in due.items()}
    marks: dict[tuple[AggregateKey, ClientId], int] = {}
    for pair in pairs:
        row = found[pair[0]]
        if row is None:
            continue
        client = pair[1].bytes
        is_last = client == row.mark_client
        mark = row.mark if is_last else find_mark(connection, row.number, client)
        if mark:
            marks[pair] = mark
    heads = {key: row.head for key in keys if (row := found[key]) is not None}
    return Stored(heads, marks)
