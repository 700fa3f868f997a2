"""What a log file really holds, read without any of the code that wrote it.

The files are copied first, so that looking at them neither recovers nor changes what a restarted
server will find.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.integration.packs import entries, heads

WRITTEN = 1


class Found(NamedTuple):
    """One event, where it stands."""

    position: int
    key: bytes
    version: int
    client: bytes
    client_seq: int
    event_id: bytes | None
    value: bytes


def audit(path: Path) -> list[Found]:
    """Every event in the file, in the order of positions.

    Raises:
        AssertionError: a row is torn, or versions or event numbers have a gap or a double.
    """
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob(path.name + "*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        connection = sqlite3.connect(Path(folder) / path.name)
        try:
            assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
            rows = [entry for entry in entries(connection) if entry.kind == WRITTEN]
            keys = {number: key for number, (key, _) in heads(connection).items()}
        finally:
            connection.close()
    found: list[Found] = []
    newest: dict[tuple[bytes, int], int] = defaultdict(int)
    numbered: dict[tuple[bytes, int], int] = defaultdict(int)
    for row in rows:
        position, version, client = row.position, row.version, row.client
        key, life = keys[row.aggregate], row.incarnation
        assert newest[key, life] + 1 == version, f"version {version} at {position}"
        newest[key, life] = version
        events = msgspec.msgpack.decode(row.body)
        assert len(events) == row.event_count
        for client_seq, number, event_id, _ms, _major, _minor, value, _iv in events:
            assert numbered[key, life] + 1 == number, f"event {number} at {position}"
            numbered[key, life] = number
            found.append(Found(position, key, version, client, client_seq, event_id, value))
        assert numbered[key, life] == row.event_seq
    return found
