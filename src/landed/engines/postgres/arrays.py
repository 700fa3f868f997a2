"""Columns of many rows as PostgreSQL's binary arrays: one parameter a column, whatever the number.

The driver would turn each value over by itself, which costs more than judging the change did.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_INT8: Final = 20
_BYTEA: Final = 17
_UUID: Final = 2950
_NULL: Final = b"\xff\xff\xff\xff"
_UUID_SIZE: Final = b"\x00\x00\x00\x10"
_HEADER: Final = struct.Struct(">5i")
_EMPTY: Final = struct.Struct(">3i")
_SIZE: Final = struct.Struct(">i")


class _Array:
    """One column, encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Ints(_Array):
    """``bigint[]``."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Sequence[int]) -> Ints:
        """Encode numbers of -2^63 to 2^63 - 1.

        Raises:
            struct.error: one is beyond.
        """
        count = len(values)
        packed = struct.pack(f">{'iq' * count}", *[part for value in values for part in (8, value)])
        return cls(_header(count, _INT8) + packed)


class Blobs(_Array):
    """``bytea[]``."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Blobs:
        """Encode byte strings; None is NULL."""
        size = _SIZE.pack
        parts = [_NULL if value is None else size(len(value)) + value for value in values]
        return cls(_joined(parts, _BYTEA))


class Uuids(_Array):
    """``uuid[]``."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Uuids:
        """Encode UUIDs given as their 16 bytes; None is NULL."""
        parts = [_NULL if value is None else _UUID_SIZE + value for value in values]
        return cls(_joined(parts, _UUID))


def register(context: AdaptContext) -> None:
    """Make a connection take these as parameters."""
    for kind, dumper in ((Ints, _IntsDumper), (Blobs, _BlobsDumper), (Uuids, _UuidsDumper)):
        context.adapters.register_dumper(kind, dumper)


def _header(count: int, oid: int) -> bytes:
    return _HEADER.pack(1, 1, oid, count, 1) if count else _EMPTY.pack(0, 0, oid)


def _joined(parts: Iterable[bytes], oid: int) -> bytes:
    parts = list(parts)
    return b"".join([_header(len(parts), oid), *parts])


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        data: bytes = obj.data
        return data


class _IntsDumper(_ArrayDumper):
    oid = 1016


class _BlobsDumper(_ArrayDumper):
    oid = 1001


class _UuidsDumper(_ArrayDumper):
    oid = 2951
