"""What a log file holds, read by a connection of its own and by none of the code that wrote it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec import msgpack

from landed.ids import AggregateKey, ClientId, EventId, UserId
from landed.log import Batch, Event, FeedKind
from landed.sim.durable import Act

_KEYS: Final = "SELECT number, key FROM aggregates"
_PACKS: Final = "SELECT position, entries, bodies FROM packs ORDER BY position"
_CHECK_BYTES: Final = 4


class Filed(NamedTuple):
    """One batch as its row says it."""

    version: int
    client_id: UUID
    events: tuple[tuple[int, int, bytes], ...]
    """Of each event its client_seq, its event_seq and its payload."""


class File(NamedTuple):
    """A closed log, in the order of its file."""

    acts: tuple[Act, ...]

    def by_key(self) -> dict[bytes, list[Filed]]:
        """Every batch, by the packed key of its aggregate."""
        found: dict[bytes, list[Filed]] = {}
        for act in self.acts:
            if act.batch is not None:
                found.setdefault(act.key.packed, []).append(as_filed(act.batch))
        return found


def filed(path: Path) -> File:
    """Read every entry of a closed log, as the comments of its tables say (``schema.py``)."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        keys: dict[int, bytes] = dict(connection.execute(_KEYS))
        packs = connection.execute(_PACKS)
        return File(tuple([act for pack in packs for act in _acts(keys, *pack)]))


def _acts(keys: dict[int, bytes], first: int, entries: bytes, bodies: bytes) -> Iterator[Act]:
    """Take a pack apart: what entries have in common, each entry, and one payload after another."""
    first_ms, names, rows = msgpack.decode(entries[:-_CHECK_BYTES])
    at = 0
    for row in rows:
        distance, aggregate, kind, _, incarnation, version, _, _, _, client, user, ms, *_ = row
        size = row[14]
        batch = None
        if kind == FeedKind.WRITTEN:
            events = tuple([_event(told) for told in msgpack.decode(bodies[at : at + size])])
            user_id = None if user is None else UserId(UUID(bytes=names[user]))
            client_id = ClientId(UUID(bytes=names[client]))
            batch = Batch(version, client_id, user_id, first_ms + ms, events)
        at += size
        key = AggregateKey.from_packed(keys[aggregate])
        yield Act(first + distance, key, FeedKind(kind), incarnation, batch, version)


def _event(told: list[Any]) -> Event:
    event_id = None if told[2] is None else EventId(UUID(bytes=told[2]))
    return Event(told[0], told[1], event_id, *told[3:])


def as_filed(batch: Batch) -> Filed:
    """The row that a batch should have."""
    events = tuple((event.client_seq, event.event_seq, event.value) for event in batch.events)
    return Filed(batch.version, batch.client_id, events)
