"""Entries as they lie in the file: packs of a few, each with its checksums.

A row of ``packs`` holds some entries that were committed together, about as many as fit a page of
the file. SQLite then writes one row where it would write sixteen, and what entries have in common
stands there once. The row's key is the position of its first entry; in it follow what is known of
each entry, encoded as one MessagePack value with a CRC-32 behind it, and the payloads, one after
another. Each payload has a checksum of its own, so that an entry can be judged by its metadata
without looking at payloads (log rule R7).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from landed.engines.sqlite.row import damaged, id_of
from landed.engines.sqlite.schema import PAGE_BYTES
from landed.errors import StorageDamagedError
from landed.ids import ClientId, UserId
from landed.log import Batch, FeedKind

_CHECK_BYTES: Final = 4
_META_BYTES: Final = 34
"""What an entry takes besides its payload, about."""
_ROOM: Final = PAGE_BYTES - 90
"""For entries of one pack: a row that fits a page of its own, with the page's and the row's headers
and what a pack takes besides its entries."""

SMALL_BODY_BYTES: Final = PAGE_BYTES
"""Payloads fetched with their metadata; a larger one has a pack to itself and is fetched alone."""


class Entry(NamedTuple):
    """One batch, trim or delete, without its payload, checked."""

    position: int
    aggregate: int
    """The number of its aggregate."""
    kind: int
    flags: int
    """2 allow_recreate, 4 allow_continuation."""
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


Drafted = tuple[
    int, int, int, int, int, int, int, int, int, bytes, bytes | None, int, int, int, bytes
]
"""An entry to be written: the fields of ``Entry`` up to ``max_seq``, then the payload."""

Pack = tuple[int, bytes, bytes]
"""A row of ``packs``: position, entries, bodies."""

_Packed = tuple[
    int, int, int, int, int, int, int, int, int, int, int | None, int, int, int, int, int
]
"""An entry in its pack: its distance from the first position, aggregate, kind, flags, incarnation,
version, event_seq, event_count, the distance back to the previous batch or 0, the places of client
and user among the names, milliseconds after the first stamp, min_seq, what max_seq is above it,
size, body_check."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, tuple[bytes, ...], tuple[_Packed, ...]]).decode
_new = tuple.__new__  # past the constructor, where one each is made

INSERT_PACK: Final = "INSERT INTO packs VALUES (?, ?, ?)"
_UPDATE: Final = "UPDATE packs SET entries = ?2, bodies = ?3 WHERE position = ?1"
_DELETE: Final = "DELETE FROM packs WHERE position = ?"
_HOLDS: Final = "(SELECT max(position) FROM packs WHERE position <= ?1)"
_SMALL: Final = f"CASE WHEN length(bodies) <= {SMALL_BODY_BYTES} THEN bodies END"
_META: Final = f"SELECT position, entries, NULL FROM packs WHERE position = {_HOLDS}"
_BOTH: Final = f"SELECT position, entries, {_SMALL} FROM packs WHERE position = {_HOLDS}"
_FROM: Final = f"FROM packs WHERE position >= ifnull({_HOLDS}, 0) ORDER BY position"
_METAS: Final = f"SELECT position, entries, NULL {_FROM}"
_BOTHS: Final = f"SELECT position, entries, {_SMALL} {_FROM}"
_ALL: Final = f"SELECT position, entries, bodies {_FROM}"
_NEWEST: Final = "SELECT position, entries, NULL FROM packs ORDER BY position DESC"
_BODIES: Final = "SELECT bodies FROM packs WHERE position = ?"


def pack(drafted: Iterable[Drafted]) -> list[Pack]:
    """Make the rows that hold entries, which are in the order of their positions."""
    packs: list[Pack] = []
    rows: list[_Packed] = []
    bodies: list[bytes] = []
    names: dict[bytes, int] = {}
    name_of = names.setdefault
    first = first_ms = filled = 0
    for (
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
        min_seq,
        max_seq,
        body,
    ) in drafted:
        size = len(body)
        filled += size + _META_BYTES
        if filled > _ROOM and rows:
            packs.append(_row(first, first_ms, names, rows, bodies))
            rows, bodies, names = [], [], {}
            name_of = names.setdefault
            filled = size + _META_BYTES
        if not rows:
            first, first_ms = position, server_ms
        rows.append(
            (
                position - first,
                aggregate,
                kind,
                flags,
                incarnation,
                version,
                event_seq,
                event_count,
                position - previous if previous else 0,
                name_of(client, len(names)),
                None if user is None else name_of(user, len(names)),
                server_ms - first_ms,
                min_seq,
                max_seq - min_seq,
                size,
                crc32(body),
            )
        )
        bodies.append(body)
    if rows:
        packs.append(_row(first, first_ms, names, rows, bodies))
    return packs


def _row(
    first: int,
    first_ms: int,
    names: Iterable[bytes],
    rows: Sequence[_Packed],
    bodies: Iterable[bytes],
) -> Pack:
    meta = _encode((first_ms, tuple(names), rows))
    return first, meta + _check_of(first, meta), b"".join(bodies)


def _check_of(first: int, meta: bytes) -> bytes:
    """The checksum covers the position as well: a row that moved is not what was written."""
    return crc32(meta, crc32(first.to_bytes(8))).to_bytes(_CHECK_BYTES)


class Opened:
    """A pack taken apart, its metadata checked; payloads are checked one by one."""

    __slots__ = ("_bodies", "_ms", "_names", "_rows", "first")

    first: int
    """The position its row is found by."""

    def __init__(self, row: Sequence[Any]) -> None:
        """``row``: position, entries, and bodies or None.

        Raises:
            StorageDamagedError: it is not what was written.
        """
        self.first, blob, self._bodies = row
        try:
            meta = blob[:-_CHECK_BYTES]
            if _check_of(self.first, meta) != blob[-_CHECK_BYTES:]:
                raise StorageDamagedError(damaged(f"the pack at position {self.first}"))
            self._ms, self._names, self._rows = _decode(meta)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            raise StorageDamagedError(damaged(f"the pack at position {self.first}")) from None

    def entries(self) -> Iterator[Entry]:
        """Every entry, in the order of their positions."""
        return map(self._entry, self._rows)

    def after(self, position: int) -> Iterator[tuple[Entry, object]]:
        """Entries after a position with their payloads, unchecked; None for what was not read."""
        at = 0
        for row in self._rows:
            end = at + row[14]
            if self.first + row[0] > position:
                yield self._entry(row), None if self._bodies is None else self._bodies[at:end]
            at = end

    def find(self, position: int) -> tuple[Entry, object] | None:
        """One entry with its payload, unchecked; None for an entry that is not there."""
        distance = position - self.first
        at = 0
        for row in self._rows:
            if row[0] == distance:
                body = None if self._bodies is None else self._bodies[at : at + row[14]]
                return self._entry(row), body
            at += row[14]
        return None

    def without(self, positions: set[int]) -> Pack | None:
        """The row that is left when entries are taken out; None if none are left."""
        kept, bodies, at = [], [], 0
        for row in self._rows:
            end = at + row[14]
            if self.first + row[0] not in positions:
                kept.append(row)
                bodies.append(self._bodies[at:end])
            at = end
        return _row(self.first, self._ms, self._names, kept, bodies) if kept else None

    def _entry(self, row: _Packed) -> Entry:
        (
            distance,
            aggregate,
            kind,
            flags,
            incarnation,
            version,
            event_seq,
            event_count,
            back,
            client,
            user,
            ms,
            min_seq,
            span,
            size,
            body_check,
        ) = row
        position, names = self.first + distance, self._names
        made = (
            position,
            aggregate,
            kind,
            flags,
            incarnation,
            version,
            event_seq,
            event_count,
            position - back if back else 0,
            names[client],
            None if user is None else names[user],
            self._ms + ms,
            min_seq,
            min_seq + span,
            size,
            body_check,
        )
        return _new(Entry, made)


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
        raise StorageDamagedError(damaged(f"the payload at position {entry.position}"))
    return body


# --- finding them


def find_entry(
    connection: sqlite3.Connection, position: int, *, with_body: bool = False
) -> tuple[Entry, object] | None:
    """Return an entry, checked, and its payload, unchecked, if that is asked for and not large.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    row = connection.execute(_BOTH if with_body else _META, (position,)).fetchone()
    return None if row is None else Opened(row).find(position)


def find_body(connection: sqlite3.Connection, position: int) -> object:
    """Return the payload of an entry, however large, unchecked; None if there is none."""
    row = connection.execute(_META, (position,)).fetchone()
    if row is None:
        return None
    (bodies,) = connection.execute(_BODIES, (row[0],)).fetchone()
    found = Opened((*row[:2], bodies)).find(position)
    return None if found is None else found[1]


def packs_from(
    connection: sqlite3.Connection, position: int, *, with_bodies: bool = False
) -> Iterator[Sequence[Any]]:
    """Rows from the one that holds a position, or would; with payloads that are not large.

    ``Opened`` checks them: it is left to the caller how far a damaged one reaches.
    """
    yield from connection.execute(_BOTHS if with_bodies else _METAS, (position,))


def whole_packs(connection: sqlite3.Connection, position: int) -> Iterator[Sequence[Any]]:
    """The same with every payload."""
    yield from connection.execute(_ALL, (position,))


def newest_packs(connection: sqlite3.Connection) -> Iterator[Opened]:
    """Packs from the newest backwards, without payloads.

    Raises:
        StorageDamagedError: one is not what was written.
    """
    yield from map(Opened, connection.execute(_NEWEST))


def newest_position(connection: sqlite3.Connection) -> int:
    """The newest position in the file; 0 of an empty log.

    Raises:
        StorageDamagedError: the newest pack is not what was written.
    """
    for opened in newest_packs(connection):
        return max(entry.position for entry in opened.entries())
    return 0


def drop(connection: sqlite3.Connection, positions: Iterable[int]) -> None:
    """Take entries out of their packs, in the transaction that is open.

    Raises:
        StorageDamagedError: a pack is not what was written.
    """
    by_pack: dict[int, set[int]] = {}
    for position in positions:
        (first,) = connection.execute(f"SELECT {_HOLDS}", (position,)).fetchone()
        by_pack.setdefault(first, set()).add(position)
    for first, gone in sorted(by_pack.items()):
        (blob, bodies) = connection.execute(
            "SELECT entries, bodies FROM packs WHERE position = ?", (first,)
        ).fetchone()
        left = Opened((first, blob, bodies)).without(gone)
        if left is None:
            connection.execute(_DELETE, (first,))
        else:
            connection.execute(_UPDATE, left)
