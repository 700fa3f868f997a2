"""What a log file holds, read by a connection of its own and by none of the code that wrote it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from landed.ids import AggregateKey, ClientId, EventId, UserId
from landed.log import Batch, Event, FeedKind
from landed.sim.durable import Act

_ENTRIES: Final = (
    "SELECT position, key, kind, entries.incarnation, entries.version, client, user, server_ms, body "
    "FROM entries JOIN aggregates ON aggregates.number = entries.aggregate ORDER BY position"
)


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
    """Read every entry of a closed log."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return File(tuple([_act(*row) for row in connection.execute(_ENTRIES)]))


def _act(
    position: int,
    key: bytes,
    kind: int,
    incarnation: int,
    version: int,
    client: bytes,
    user: bytes | None,
    server_ms: int,
    body: bytes | None,
) -> Act:
    batch = None
    if kind == FeedKind.WRITTEN:
        events = tuple([_event(told) for told in msgspec.msgpack.decode(body or b"")])
        user_id = None if user is None else UserId(UUID(bytes=user))
        batch = Batch(version, ClientId(UUID(bytes=client)), user_id, server_ms, events)
    packed = AggregateKey.from_packed(key)
    return Act(position, packed, FeedKind(kind), incarnation, batch, version)


def _event(told: list[Any]) -> Event:
    event_id = None if told[2] is None else EventId(UUID(bytes=told[2]))
    return Event(told[0], told[1], event_id, *told[3:])


def as_filed(batch: Batch) -> Filed:
    """The row that a batch should have."""
    events = tuple((event.client_seq, event.event_seq, event.value) for event in batch.events)
    return Filed(batch.version, batch.client_id, events)
