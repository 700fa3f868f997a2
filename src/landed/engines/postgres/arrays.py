"""Columns of many rows as PostgreSQL's binary arrays: one parameter a column, whatever the number.

The driver would turn each value over by itself, which costs more than judging the change did.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_INT8: Final = 20
_BYTEA: Final = 17
_UUID: Final = 2950
_NULL: Final = b"\xff\xff\xff\xff"
_UUID_SIZE: Final = b"\x00\x00\x00\x10"
_HEADER: Final = struct.Struct(">5i")
_EMPTY: Final = struct.Struct(">3i")
_SIZE: Final = struct.Struct(">i")


def ints(values: Sequence[int]) -> bytes:
    """Encode numbers of -2^63 to 2^63 - 1 as ``bigint[]``.

    Raises:
        struct.error: one is beyond.
    """
    count = len(values)
    parts = [8] * (2 * count)
    parts[1::2] = values
    return _header(count, _INT8) + struct.pack(f">{'iq' * count}", *parts)


def blobs(values: Sequence[bytes | None]) -> bytes:
    """Encode byte strings as ``bytea[]``; None is NULL."""
    size = _SIZE.pack
    parts = [_NULL if value is None else size(len(value)) + value for value in values]
    return b"".join([_header(len(parts), _BYTEA), *parts])


def uuids(values: Sequence[bytes | None]) -> bytes:
    """Encode UUIDs, given as their 16 bytes, as ``uuid[]``; None is NULL."""
    parts = [_NULL if value is None else _UUID_SIZE + value for value in values]
    return b"".join([_header(len(parts), _UUID), *parts])


def _header(count: int, oid: int) -> bytes:
    return _HEADER.pack(1, 1, oid, count, 1) if count else _EMPTY.pack(0, 0, oid)
