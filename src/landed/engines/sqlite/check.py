"""The full check of a log file: every row, every link, every head and mark against the entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

from landed.engines.sqlite.file import (
    check_header,
    connect,
    heads_until,
    read_meta,
    resolve,
    translated,
)
from landed.engines.sqlite.lock import FileLock
from landed.engines.sqlite.lookup import find_head_by_number, find_mark
from landed.engines.sqlite.pack import (
    Entry,
    Opened,
    check_body,
    find_entry,
    newest_position,
    whole_packs,
)
from landed.engines.sqlite.recovered import check_recovered
from landed.engines.sqlite.row import (
    HEAD_COLUMNS,
    HeadRow,
    aggregate_of,
    head_of,
    mark_of,
)
from landed.engines.sqlite.tail import replay
from landed.errors import ConfigurationError, StorageDamagedError
from landed.log import FeedKind, Life
from landed.wire.codec import decode_events

FINDINGS_MAX: Final = 1_000
"""Findings kept; a file with more is beyond telling them one by one."""
PROGRESS_EVERY: Final = 1_024
_CACHE_KIB: Final = 16_384

Progress = Callable[[int, int], None]
"""Called now and then with the rows checked and the rows there are, about."""


@dataclass(slots=True)
class Report:
    """What a full check saw."""

    entries: int = 0
    aggregates: int = 0
    marks: int = 0
    findings: list[str] = field(default_factory=list)
    """One sentence each; empty if the log is sound."""

    @property
    def is_sound(self) -> bool:
        """Whether everything is what was written."""
        return not self.findings


def verify(path: str | PathLike[str], *, progress: Progress = lambda _done, _all: None) -> Report:
    """Check a whole log and say what is wrong with it. Changes nothing; the log must be closed.

    Raises:
        ConfigurationError: there is no log at this path.
        StorageInUseError: a process has it open.
        StorageForeignError: it is not a log, or a newer one.
        StorageDamagedError: so damaged that it cannot be checked at all.
    """
    real = resolve(path)
    lock = FileLock(real)
    if not real.exists():
        raise ConfigurationError(f"there is no log at {real}")
    lock.take()
    try:
        if not check_header(real):
            raise ConfigurationError(f"{real} is empty")  # the lock must go
        check_recovered(real)
        connection = connect(real, cache_kib=_CACHE_KIB)
        try:
            until = heads_until(connection, read_meta(connection, real), real)
            return _Check(connection, progress).run(until)
        except sqlite3.Error as error:
            raise translated(error, f"cannot check {real}") from error
        finally:
            connection.close()
    finally:
        lock.release()


class _Check:
    def __init__(self, connection: sqlite3.Connection, progress: Progress) -> None:
        self._connection = connection
        self._progress = progress
        self._report = Report()
        self._done = 0
        self._all = 0
        self._owed: dict[bytes, HeadRow] = {}

    def run(self, until: int) -> Report:
        """Check everything; heads are complete up to ``until``, the rest the entries tell."""
        for (text,) in self._connection.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
            if text != "ok":
                self._find(f"SQLite finds: {text}")
        with suppress(StorageDamagedError):  # it is found again below
            self._all = newest_position(self._connection)
        for table in ("aggregates", "marks", "anchors"):
            (count,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            self._all += count
        try:
            self._owed = replay(self._connection, until)
        except StorageDamagedError as error:
            self._find(f"the newest heads cannot be told: {str(error).partition(';')[0]}")
        self._run(self._entries(), self._entry)
        select = self._connection.execute
        self._run(select(f"SELECT {HEAD_COLUMNS} FROM aggregates ORDER BY number"), self._head)
        self._run(select("SELECT pair, mark, row_check FROM marks"), self._mark)
        anchors = select("SELECT aggregate, incarnation, version, position FROM anchors")
        self._run(anchors, self._anchor)
        self._progress(self._all, self._all)
        return self._report

    def _run(self, rows: Iterator[Any], check: Callable[[Any], None]) -> None:
        for row in self._rows(rows):
            try:
                check(row)
            except StorageDamagedError as error:
                self._find(str(error).partition(";")[0])
            self._done += 1
            if self._done % PROGRESS_EVERY == 0:
                self._progress(self._done, self._all)

    def _entries(self) -> Iterator[tuple[Entry, object]]:
        """Every entry of every pack that is sound, with its payload."""
        for row in whole_packs(self._connection, 0):
            try:
                yield from Opened(row).after(0)
            except StorageDamagedError as error:
                self._find(str(error).partition(";")[0])

    def _rows(self, rows: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from rows
        except sqlite3.DatabaseError as error:
            self._find(f"the rest of a table cannot be read: {error}")

    def _find(self, finding: str) -> None:
        if len(self._report.findings) < FINDINGS_MAX:
            self._report.findings.append(finding)

    def _entry(self, found: tuple[Entry, object]) -> None:
        self._report.entries += 1
        entry, body = found
        head = self._newest(find_head_by_number(self._connection, entry.aggregate))
        if entry.kind != FeedKind.WRITTEN:
            return
        try:
            decode_events(check_body(entry, body))
        except ValueError:
            self._find(f"the payload at position {entry.position} cannot be decoded")
        self._check_link(entry, head)
        mark = self._mark_of(head, entry.client)
        if entry.max_seq > mark:
            self._find(
                f"the entry at position {entry.position} holds sequence {entry.max_seq}, "
                f"above its pair's mark {mark}"
            )

    def _newest(self, row: HeadRow) -> HeadRow:
        return self._owed.get(row.key.packed, row)

    def _check_link(self, entry: Entry, row: HeadRow) -> None:
        """Every readable batch but the first one left is linked to the one before it."""
        head = row.head
        if (
            head.life is not Life.LIVE
            or entry.incarnation != head.incarnation
            or entry.version <= head.floor
        ):
            return
        before = self._find_batch(entry.previous)
        if (
            before is None
            or before.aggregate != entry.aggregate
            or before.incarnation != entry.incarnation
            or before.version != entry.version - 1
        ):
            self._find(f"the batch before the one at position {entry.position} is gone")

    def _find_batch(self, position: int) -> Entry | None:
        try:
            found = find_entry(self._connection, position)
        except StorageDamagedError:
            return None
        return None if found is None or found[0].kind != FeedKind.WRITTEN else found[0]

    def _mark_of(self, head: HeadRow, client: bytes) -> int:
        if client == head.mark_client:
            return head.mark
        return find_mark(self._connection, head.number, client)

    def _head(self, row: Any) -> None:
        self._report.aggregates += 1
        stored = self._newest(head_of(row))
        head = stored.head
        if head.life is not Life.LIVE:
            return
        newest = self._find_batch(stored.last_position)
        if (
            newest is None
            or newest.aggregate != stored.number
            or newest.incarnation != head.incarnation
            or newest.version != head.version
            or newest.event_seq != head.event_seq
        ):
            self._find(f"the head of {stored.key} does not agree with its newest batch")

    def _mark(self, row: Any) -> None:
        self._report.marks += 1
        mark_of(row)
        find_head_by_number(self._connection, aggregate_of(row[0]))

    def _anchor(self, row: Any) -> None:
        aggregate, incarnation, version, position = row
        entry = self._find_batch(position)
        if (
            entry is None
            or entry.aggregate != aggregate
            or entry.incarnation != incarnation
            or entry.version != version
        ):
            self._find(f"an anchor of aggregate number {aggregate} points to another batch")
