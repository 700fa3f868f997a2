"""Rows and their checksums: what was written is what is read, or it is not returned.

Every row carries a CRC-32 over all that is in it. Rows of ``packs`` have a module of their own
(``pack.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID
from zlib import crc32

import msgspec

from landed.engines.sqlite.schema import from_column, to_column
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId, UserId
from landed.log import Head, Life

ALLOW_RECREATE: Final = 2
ALLOW_CONTINUATION: Final = 4

_CHECK_BYTES: Final = 4
_PAIR: Final = struct.Struct(">Q16s")
_MARK: Final = struct.Struct("<24sq")
_LIVES: Final = tuple(Life)  # by number
_new = tuple.__new__  # past the constructor, where a row each is made
_MALFORMED: Final = (
    struct.error,
    TypeError,
    ValueError,
    OverflowError,
    IndexError,
    msgspec.MsgspecError,
)
"""What taking a damaged row apart raises when something in it has another type or size."""

_encode: Final = msgspec.msgpack.Encoder().encode
_State = tuple[int, int, int, int, int, int, int, bytes, bytes | None, int, bytes | None, int]
_decode: Final = msgspec.msgpack.Decoder(_State).decode


class HeadRow(NamedTuple):
    """A row of ``aggregates``, checked and read back."""

    number: int
    key: AggregateKey
    head: Head
    last_position: int
    mark_client: bytes | None
    mark: int


HEAD_COLUMNS: Final = "number, key, state"


def head_row(row: HeadRow) -> tuple[int, bytes, bytes]:
    """Make the row of ``aggregates`` to insert or update, in the order of its columns."""
    number, aggregate_key, head, last_position, mark_client, mark = row
    key = aggregate_key.packed
    (
        life,
        incarnation,
        version,
        event_seq,
        floor,
        allow_recreate,
        allow_continuation,
        last_ms,
        last_client,
        last_user,
    ) = head
    flags = 0
    if allow_recreate or allow_continuation:
        flags = allow_recreate * ALLOW_RECREATE | allow_continuation * ALLOW_CONTINUATION
    client = column_of(last_client.int)
    state = _encode(
        (
            life,
            incarnation,
            version,
            event_seq,
            floor,
            flags,
            last_ms,
            client,
            None if last_user is None else column_of(last_user.int),
            last_position,
            # Most of the time it is the writer of the newest record, and need not be named twice.
            b"" if mark_client == client else mark_client,
            mark,
        )
    )
    return number, key, state + _check_of(number, key, state)


def head_of(row: Sequence[Any]) -> HeadRow:
    """Check a row of ``HEAD_COLUMNS`` and take it apart.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    try:
        number, key, blob = row
        state = blob[:-_CHECK_BYTES]
        if _check_of(number, key, state) != blob[-_CHECK_BYTES:]:
            raise StorageDamagedError(damaged(f"the head of aggregate number {row[0]}"))
        (
            life,
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
        ) = _decode(state)
        fields = (
            _LIVES[life],
            incarnation,
            version,
            event_seq,
            floor,
            bool(flags & ALLOW_RECREATE),
            bool(flags & ALLOW_CONTINUATION),
            last_ms,
            ClientId(id_of(client)),
            None if user is None else UserId(id_of(user)),
        )
        if mark_client is not None:
            mark_client = mark_client or client
        head = _new(Head, fields)
        made = (number, AggregateKey.from_packed(key), head, last_position, mark_client, mark)
        return _new(HeadRow, made)
    except _MALFORMED:
        raise StorageDamagedError(damaged(f"the head of aggregate number {row[0]}")) from None


def _check_of(number: int, key: bytes, state: bytes) -> bytes:
    check = crc32(state, crc32(key, crc32(number.to_bytes(8))))
    return check.to_bytes(_CHECK_BYTES)


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
    raise StorageDamagedError(damaged("a mark"))


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
        raise StorageDamagedError(damaged(f"the setting {name!r}"))
    return name, value


@lru_cache(4096)
def id_of(column: bytes) -> UUID:
    """Make the UUID of a column, once for all the rows that name the same writer or user."""
    return UUID(bytes=column)


@lru_cache(4096)
def column_of(number: int) -> bytes:
    """Make the column of a UUID, given as ``UUID.int``: what the rows of one writer share."""
    return number.to_bytes(16)


def damaged(what: str) -> str:
    """Say that something in the file is not what was written, and what to do."""
    return (
        f"{what} is not what was written; it is not returned. "
        "Stop the log and run `landed log verify PATH` to see what else is damaged"
    )
