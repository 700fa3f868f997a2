"""Find one row by its key, and believe that there is none only after looking at its neighbours.

A checksum tells that a row is not what was written, but a damaged key hides its row: the search
passes it by, and a missing mark would let a repeated write through. The hidden row still lies where
it was, though, next to where the search ended; so a miss counts only if both neighbours are sound.
Each is an index lookup, whatever the length of the history.

What this cannot see is damage to SQLite's own bookkeeping, such as the number of rows in a page:
SQLite notices some of it, and the full check all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from landed.engines.sqlite.row import (
    HEAD_COLUMNS,
    HeadRow,
    head_of,
    mark_of,
    pair_of,
)
from landed.errors import StorageDamagedError

_HEAD: Final = f"SELECT {HEAD_COLUMNS} FROM aggregates WHERE key = ?"
_HEAD_BY_NUMBER: Final = f"SELECT {HEAD_COLUMNS} FROM aggregates WHERE number = ?"
_HEADS_BY_NUMBER: Final = f"SELECT {HEAD_COLUMNS} FROM aggregates WHERE number IN"
_MANY: Final = 500
"""Parameters of one statement; older SQLite takes 999 at most."""
_HEAD_BEFORE: Final = (
    f"SELECT {HEAD_COLUMNS} FROM aggregates WHERE key < ? ORDER BY key DESC LIMIT 1"
)
_HEAD_AFTER: Final = f"SELECT {HEAD_COLUMNS} FROM aggregates WHERE key > ? ORDER BY key LIMIT 1"
_MARK_COLUMNS: Final = "pair, mark, row_check"
_MARK: Final = f"SELECT {_MARK_COLUMNS} FROM marks WHERE pair = ?"
_MARK_BEFORE: Final = f"SELECT {_MARK_COLUMNS} FROM marks WHERE pair < ? ORDER BY pair DESC LIMIT 1"
_MARK_AFTER: Final = f"SELECT {_MARK_COLUMNS} FROM marks WHERE pair > ? ORDER BY pair LIMIT 1"


def find_head(connection: sqlite3.Connection, key: bytes) -> HeadRow | None:
    """Return the head of an aggregate by its packed key, checked; None if it was never written.

    Raises:
        StorageDamagedError: its row, or one beside where it would be, is not what was written.
    """
    row = connection.execute(_HEAD, (key,)).fetchone()
    if row is None:
        before = connection.execute(_HEAD_BEFORE, (key,)).fetchone()
        after = connection.execute(_HEAD_AFTER, (key,)).fetchone()
        if (before is not None and head_of(before).key.packed >= key) or (
            after is not None and head_of(after).key.packed <= key
        ):
            raise StorageDamagedError("the index of aggregate keys is out of order")
        return None
    found = head_of(row)
    if found.key.packed != key:
        raise StorageDamagedError("the index of aggregate keys points to another aggregate")
    return found


def find_head_by_number(connection: sqlite3.Connection, number: int) -> HeadRow:
    """Return the head of an aggregate that an entry names.

    Raises:
        StorageDamagedError: it is gone, or not what was written.
    """
    row = connection.execute(_HEAD_BY_NUMBER, (number,)).fetchone()
    if row is None:
        raise StorageDamagedError(f"the head of aggregate number {number} is gone")
    return head_of(row)


def find_heads(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[HeadRow]:
    """Yield the heads of many aggregates that entries name; ``numbers`` rise, without a double.

    Raises:
        StorageDamagedError: one is gone, or not what was written.
    """
    for start in range(0, len(numbers), _MANY):
        some = numbers[start : start + _MANY]
        query = f"{_HEADS_BY_NUMBER} ({', '.join('?' * len(some))}) ORDER BY number"
        rows = connection.execute(query, some).fetchall()
        if len(rows) < len(some):
            gone = min(set(some) - {row[0] for row in rows})
            raise StorageDamagedError(f"the head of aggregate number {gone} is gone")
        yield from map(head_of, rows)


def find_mark(connection: sqlite3.Connection, aggregate: int, client: bytes) -> int:
    """Return a pair's mark from the table of marks, checked; 0 if it has none there.

    Raises:
        StorageDamagedError: its row, or one beside where it would be, is not what was written.
    """
    pair = pair_of(aggregate, client)
    row = connection.execute(_MARK, (pair,)).fetchone()
    if row is not None:
        return mark_of(row)
    for query in (_MARK_BEFORE, _MARK_AFTER):
        beside = connection.execute(query, (pair,)).fetchone()
        if beside is not None:
            mark_of(beside)
    return 0
