"""What a log file holds, heads and marks too, read without any of the code that wrote it.

The files are copied first, so that looking at them neither recovers nor changes what the next start
will find.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.integration import packs
from tests.integration.packs import Entry

DELETED, WRITTEN, TRIMMED = 0, 1, 3
LIVE, ENDED = 1, 2
NO_MARK = 0

Head = dict[str, Any]
"""A row of ``aggregates`` by the names of its columns, with what was still owed to it."""


class Found(NamedTuple):
    """One event, where it stands."""

    position: int
    key: bytes
    version: int
    client: bytes
    client_seq: int
    value: bytes


class Audit(NamedTuple):
    """Everything in the file."""

    events: list[Found]
    heads: dict[bytes, Head]


def audit(path: Path) -> Audit:
    """Read the whole file.

    Raises:
        AssertionError: a row is torn, a number has a gap or a double, or a head or a mark does not
            agree with the batches.
    """
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob(path.name + "*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        connection = sqlite3.connect(Path(folder) / path.name)
        try:
            assert ["ok"] == [row[0] for row in connection.execute("PRAGMA integrity_check")]
            entries = list(packs.entries(connection))
            heads: dict[int, Head] = {
                number: {"key": key} | state._asdict()
                for number, (key, state) in packs.heads(connection).items()
            }
            (until,) = connection.execute(
                "SELECT value FROM meta WHERE name = 'heads_until'"
            ).fetchone()
            marks = {
                (int.from_bytes(pair[:8]), pair[8:]): mark + 2**63
                for pair, mark, _ in connection.execute("SELECT * FROM marks")
            }
        finally:
            connection.close()
    for row in entries:
        if row.position > int(until):
            _tell(heads[row.aggregate], row, marks)
    _check_heads(entries, heads)
    _check_marks(entries, heads, marks)
    return Audit(_events(entries, heads), {head["key"]: head for head in heads.values()})


def _events(entries: list[Entry], heads: dict[int, Head]) -> list[Found]:
    found: list[Found] = []
    for row in entries:
        if row.kind != WRITTEN:
            continue
        events = msgspec.msgpack.decode(row.body)
        assert len(events) == row.event_count
        for at, (seq, number, _id, _ms, _major, _minor, value, _iv) in enumerate(events):
            assert number == row.event_seq - len(events) + 1 + at
            key = heads[row.aggregate]["key"]
            found.append(Found(row.position, key, row.version, row.client, seq, value))
    return found


def _tell(head: Head, row: Entry, marks: dict[tuple[int, bytes], int]) -> None:
    """Bring a head forward by an entry that the file owes it."""
    if row.incarnation < head["incarnation"]:
        return
    is_new_life = row.incarnation > head["incarnation"]
    head |= {"life": ENDED if row.kind == DELETED else LIVE, "last_ms": row.server_ms}
    head |= {"incarnation": row.incarnation, "event_seq": row.event_seq}
    if row.kind == TRIMMED:
        head["floor"] = row.version
        return
    head["version"] = row.version
    if row.kind == DELETED:
        return
    head["last_position"] = row.position
    if is_new_life:
        head["floor"] = row.version
    if row.max_seq != NO_MARK:
        client = row.client
        before = head["mark"] if head["mark_client"] == client else NO_MARK
        before = max(before, marks.get((row.aggregate, client), NO_MARK))
        head |= {"mark_client": client, "mark": max(before, row.max_seq)}


def _check_heads(entries: list[Entry], heads: dict[int, Head]) -> None:
    """Replay the entries: each life's versions are contiguous and end at its head."""
    newest: dict[int, Entry] = {}
    batch: dict[int, Entry] = {}
    floor: dict[int, int] = {}
    for row in entries:
        aggregate = row.aggregate
        newest[aggregate] = row
        if row.kind == TRIMMED:
            floor[aggregate] = row.version
        elif row.kind == WRITTEN:
            before = batch.get(aggregate)
            if before is not None and before.incarnation == row.incarnation:
                assert row.version == before.version + 1
                assert row.previous == before.position
            batch[aggregate] = row
    assert newest.keys() == heads.keys()
    for aggregate, row in newest.items():
        head = heads[aggregate]
        assert (head["life"] == LIVE) == (row.kind != DELETED)
        assert head["incarnation"] == row.incarnation
        assert head["event_seq"] == row.event_seq
        assert head["last_ms"] == row.server_ms
        if head["life"] == LIVE:
            last = batch[aggregate]
            assert head["version"] == last.version
            assert head["last_position"] == last.position
            assert head["floor"] >= floor.get(aggregate, 0) or last.incarnation > 1


def _check_marks(
    entries: list[Entry],
    heads: dict[int, Head],
    marks: dict[tuple[int, bytes], int],
) -> None:
    """A pair's mark is the highest sequence it wrote; what was reclaimed may have been higher."""
    highest: dict[tuple[int, bytes], int] = defaultdict(lambda: NO_MARK)
    for row in entries:
        if row.kind == WRITTEN:
            pair = (row.aggregate, row.client)
            highest[pair] = max(highest[pair], row.max_seq)
    for (aggregate, client), seq in highest.items():
        head = heads[aggregate]
        mark = head["mark"] if head["mark_client"] == client else marks.get((aggregate, client))
        if seq == NO_MARK:
            assert mark in {None, seq}, "sequence 0 leaves no mark"
        else:
            assert mark == seq
