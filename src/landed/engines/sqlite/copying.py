"""The log in one file, as one side of a copy. See ``engines/copying.py``.

A copy is made in a file of its own beside its place and moved there when it is whole, so no engine
ever finds half of one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from landed.engines.copying import Entry, Frozen, HeadOf, Mark, same_log
from landed.engines.port import LogIdentity
from landed.engines.sqlite.append import (
    INSERT_ANCHOR,
    INSERT_HEAD,
    UPDATE_META,
    UPSERT_MARK,
    Transaction,
)
from landed.engines.sqlite.file import (
    check_header,
    connect,
    create,
    heads_until,
    read_meta,
    resolve,
    translated,
)
from landed.engines.sqlite.lock import FileLock
from landed.engines.sqlite.lookup import find_head_by_number
from landed.engines.sqlite.pack import (
    INSERT_PACK,
    Drafted,
    Opened,
    check_body,
    drop,
    newest_position,
    pack,
    whole_packs,
)
from landed.engines.sqlite.pack import Entry as EntryRow
from landed.engines.sqlite.recovered import check_recovered
from landed.engines.sqlite.row import (
    HEAD_COLUMNS,
    HeadRow,
    head_of,
    head_row,
    mark_of,
    mark_row,
    meta_row,
    pair_of,
)
from landed.engines.sqlite.schema import ANCHOR_EVERY, HEADS_UNTIL
from landed.engines.sqlite.tail import replay
from landed.errors import ConfigurationError, StorageError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import FeedKind, Life

SUFFIX: Final = ".copying"
"""Of the file that a copy is made in."""
_CACHE_KIB: Final = 16_384
_ALLOWED: Final = 2 | 4
"""Of an entry's flags: allow_recreate and allow_continuation."""
_STOP_IT: Final = "stop that process first"

_HEADS: Final = f"SELECT {HEAD_COLUMNS} FROM aggregates ORDER BY number"
_MARKS: Final = "SELECT pair, mark, row_check FROM marks ORDER BY pair"


class FilePlace:
    """A log file's records, read in order on one connection."""

    def __init__(self, path: Path, connection: sqlite3.Connection | None) -> None:
        self._path = path
        self._opened = connection
        self._owed: dict[int, HeadRow] = {}
        """Heads that are newer than their rows."""

    @property
    def name(self) -> str:
        """For messages."""
        return str(self._path)

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._opened is not None, "begin first"
        return self._opened

    def entries(self, after: int) -> Iterator[Entry]:
        """See ``Place.entries``."""
        for entry, found in self._entries(after):
            is_batch = entry.kind == FeedKind.WRITTEN
            if not is_batch or self._is_readable(entry):
                body = check_body(entry, found) if is_batch else None
                yield Entry(
                    entry.position,
                    entry.aggregate,
                    entry.kind,
                    entry.flags & _ALLOWED,
                    entry.incarnation,
                    entry.version,
                    entry.event_seq,
                    entry.event_count,
                    entry.server_ms,
                    entry.min_seq,
                    entry.max_seq,
                    entry.client,
                    entry.user,
                    body,
                    entry.previous,
                )

    def heads(self) -> Iterator[HeadOf]:
        """See ``Place.heads``."""
        for row in self._head_rows():
            yield HeadOf(row.number, row.key.packed, row.head, row.last_position)

    def marks(self) -> Iterator[Mark]:
        """See ``Place.marks``. A head's own mark holds, whatever the table says of its pair."""
        own = (
            (pair_of(row.number, row.mark_client), 0, row.mark, row.mark_client)
            for row in self._head_rows()
            if row.mark_client is not None
        )
        others = ((row[0], 1, mark_of(row), bytes(row[0][8:])) for row in self._rows(_MARKS))
        previous = b""
        for pair, _, mark, client in merge(own, others):
            if pair != previous and mark:
                yield Mark(int.from_bytes(pair[:8]), client, mark)
            previous = pair

    def _head_rows(self) -> Iterator[HeadRow]:
        for row in self._rows(_HEADS):
            stored = head_of(row)
            yield self._owed.get(stored.number, stored)

    def _is_readable(self, entry: EntryRow) -> bool:
        row = self._owed.get(entry.aggregate)
        if row is None:
            row = find_head_by_number(self._connection, entry.aggregate)
        head = row.head
        return (
            head.life is Life.LIVE
            and head.incarnation == entry.incarnation
            and head.floor <= entry.version
        )

    def _entries(self, after: int) -> Iterator[tuple[EntryRow, object]]:
        try:
            for row in whole_packs(self._connection, after):
                yield from Opened(row).after(after)
        except sqlite3.Error as error:
            raise translated(error, f"cannot read {self._path}") from error

    def _rows(self, query: str, values: tuple[int, ...] = ()) -> Iterator[Any]:
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.Error as error:
            raise translated(error, f"cannot read {self._path}") from error


class FileSource(FilePlace):
    """A closed log file. Its lock is held until ``close``, so no engine opens it meanwhile."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open it, changing nothing.

        Raises:
            ConfigurationError: there is no log at this path.
            StorageInUseError: a process has it open.
            StorageForeignError, StorageDamagedError: as for opening it.
        """
        real = resolve(path)
        if not real.exists():
            raise ConfigurationError(f"there is no log at {real}")
        self._lock = FileLock(real, advice=_STOP_IT)
        self._lock.take()
        try:
            super().__init__(real, _opened(real))
            self._settings = read_meta(self._connection, real)
            until = heads_until(self._connection, self._settings, real)
            owed = replay(self._connection, until)
            self._owed = {row.number: row for row in owed.values()}
        except BaseException:
            self._lock.release()
            raise

    @property
    def identity(self) -> LogIdentity:
        """Which log it is."""
        return _identity_of(self._settings)

    @property
    def frozen(self) -> Frozen:
        """What its keys were placed by."""
        return Frozen(int(self._settings["num_shards"]), self._settings["routing_rule"])

    def count(self) -> int:
        """Records, about: a pair's mark may stand in its head."""
        tables = ("aggregates", "marks")
        rows = sum(next(self._rows(f"SELECT count(*) FROM {table}"))[0] for table in tables)
        return int(rows) + newest_position(self._connection)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._connection.close()
        self._lock.release()


class FileTarget(FilePlace):
    """A log file that is being made. The lock of its place is held until ``close``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look whether a log can be made there; nothing is made before ``begin``.

        Raises:
            ConfigurationError: there is a file already, or no file can be there.
            StorageInUseError: another copy is being made there.
        """
        real = resolve(path)
        self._lock = FileLock(real, advice=_STOP_IT)
        self._lock.take()
        self._draft = real.with_name(real.name + SUFFIX)
        for found in (real, real.with_name(real.name + "-wal")):
            if found.exists():
                self._lock.release()
                raise ConfigurationError(
                    f"{found} is there already, and nothing is copied over a log: name another file"
                )
        super().__init__(real, None)

    def begin(self, identity: LogIdentity, frozen: Frozen) -> int:
        """See ``Target.begin``."""
        limits = Limits(num_shards=frozen.num_shards, routing_rule=frozen.routing_rule)
        if not check_header(self._draft):
            create(self._draft, limits)
        check_recovered(self._draft)
        self._opened = connect(self._draft, cache_kib=_CACHE_KIB, is_writer=True)
        self._identity = identity._replace(restore_epoch=identity.restore_epoch + 1)
        if position := newest_position(self._connection):
            found = _identity_of(read_meta(self._connection, self._draft))
            if found != self._identity:  # it was whole, and a kill came before it was moved
                same_log(found, identity, self.name)
            return position
        with Transaction(self._connection):
            self._set("log_id", str(identity.log_id))
            self._set("restore_epoch", str(identity.restore_epoch))
            self._set("num_shards", str(frozen.num_shards))
            self._set("routing_rule", frozen.routing_rule)
        return 0

    def add_entries(self, entries: list[Entry]) -> None:
        """See ``Target.add_entries``."""
        self._insert(INSERT_PACK, pack(map(_drafted, entries)))

    def forget_heads(self) -> None:
        """See ``Target.forget_heads``."""
        with Transaction(self._connection):
            for table in ("aggregates", "marks", "anchors"):
                self._connection.execute(f"DELETE FROM {table}")

    def add_heads(self, heads: list[HeadOf]) -> None:
        """See ``Target.add_heads``. Marks all go into their table; the next write moves its own."""
        rows = [
            HeadRow(h.number, AggregateKey.from_packed(h.key), h.head, h.last_position, None, 0)
            for h in heads
        ]
        self._insert(INSERT_HEAD, [head_row(row) for row in rows])

    def add_marks(self, marks: list[Mark]) -> None:
        """See ``Target.add_marks``."""
        self._insert(
            UPSERT_MARK, [mark_row(pair_of(mark.number, mark.client), mark.mark) for mark in marks]
        )

    def tidy(self) -> None:
        """See ``Target.tidy``."""
        with Transaction(self._connection):
            batches = (entry for entry, _ in self._entries(0) if entry.kind == FeedKind.WRITTEN)
            drop(self._connection, [one.position for one in batches if not self._is_readable(one)])

    def publish(self) -> LogIdentity:
        """See ``Target.publish``. The file is moved to its place when everything is flushed."""
        with Transaction(self._connection):
            self._connection.execute("DELETE FROM anchors")
            self._connection.executemany(INSERT_ANCHOR, self._anchors())
            self._set(HEADS_UNTIL, str(newest_position(self._connection)))
            self._set("restore_epoch", str(self._identity.restore_epoch))
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.close()
            if self._draft.with_name(self._draft.name + "-wal").exists():
                raise StorageError(f"{self._draft} cannot be made whole: run this again")
            self._draft.rename(self._path)
            descriptor = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except sqlite3.Error as error:
            raise translated(error, f"cannot finish {self._draft}") from error
        except OSError as error:
            raise StorageError(f"cannot finish {self._draft}: {error.strerror}") from error
        return self._identity

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.close()
        self._lock.release()

    def _anchors(self) -> list[tuple[int, int, int, int]]:
        return sorted(
            (entry.aggregate, entry.incarnation, entry.version, entry.position)
            for entry, _ in self._entries(0)
            if entry.kind == FeedKind.WRITTEN and entry.version % ANCHOR_EVERY == 0
        )

    def _insert(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with Transaction(self._connection):
            self._connection.executemany(statement, rows)

    def _set(self, name: str, value: str) -> None:
        name, value, row_check = meta_row(name, value)
        self._connection.execute(UPDATE_META, (value, row_check, name))


def _opened(path: Path) -> sqlite3.Connection:
    if not check_header(path):
        raise ConfigurationError(f"{path} is empty")
    check_recovered(path)
    return connect(path, cache_kib=_CACHE_KIB)


def _identity_of(settings: dict[str, str]) -> LogIdentity:
    return LogIdentity(UUID(settings["log_id"]), int(settings["restore_epoch"]))


def _drafted(entry: Entry) -> Drafted:
    return (
        entry.position,
        entry.number,
        entry.kind,
        entry.flags,
        entry.incarnation,
        entry.version,
        entry.event_seq,
        entry.event_count,
        entry.previous,
        entry.client,
        entry.user,
        entry.server_ms,
        entry.min_seq,
        entry.max_seq,
        entry.body or b"",
    )
