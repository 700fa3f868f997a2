"""What a log file holds, read by a connection of its own and by none of the code that wrote it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from landed.log import Batch

_BATCHES: Final = (
    "SELECT key, entries.version, client, body FROM entries "
    "JOIN aggregates ON aggregates.number = entries.aggregate "
    "WHERE kind = 1 ORDER BY position"
)


class Filed(NamedTuple):
    """One batch as its row says it."""

    version: int
    client_id: UUID
    events: tuple[tuple[int, int, bytes], ...]
    """Of each event its client_seq, its event_seq and its payload."""


def filed(path: Path) -> dict[bytes, list[Filed]]:
    """Every batch of a closed log, by the packed key of its aggregate, in the order of the file."""
    found: dict[bytes, list[Filed]] = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for key, version, client, body in connection.execute(_BATCHES):
            events = msgspec.msgpack.decode(body)
            told = tuple((event[0], event[1], event[6]) for event in events)
            found.setdefault(key, []).append(Filed(version, UUID(bytes=client), told))
    return found


def as_filed(batch: Batch) -> Filed:
    """The row that a batch should have."""
    events = tuple((event.client_seq, event.event_seq, event.value) for event in batch.events)
    return Filed(batch.version, batch.client_id, events)
