"""Rows and their checksums: what was written is what is read, or it is not returned.

Every row carries a CRC-32 over all its other columns, payload included.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import crc32

from landed.engines.port import Staged
from landed.engines.postgres.arrays import blobs, ints, uuids
from landed.engines.postgres.schema import HALF
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId, UserId
from landed.log import Batch, FeedKind, Head, Life
from landed.wire.codec import decode_events, encode_events

ALLOW_RECREATE: Final = 2
ALLOW_CONTINUATION: Final = 4

_NOBODY: Final = bytes(16)
_ENTRY: Final = struct.Struct("<10qi16s?16s")
_HEAD: Final = struct.Struct("<48s8q16s?16s")
_MARK: Final = struct.Struct("<q16sq")
_CRC_HALF: Final = 2**31
_MALFORMED: Final = (struct.error, TypeError, ValueError, OverflowError, AttributeError)
"""What unpacking raises when a damaged column has another type or size."""

ENTRY_COLUMNS: Final = (
    *("position", "number", "kind", "flags", "incarnation", "version", "event_seq", "event_count"),
    *("server_ms", "min_seq", "max_seq", "size", "row_check", "client", "user_id", "body"),
)
HEAD_COLUMNS: Final = (
    *("key", "number", "life", "flags", "incarnation", "version", "event_seq", "floor", "last_ms"),
    *("row_check", "last_client", "last_user"),
)
HEAD_WIDTH: Final = len(HEAD_COLUMNS)


class HeadRow(NamedTuple):
    """A row of ``landed_log_heads``, checked and read back."""

    number: int
    key: AggregateKey
    head: Head


class Entry(NamedTuple):
    """A row of ``landed_log_entries``, checked and read back."""

    position: int
    kind: FeedKind
    version: int
    size: int
    batch: Batch | None


def entries_of(group: Sequence[Staged], numbers: dict[bytes, int]) -> list[bytes]:
    """The rows of a group, a column each, in the order of ``ENTRY_COLUMNS``."""
    rows: list[tuple[int, ...]] = []
    clients: list[bytes] = []
    users: list[bytes | None] = []
    bodies: list[bytes | None] = []
    for staged in group:
        head, batch = staged.head, staged.batch
        client = head.last_client.bytes
        user = None if head.last_user is None else head.last_user.bytes
        body: bytes | None = None
        low = high = -HALF
        count = 0
        version = head.version
        if batch is not None:
            body = encode_events(batch.events)
            seqs = [event.client_seq for event in batch.events]
            low, high, count = min(seqs) - HALF, max(seqs) - HALF, len(seqs)
        elif staged.kind is FeedKind.TRIMMED:
            version = head.floor
        fields = (
            staged.position,
            numbers[staged.key.packed],
            int(staged.kind),
            _flags(head),
            head.incarnation,
            version,
            head.event_seq,
            count,
            head.last_ms,
            low,
            high,
            0 if body is None else len(body),
        )
        rows.append((*fields, entry_check(fields, client, user, body)))
        clients.append(client)
        users.append(user)
        bodies.append(body)
    columns = [ints(column) for column in zip(*rows, strict=True)]
    return [*columns, uuids(clients), uuids(users), blobs(bodies)]


def heads_of(heads: dict[bytes, Head], numbers: dict[bytes, int]) -> list[bytes]:
    """The heads that a group leaves, a column each, in the order of ``HEAD_COLUMNS``."""
    rows: list[tuple[int, ...]] = []
    clients: list[bytes] = []
    users: list[bytes | None] = []
    for key, head in heads.items():
        client = head.last_client.bytes
        user = None if head.last_user is None else head.last_user.bytes
        fields = (
            numbers[key],
            int(head.life),
            _flags(head),
            head.incarnation,
            head.version,
            head.event_seq,
            head.floor,
            head.last_ms,
        )
        rows.append((*fields, _head_check(key, fields, client, user)))
        clients.append(client)
        users.append(user)
    columns = [ints(column) for column in zip(*rows, strict=True)]
    return [blobs(list(heads)), *columns, uuids(clients), uuids(users)]


def marks_of(marks: dict[tuple[int, bytes], int]) -> list[bytes]:
    """Marks that a group raises, a column each: number, client, mark, row_check."""
    rows = [
        (number, client, mark - HALF, _mark_check(number, client, mark - HALF))
        for (number, client), mark in marks.items()
    ]
    numbers, clients, columns, checks = zip(*rows, strict=True) if rows else ((), (), (), ())
    return [ints(numbers), uuids(clients), ints(columns), ints(checks)]


def head_of(row: Sequence[Any]) -> HeadRow:
    """Check a row of ``HEAD_COLUMNS`` and take it apart.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    try:
        client = row[10].bytes
        user = None if row[11] is None else row[11].bytes
        if _head_check(row[0], row[1:9], client, user) != row[9]:
            raise StorageDamagedError(_damaged(f"the head of aggregate number {row[1]}"))
        head = Head(
            Life(row[2]),
            row[4],
            row[5],
            row[6],
            row[7],
            bool(row[3] & ALLOW_RECREATE),
            bool(row[3] & ALLOW_CONTINUATION),
            row[8],
            ClientId(row[10]),
            None if user is None else UserId(row[11]),
        )
        return HeadRow(row[1], AggregateKey.from_packed(bytes(row[0])), head)
    except _MALFORMED:
        raise StorageDamagedError(_damaged(f"the head of aggregate number {row[1]}")) from None


def mark_of(number: int, client: UUID, column: int, row_check: int) -> int:
    """Check a mark and return it.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    if _mark_check(number, client.bytes, column) != row_check:
        raise StorageDamagedError(_damaged(f"a mark of aggregate number {number}"))
    return column + HALF


def entry_of(row: Sequence[Any]) -> Entry:
    """Check a row of ``ENTRY_COLUMNS`` and take it apart, events included.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    try:
        client = row[13].bytes
        user = None if row[14] is None else row[14].bytes
        body = row[15]
        if entry_check(row[:12], client, user, body) != row[12]:
            raise StorageDamagedError(_damaged(f"the entry at position {row[0]}"))
        kind = FeedKind(row[2])
        batch = None
        if kind is FeedKind.WRITTEN:
            batch = Batch(
                row[5],
                ClientId(row[13]),
                None if user is None else UserId(row[14]),
                row[8],
                decode_events(body),
            )
        return Entry(row[0], kind, row[5], row[11], batch)
    except _MALFORMED:
        raise StorageDamagedError(_damaged(f"the entry at position {row[0]}")) from None


def _flags(head: Head) -> int:
    return (ALLOW_RECREATE if head.allow_recreate else 0) | (
        ALLOW_CONTINUATION if head.allow_continuation else 0
    )


def entry_check(
    fields: Sequence[int], client: bytes, user: bytes | None, body: bytes | None
) -> int:
    """The checksum of an entry. ``fields``: the columns before ``row_check``, in their order."""
    packed = _ENTRY.pack(
        *fields[:10], 0 if body is None else 1, client, user is not None, user or _NOBODY
    )
    packed += struct.pack("<2q", *fields[10:12])
    return crc32(body or b"", crc32(packed)) - _CRC_HALF


def _head_check(key: bytes, fields: Sequence[int], client: bytes, user: bytes | None) -> int:
    packed = _HEAD.pack(key, *fields, client, user is not None, user or _NOBODY)
    return crc32(packed) - _CRC_HALF


def _mark_check(number: int, client: bytes, column: int) -> int:
    return crc32(_MARK.pack(number, client, column)) - _CRC_HALF


def _damaged(what: str) -> str:
    return (
        f"{what} is not what was written; it is not returned. "
        "Find out what changed it, and restore the log from a backup"
    )
