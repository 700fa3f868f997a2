"""The quick check at open: the newest entries are sound and the heads agree with them."""

from __future__ import annotations

import sqlite3
from typing import Final

from landed.engines.sqlite.lookup import find_head_by_number
from landed.engines.sqlite.row import ENTRY_COLUMNS, Entry, HeadRow, entry_of
from landed.errors import StorageDamagedError
from landed.log import FeedKind, Life

TAIL_ENTRIES: Final = 256
"""Entries looked at, whatever the size of the log: some milliseconds. The rest is checked when it
is read, and all of it by ``landed log verify``."""

_TAIL: Final = f"SELECT {ENTRY_COLUMNS} FROM entries ORDER BY position DESC LIMIT ?"


def check_tail(connection: sqlite3.Connection) -> tuple[int, int]:
    """Check the newest entries and return the newest position and server time, or 0 and 0.

    The numbers of everything to come follow from these, so a log damaged here is not opened.

    Raises:
        StorageDamagedError: they are not what was written, or a head does not agree.
    """
    newest: dict[int, Entry] = {}
    ends = (0, 0)
    for row in connection.execute(_TAIL, (TAIL_ENTRIES,)):
        entry = entry_of(row)
        if entry.aggregate not in newest:
            newest[entry.aggregate] = entry
        if ends == (0, 0):
            ends = (entry.position, entry.server_ms)
    for entry in newest.values():
        if not agrees(find_head_by_number(connection, entry.aggregate), entry):
            raise StorageDamagedError(
                f"the head of aggregate number {entry.aggregate} does not agree with its newest "
                f"entry, at position {entry.position}: restore the log from a backup"
            )
    return ends


def agrees(row: HeadRow, newest: Entry) -> bool:
    """Whether a head is what the newest entry of its aggregate made of it."""
    head = row.head
    same = (
        head.incarnation == newest.incarnation
        and head.event_seq == newest.event_seq
        and head.last_ms == newest.server_ms
        and head.last_client.bytes == newest.client
    )
    if newest.kind == FeedKind.WRITTEN:
        return (
            same
            and head.life is Life.LIVE
            and head.version == newest.version
            and row.last_position == newest.position
        )
    if newest.kind == FeedKind.TRIMMED:
        return same and head.life is Life.LIVE and head.floor == newest.version
    return same and head.life is Life.DELETED and head.version == newest.version
