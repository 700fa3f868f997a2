"""Rows and their checksums: what was written is what is read, or it is not returned.

Every row carries a CRC-32 over all its columns. The payload has one of its own, which the row's
covers, so that a batch can be judged by its metadata without reading its payload (log rule R7).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import crc32

from landed.engines.sqlite.schema import HALF, from_column, to_column
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId, UserId
from landed.log import Batch, FeedKind, Head, Life

HAS_USER: Final = 1
ALLOW_RECREATE: Final = 2
ALLOW_CONTINUATION: Final = 4
HAS_MARK: Final = 8

_NOBODY: Final = bytes(16)
_ENTRY: Final = struct.Struct("<qqBBqqqqq16s16sqqqqI")
_HEAD: Final = struct.Struct("<q48sBqqqqBq16s16sq16sq")
_PAIR: Final = struct.Struct(">Q16s")
_MARK: Final = struct.Struct("<24sq")
_PACK_ENTRY: Final = _ENTRY.pack
_PACK_HEAD: Final = _HEAD.pack
_new = tuple.__new__  # past the constructor, where a row each is made
_MALFORMED: Final = (struct.error, TypeError, ValueError, OverflowError)
"""What unpacking raises when a damaged column has another type or size."""


class Entry(NamedTuple):
    """A row of ``entries`` without its payload, checked."""

    position: int
    aggregate: int
    kind: int
    flags: int
    incarnation: int
    version: int
    event_seq: int
    event_count: int
    previous: int
    client: bytes
    user: bytes | None
    server_ms: int
    min_seq: int
    max_seq: int
    size: int
    body_check: int

    def batch(self) -> Batch:
        """The batch without its events."""
        return Batch(
            self.version,
            ClientId(id_of(self.client)),
            None if self.user is None else UserId(id_of(self.user)),
            self.server_ms,
            (),
        )


ENTRY_COLUMNS: Final = ", ".join(Entry._fields) + ", row_check"
ENTRY_WIDTH: Final = len(Entry._fields) + 1


class HeadRow(NamedTuple):
    """A row of ``aggregates``, checked and read back."""

    number: int
    key: AggregateKey
    head: Head
    last_position: int
    mark_client: bytes | None
    mark: int


HEAD_COLUMNS: Final = (
    "number, key, life, incarnation, version, event_seq, floor, flags, last_ms, last_client, "
    "last_user, last_position, mark_client, mark, row_check"
)


def entry_row(
    position: int,
    aggregate: int,
    kind: int,
    incarnation: int,
    version: int,
    event_seq: int,
    event_count: int,
    previous: int,
    client: bytes,
    user: bytes | None,
    server_ms: int,
    *,
    allowed: int = 0,
    seqs: tuple[int, int] = (0, 0),
    body: bytes = b"",
) -> tuple[Any, ...]:
    """Make the row of ``entries`` to insert, in the order of its columns.

    ``allowed`` holds the flags of a delete; ``seqs`` the lowest and highest client_seq. Positional
    and flat, because one is made for every batch written.
    """
    flags = allowed if user is None else allowed | HAS_USER
    low, high = seqs[0] - HALF, seqs[1] - HALF
    size, body_check = len(body), crc32(body)
    row_check = crc32(
        _PACK_ENTRY(
            position,
            aggregate,
            kind,
            flags,
            incarnation,
            version,
            event_seq,
            event_count,
            previous,
            client,
            _NOBODY if user is None else user,
            server_ms,
            low,
            high,
            size,
            body_check,
        )
    )
    return (
        position,
        aggregate,
        kind,
        flags,
        incarnation,
        version,
        event_seq,
        event_count,
        previous,
        client,
        user,
        server_ms,
        low,
        high,
        size,
        body_check,
        row_check,
        body or None,
    )


def entry_of(row: Sequence[Any]) -> Entry:
    """Check a row of ``ENTRY_COLUMNS`` and take it apart.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    columns = tuple(row[: ENTRY_WIDTH - 1])
    try:
        if _entry_check(columns) != row[ENTRY_WIDTH - 1]:
            raise StorageDamagedError(_damaged(f"the entry at position {row[0]}"))
        low, high = from_column(row[12]), from_column(row[13])
        return _new(Entry, (*columns[:12], low, high, *columns[14:]))
    except _MALFORMED:
        raise StorageDamagedError(_damaged(f"the entry at position {row[0]}")) from None


def check_body(entry: Entry, body: object) -> bytes:
    """Return the payload of an entry if it is what was written.

    Raises:
        StorageDamagedError: it is not.
    """
    if (
        not isinstance(body, bytes)
        or len(body) != entry.size
        or crc32(body) != entry.body_check
        or entry.kind != FeedKind.WRITTEN
    ):
        raise StorageDamagedError(_damaged(f"the payload at position {entry.position}"))
    return body


def head_row(row: HeadRow) -> tuple[Any, ...]:
    """Make the row of ``aggregates`` to insert or update, in the order of its columns."""
    number, aggregate_key, head, last_position, mark_client, mark = row
    key = aggregate_key.packed
    life, incarnation, version, event_seq, floor, recreate, continuation, last_ms = head[:8]
    client = head.last_client.bytes
    user = None if head.last_user is None else head.last_user.bytes
    flags = (
        (0 if user is None else HAS_USER)
        | (ALLOW_RECREATE if recreate else 0)
        | (ALLOW_CONTINUATION if continuation else 0)
        | (0 if mark_client is None else HAS_MARK)
    )
    mark -= HALF
    row_check = crc32(
        _PACK_HEAD(
            number,
            key,
            life,
            incarnation,
            version,
            event_seq,
            floor,
            flags,
            last_ms,
            client,
            _NOBODY if user is None else user,
            last_position,
            _NOBODY if mark_client is None else mark_client,
            mark,
        )
    )
    return (
        number,
        key,
        int(life),
        incarnation,
        version,
        event_seq,
        floor,
        flags,
        last_ms,
        client,
        user,
        last_position,
        mark_client,
        mark,
        row_check,
    )


def head_of(row: Sequence[Any]) -> HeadRow:
    """Check a row of ``HEAD_COLUMNS`` and take it apart.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    try:
        if _head_check(row[:14]) != row[14]:
            raise StorageDamagedError(_damaged(f"the head of aggregate number {row[0]}"))
        flags = row[7]
        head = Head(
            Life(row[2]),
            row[3],
            row[4],
            row[5],
            row[6],
            bool(flags & ALLOW_RECREATE),
            bool(flags & ALLOW_CONTINUATION),
            row[8],
            ClientId(id_of(row[9])),
            UserId(id_of(row[10])) if flags & HAS_USER else None,
        )
        return HeadRow(
            row[0],
            AggregateKey.from_packed(row[1]),
            head,
            row[11],
            row[12] if flags & HAS_MARK else None,
            from_column(row[13]),
        )
    except _MALFORMED:
        raise StorageDamagedError(_damaged(f"the head of aggregate number {row[0]}")) from None


def pair_of(aggregate: int, client: bytes) -> bytes:
    """Make the key of a row of ``marks``. Ordered as its two parts are."""
    return _PAIR.pack(aggregate, client)


def aggregate_of(pair: bytes) -> int:
    """Take the aggregate's number back from the key of a row of ``marks``, checked before."""
    number: int = _PAIR.unpack(pair)[0]
    return number


def mark_row(pair: bytes, mark: int) -> tuple[bytes, int, int]:
    """Make a row of ``marks``."""
    column = to_column(mark)
    return (pair, column, crc32(_MARK.pack(pair, column)))


def mark_of(row: Sequence[Any]) -> int:
    """Check a row of ``marks`` (pair, mark, row_check) and return the mark.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    pair, column, row_check = row
    try:
        if len(pair) == _PAIR.size and crc32(_MARK.pack(pair, column)) == row_check:
            return from_column(column)
    except _MALFORMED:
        pass
    raise StorageDamagedError(_damaged("a mark"))


def meta_row(name: str, value: str) -> tuple[str, str, int]:
    """Make a row of ``meta``."""
    return (name, value, crc32(f"{name}={value}".encode()))


def meta_of(row: Sequence[Any]) -> tuple[str, str]:
    """Check a row of ``meta`` and return its name and value.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    name, value, row_check = row
    if crc32(f"{name}={value}".encode()) != row_check:
        raise StorageDamagedError(_damaged(f"the setting {name!r}"))
    return name, value


def _entry_check(columns: Sequence[Any]) -> int:
    client, user = columns[9], columns[10]
    # Sizes are insisted on, since packing would cut or pad in silence; and the row's flag tells an
    # absent name from one of zeros.
    if len(client) != 16 or (user is not None) != bool(columns[3] & HAS_USER):
        raise ValueError
    if user is None:
        return crc32(_PACK_ENTRY(*columns[:10], _NOBODY, *columns[11:]))
    if len(user) != 16:
        raise ValueError
    return crc32(_PACK_ENTRY(*columns))


def _head_check(columns: Sequence[Any]) -> int:
    flags = columns[7]
    return crc32(
        _PACK_HEAD(
            columns[0],
            _sized(columns[1], 48),
            *columns[2:9],
            _sized(columns[9], 16),
            _optional(columns[10], is_there=flags & HAS_USER),
            columns[11],
            _optional(columns[12], is_there=flags & HAS_MARK),
            columns[13],
        )
    )


def _sized(column: bytes, size: int) -> bytes:
    """Insist on a size: packing would cut or pad in silence."""
    if len(column) != size:
        raise ValueError
    return column


def _optional(column: bytes | None, *, is_there: int) -> bytes:
    """Tell an absent name from one of zeros, by the row's flag."""
    if (column is not None) != bool(is_there):
        raise ValueError
    return _NOBODY if column is None else _sized(column, 16)


@lru_cache(4096)
def id_of(column: bytes) -> UUID:
    """Make the UUID of a column, once for all the rows that name the same writer or user."""
    return UUID(bytes=column)


def _damaged(what: str) -> str:
    return (
        f"{what} is not what was written; it is not returned. "
        "Stop the log and run `landed log verify PATH` to see what else is damaged"
    )
