"""Give back the space of batches that nobody can read any more, a bounded slice at a time.

Nothing of it is observable but the size of the file (log rule C13): entries of trims and deletes
stay, heads and marks stay, and a batch goes only after the change that ended it is durable.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from landed.engines.sqlite.append import Appender, Transaction
from landed.engines.sqlite.file import BUSY_TIMEOUT_S, translated
from landed.engines.sqlite.pack import Entry, drop, find_entry
from landed.engines.sqlite.schema import PAGE_BYTES
from landed.errors import StorageDamagedError
from landed.log import FeedKind

SLICE: Final = 1_000
"""Links followed by one call: some ten milliseconds."""
SLICE_BYTES: Final = 8 * 1024 * 1024
"""Payload dropped by one call, about."""
VACUUM_PAGES: Final = 2 * SLICE_BYTES // PAGE_BYTES
"""Free pages given back by one call: twice what a call frees, so that it catches up."""

FREE_SHARE: Final = 5
"""Up to one page in so many stays free, for new entries to be put in: a log that is trimmed as fast
as it grows would otherwise be cut and extended for ever."""

_ANCHOR: Final = (
    "SELECT position FROM anchors WHERE aggregate = ? AND incarnation = ? AND version >= ? "
    "ORDER BY version LIMIT 1"
)


class _Dead(NamedTuple):
    """A row of ``dead``."""

    position: int
    aggregate: int
    incarnation: int
    below: int
    start: int


def reclaim(connection: sqlite3.Connection, appender: Appender) -> int:
    """Drop a slice of dead batches and give free pages back; once none is left, shrink the file.

    A batch whose head is still owed is needed to tell that head, so what is owed is settled first.

    Transaction: the batches of one slice with their anchors, and where to go on. A range in which
    nothing is left to drop is one of its own.

    Returns:
        How many batches were dropped.

    Raises:
        StorageError: as for a commit.
    """
    while True:
        dropped = _drop_slice(connection, appender)
        if dropped != 0:
            return dropped or 0


def _drop_slice(connection: sqlite3.Connection, appender: Appender) -> int | None:
    """Take the next slice; 0 of a range in which nothing is left, None if there is no range."""
    try:
        row = connection.execute("SELECT * FROM dead ORDER BY position LIMIT 1").fetchone()
        if row is None:
            _vacuum(connection)
            _shrink(connection)
            return None
        dead = _Dead(*row)
        if dead.position > appender.settled:
            appender.settle()
        doomed, start = _walk(connection, dead)
    except sqlite3.Error as error:
        raise translated(error, "cannot look for dead batches") from error
    with Transaction(connection):
        drop(connection, [entry.position for entry in doomed])
        if doomed:
            connection.execute(
                "DELETE FROM anchors WHERE aggregate = ? AND incarnation = ? "
                "AND version BETWEEN ? AND ?",
                (dead.aggregate, dead.incarnation, doomed[-1].version, doomed[0].version),
            )
        if start:
            connection.execute(
                "UPDATE dead SET start = ? WHERE position = ?", (start, dead.position)
            )
        else:
            connection.execute("DELETE FROM dead WHERE position = ?", (dead.position,))
    try:
        _vacuum(connection)
    except sqlite3.Error as error:
        raise translated(error, "cannot give space back") from error
    return len(doomed)


def _walk(connection: sqlite3.Connection, dead: _Dead) -> tuple[list[Entry], int]:
    """Follow the links through a dead range. Returns what to drop and where to go on, 0 at the end.

    A range ends where the links lead to nothing: at the first batch, or at what an earlier range
    already gave back. A damaged entry ends it too: what lies behind it cannot be told from what
    lives, so its space is never given back.
    """
    doomed: list[Entry] = []
    position = dead.start
    anchor: Any = connection.execute(_ANCHOR, dead[1:4]).fetchone()
    if anchor is not None and anchor[0] < position:
        position = anchor[0]
    size = 0
    for _ in range(SLICE):
        try:
            found = find_entry(connection, position) if position else None
        except StorageDamagedError:
            return doomed, 0
        if found is None:
            return doomed, 0
        entry = found[0]
        if (
            entry.aggregate != dead.aggregate
            or entry.incarnation != dead.incarnation
            or entry.kind != FeedKind.WRITTEN
            or entry.previous >= position
        ):
            return doomed, 0
        if entry.version < dead.below:
            doomed.append(entry)
            size += entry.size
        position = entry.previous
        if size >= SLICE_BYTES:
            break
    return doomed, position


def _vacuum(connection: sqlite3.Connection) -> None:
    """Move free pages to the end of the file and cut them off, a bounded number of them."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    surplus = free - pages // FREE_SHARE
    if surplus <= 0:
        return
    with Transaction(connection):
        # The module takes one step of a statement without columns, and a step is a page.
        for _ in range(min(surplus, VACUUM_PAGES)):
            connection.execute("PRAGMA incremental_vacuum(1)")


def _shrink(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the file, which is cut then, unless somebody reads just now."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
