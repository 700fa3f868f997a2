"""The entries of a log file, taken apart without any of the code that wrote them.

A row of ``packs`` is the position of its first entry, then one MessagePack value with a CRC-32 behind
it (of the position too), then the payloads: the time of the first entry, the names that occur, and
sixteen numbers for each entry, in the order of ``Entry`` below.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec


class Entry(NamedTuple):
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
    body: bytes


def entries(connection: sqlite3.Connection) -> Iterator[Entry]:
    """Every entry, in the order of positions.

    Raises:
        AssertionError: a checksum or a size is wrong.
    """
    newest = 0
    for first, packed, bodies in connection.execute(
        "SELECT position, entries, bodies FROM packs ORDER BY position"
    ):
        meta, check = packed[:-4], int.from_bytes(packed[-4:])
        assert crc32(first.to_bytes(8) + meta) == check, f"the pack at {first} is torn"
        time_ms, names, rows = msgspec.msgpack.decode(meta)
        at = 0
        for ahead, *numbers, back, client, user, later, low, span, size, body_check in rows:
            position = first + ahead
            assert position > newest, f"position {position} after {newest}"
            newest = position
            body = bodies[at : at + size]
            at += size
            assert (len(body), crc32(body)) == (size, body_check), f"the payload at {position}"
            yield Entry(
                position,
                *numbers,
                position - back if back else 0,
                names[client],
                None if user is None else names[user],
                time_ms + later,
                low,
                low + span,
                size,
                body_check,
                body,
            )
        assert at == len(bodies)


class State(NamedTuple):
    """What ``aggregates.state`` holds."""

    life: int
    incarnation: int
    version: int
    event_seq: int
    floor: int
    flags: int
    last_ms: int
    last_client: bytes
    last_user: bytes | None
    last_position: int
    mark_client: bytes | None
    mark: int


def heads(connection: sqlite3.Connection) -> dict[int, tuple[bytes, State]]:
    """Key and state of every aggregate, by number.

    Raises:
        AssertionError: a checksum is wrong.
    """
    found = {}
    for number, key, state in connection.execute("SELECT number, key, state FROM aggregates"):
        head, check = state[:-4], int.from_bytes(state[-4:])
        assert crc32(number.to_bytes(8) + key + head) == check, f"the head of {number} is torn"
        told = State(*msgspec.msgpack.decode(head))
        if told.mark_client == b"":  # the same as the writer of the newest record
            told = told._replace(mark_client=told.last_client)
        found[number] = key, told
    return found
