"""The newest entries at open: what heads they make, and whether they are sound."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from landed.engines.sqlite.lookup import find_head_by_number, find_heads, find_mark
from landed.engines.sqlite.pack import Entry, Opened, newest_packs, packs_from
from landed.engines.sqlite.row import ALLOW_CONTINUATION, ALLOW_RECREATE, HeadRow, id_of
from landed.errors import StorageDamagedError
from landed.ids import ClientId, UserId
from landed.log import FeedKind, Head, Life

TAIL_ENTRIES: Final = 256
"""Entries looked at, whatever the size of the log: some milliseconds. The rest is checked when it
is read, and all of it by ``landed log verify``."""

# An enumeration's members are looked up slowly, and constructors cost as much as what they make.
_WRITTEN: Final = int(FeedKind.WRITTEN)
_TRIMMED: Final = int(FeedKind.TRIMMED)
_LIVE: Final = Life.LIVE
_DELETED: Final = Life.DELETED
_new = tuple.__new__

FindMark = Callable[[int, bytes], int]
"""A pair's mark in the table of marks, by the aggregate's number and the client."""


def replay(connection: sqlite3.Connection, until: int) -> dict[bytes, HeadRow]:
    """Tell the heads that entries after a position made, by packed key.

    Rows may hold some of it already: a kill interrupts a sweep. It does no harm to tell that again,
    since an entry says what the head was after it, not by how much it changed.

    Raises:
        StorageDamagedError: an entry or a head is not what was written.
    """

    def mark(number: int, client: bytes) -> int:
        return find_mark(connection, number, client)

    told: defaultdict[int, list[Entry]] = defaultdict(list)
    for row in packs_from(connection, until):
        for entry in Opened(row).entries():
            if entry.position > until:
                told[entry.aggregate].append(entry)
    rows: dict[bytes, HeadRow] = {}
    for stored in find_heads(connection, sorted(told)):
        head = stored
        for entry in told[stored.number]:
            head = after(head, entry, mark)
        rows[head.key.packed] = head
    return rows


def after(row: HeadRow, entry: Entry, find_mark: FindMark) -> HeadRow:
    """Say what an entry makes of the head before it, or of a later one: the same, in the end.

    What the law decided when the entry was written is not decided again, it stands in the entry.
    """
    number, key, head, last_position, client, mark = row
    _, before, version, _, floor, _, _, _, _, _ = head
    # Whole and at once: as many as a kill leaves are told before a log is open.
    position, _, kind, flags, incarnation, at, event_seq, _, _, writer, user, ms, _, seq, _, _ = (
        entry
    )
    if incarnation < before:
        return row  # the row is of a later life, whose entries are still to come
    life = _LIVE
    if kind == _WRITTEN:
        version = at
        if incarnation > before:
            floor = version
        last_position = position
        if seq:
            if client != writer:
                client, mark = writer, find_mark(number, writer)
            mark = max(mark, seq)
    elif kind == _TRIMMED:
        floor = at
    else:
        version, life = at, _DELETED
    made = (
        life,
        incarnation,
        version,
        event_seq,
        floor,
        bool(flags & ALLOW_RECREATE),
        bool(flags & ALLOW_CONTINUATION),
        ms,
        ClientId(id_of(writer)),
        None if user is None else UserId(id_of(user)),
    )
    return _new(HeadRow, (number, key, _new(Head, made), last_position, client, mark))


def check_tail(connection: sqlite3.Connection, owed: Mapping[bytes, HeadRow]) -> tuple[int, int]:
    """Check the newest entries and return the newest position and server time, or 0 and 0.

    The numbers of everything to come follow from these, so a log damaged here is not opened.

    Raises:
        StorageDamagedError: they are not what was written, or a head does not agree.
    """
    newest: dict[int, Entry] = {}
    ends = (0, 0)
    seen = 0
    for pack in newest_packs(connection):
        for entry in reversed(list(pack.entries())):
            newest.setdefault(entry.aggregate, entry)
            if ends == (0, 0):
                ends = (entry.position, entry.server_ms)
            seen += 1
        if seen >= TAIL_ENTRIES:
            break
    for entry in newest.values():
        stored = find_head_by_number(connection, entry.aggregate)
        row = owed.get(stored.key.packed, stored)
        # Of itself the mark is asked for: a repair may have lowered it since.
        if after(row, entry, lambda _, __: 0).head != row.head or _lags(row, entry):
            raise StorageDamagedError(
                f"the head of aggregate number {entry.aggregate} does not agree with its newest "
                f"entry, at position {entry.position}: restore the log from a backup"
            )
    return ends


def _lags(row: HeadRow, newest: Entry) -> bool:
    return newest.kind == FeedKind.WRITTEN and row.last_position != newest.position
