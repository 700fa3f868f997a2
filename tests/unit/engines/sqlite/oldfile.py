"""A log file as schema 2 had it: a row for each entry, a column for each number."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from landed.engines.sqlite.pack import Opened, whole_packs
from landed.engines.sqlite.row import HEAD_COLUMNS, head_of
from landed.engines.sqlite.schema import to_column
from tests.unit.engines.sqlite.logfile import raw

_ENTRY = struct.Struct("<qqBBqqqqq16s16sqqqqI")
_HEAD = struct.Struct("<q48sBqqqqBq16s16sq16sq")
_TABLES = (
    """
    CREATE TABLE entries (
      position INTEGER PRIMARY KEY, aggregate INTEGER NOT NULL, kind INTEGER NOT NULL,
      flags INTEGER NOT NULL, incarnation INTEGER NOT NULL, version INTEGER NOT NULL,
      event_seq INTEGER NOT NULL, event_count INTEGER NOT NULL, previous INTEGER NOT NULL,
      client BLOB NOT NULL, user BLOB, server_ms INTEGER NOT NULL, min_seq INTEGER NOT NULL,
      max_seq INTEGER NOT NULL, size INTEGER NOT NULL, body_check INTEGER NOT NULL,
      row_check INTEGER NOT NULL, body BLOB
    )
    """,
    """
    CREATE TABLE aggregates (
      number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, life INTEGER NOT NULL,
      incarnation INTEGER NOT NULL, version INTEGER NOT NULL, event_seq INTEGER NOT NULL,
      floor INTEGER NOT NULL, flags INTEGER NOT NULL, last_ms INTEGER NOT NULL,
      last_client BLOB NOT NULL, last_user BLOB, last_position INTEGER NOT NULL,
      mark_client BLOB, mark INTEGER NOT NULL, row_check INTEGER NOT NULL
    )
    """,
)


def make_old(path: Path) -> None:
    """Rewrite a closed log as schema 2."""
    entries, heads = [], []
    with raw(path) as connection:
        for pack in map(Opened, whole_packs(connection, 0)):
            for entry, body in pack.after(0):
                assert isinstance(body, bytes)
                flags = entry.flags | (entry.user is not None)
                row = (
                    *entry[:3], flags, *entry[4:12],
                    to_column(entry.min_seq), to_column(entry.max_seq), len(body), crc32(body),
                )  # fmt: skip
                check = crc32(_ENTRY.pack(*row[:10], row[10] or bytes(16), *row[11:]))
                entries.append((*row, check, body or None))
        for row in connection.execute(f"SELECT {HEAD_COLUMNS} FROM aggregates"):
            number, key, head, last_position, mark_client, mark = head_of(row)
            user = None if head.last_user is None else head.last_user.bytes
            flags = (user is not None) | 2 * head.allow_recreate | 4 * head.allow_continuation
            flags |= 8 * (mark_client is not None)
            made = (
                number, key.packed, int(head.life), *head[1:5], flags, head.last_ms,
                head.last_client.bytes, user, last_position, mark_client, to_column(mark),
            )  # fmt: skip
            packed = [bytes(16) if column is None else column for column in made]
            heads.append((*made, crc32(_HEAD.pack(*packed))))
        connection.execute("BEGIN")
        for table in ("packs", "aggregates"):
            connection.execute(f"DROP TABLE {table}")
        for table in _TABLES:
            connection.execute(table)
        connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * 18)})", entries)
        connection.executemany(f"INSERT INTO aggregates VALUES ({', '.join('?' * 15)})", heads)
        connection.execute("PRAGMA user_version = 2")
        connection.execute("COMMIT")
