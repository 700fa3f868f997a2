"""Files of earlier schemas, which had a row for each entry: rewritten when opened for writing.

All in one transaction: a kill leaves the file as it was. Every row is checked before it is taken
over, so that what was damaged does not come to look sound.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final
from zlib import crc32

from landed.engines.sqlite.pack import INSERT_PACK, Drafted, pack
from landed.engines.sqlite.row import HeadRow, damaged, head_row, id_of, meta_row
from landed.engines.sqlite.schema import HEADS_UNTIL, SCHEMA_VERSION, TABLES, from_column
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId, UserId
from landed.log import Head, Life

_AT_ONCE: Final = 4096
_HAS_USER: Final = 1
_ALLOWED: Final = 2 | 4
_HAS_MARK: Final = 8
_NOBODY: Final = bytes(16)
_ENTRY: Final = struct.Struct("<qqBBqqqqq16s16sqqqqI")
_HEAD: Final = struct.Struct("<q48sBqqqqBq16s16sq16sq")
_ENTRIES: Final = (
    "SELECT position, aggregate, kind, flags, incarnation, version, event_seq, event_count, "
    "previous, client, user, server_ms, min_seq, max_seq, size, body_check, row_check, body "
    "FROM entries ORDER BY position"
)
_HEADS: Final = (
    "SELECT number, key, life, incarnation, version, event_seq, floor, flags, last_ms, "
    "last_client, last_user, last_position, mark_client, mark, row_check "
    "FROM old_aggregates ORDER BY number"
)
_MALFORMED: Final = (struct.error, TypeError, ValueError, OverflowError)


def upgrade(connection: sqlite3.Connection, settings: dict[str, str]) -> None:
    """Make a file of schema 1 or 2 one of schema 3; leave a newer one as it is.

    Transaction: all of it, with the version, so that an older Landed refuses the file from then on.

    Raises:
        StorageDamagedError: a row is not what was written. The file is as it was.
        sqlite3.Error: it cannot be rewritten, for lack of room perhaps. Likewise.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if HEADS_UNTIL not in settings:
            # Schema 1 wrote every head with its change.
            (newest,) = connection.execute("SELECT max(position) FROM entries").fetchone()
            settings[HEADS_UNTIL] = str(newest or 0)
            row = meta_row(HEADS_UNTIL, settings[HEADS_UNTIL])
            connection.execute("INSERT INTO meta VALUES (?, ?, ?)", row)
        connection.execute("ALTER TABLE aggregates RENAME TO old_aggregates")
        for table in TABLES:
            if "CREATE TABLE packs" in table or "CREATE TABLE aggregates" in table:
                connection.execute(table)
        for entries in _taken(connection, _ENTRIES, _entry):
            connection.executemany(INSERT_PACK, pack(entries))
        for heads in _taken(connection, _HEADS, _head):
            rows = [head_row(row) for row in heads]
            connection.executemany("INSERT INTO aggregates VALUES (?, ?, ?)", rows)
        connection.execute("DROP TABLE entries")
        connection.execute("DROP TABLE old_aggregates")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _taken(
    connection: sqlite3.Connection, query: str, take: Callable[[Sequence[Any]], Any]
) -> Iterator[list[Any]]:
    rows = map(take, connection.execute(query))
    while some := list(islice(rows, _AT_ONCE)):
        yield some


def _entry(row: Sequence[Any]) -> Drafted:
    client, user, body = row[9], row[10], row[17] or b""
    try:
        if (
            len(client) != 16
            or (user is not None) != bool(row[3] & _HAS_USER)
            or len(user or _NOBODY) != 16
            or crc32(_ENTRY.pack(*row[:10], user or _NOBODY, *row[11:16])) != row[16]
            or (len(body), crc32(body)) != tuple(row[14:16])
        ):
            raise ValueError
        seqs = from_column(row[12]), from_column(row[13])
        return (*row[:3], row[3] & _ALLOWED, *row[4:12], *seqs, body)
    except _MALFORMED:
        raise StorageDamagedError(damaged(f"the entry at position {row[0]}")) from None


def _head(row: Sequence[Any]) -> HeadRow:
    flags, user, mark_client = row[7], row[10], row[12]
    try:
        if (
            (len(row[1]), len(row[9])) != (48, 16)
            or (user is not None) != bool(flags & _HAS_USER)
            or (mark_client is not None) != bool(flags & _HAS_MARK)
            or {len(user or _NOBODY), len(mark_client or _NOBODY)} != {16}
            or crc32(
                _HEAD.pack(*row[:10], user or _NOBODY, row[11], mark_client or _NOBODY, row[13])
            )
            != row[14]
        ):
            raise ValueError
        head = Head(
            Life(row[2]),
            row[3],
            row[4],
            row[5],
            row[6],
            bool(flags & 2),
            bool(flags & 4),
            row[8],
            ClientId(id_of(row[9])),
            None if user is None else UserId(id_of(user)),
        )
        key = AggregateKey.from_packed(row[1])
        return HeadRow(row[0], key, head, row[11], mark_client, from_column(row[13]))
    except _MALFORMED:
        raise StorageDamagedError(damaged(f"the head of aggregate number {row[0]}")) from None
