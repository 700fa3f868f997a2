"""What a store shows of itself: rows as values. Also for those who only look at its file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from landed.errors import SequenceRegressedError, StorageError
from landed.ids import AggregateKey, ClientId, EventId
from landed.offline.entry import Blocked, Entry, Status
from landed.offline.schema import ABANDONED, QUEUED, SYNCED, look_at

COLUMNS: Final = "client_seq, event_id, event_ms, type_major, type_minor, value, iv, attempted"
"""What ``entry_of`` takes."""


def status_of(path: str | Path) -> Status:
    """Look at a store that another process may own.

    Raises:
        ConfigurationError: there is none.
        StorageForeignError: the file is something else.
    """
    sql = look_at(Path(path))
    try:
        page = sql.execute("PRAGMA page_size").fetchone()[0]
        sql.execute("BEGIN")
        return status_in(sql, page, None)
    except sqlite3.Error as error:
        raise StorageError(f"cannot read {path}: {error}") from None
    finally:
        sql.close()


def entry_of(row: tuple[Any, ...]) -> Entry:
    """A row of ``COLUMNS`` as a value."""
    seq, event_id, event_ms, major, minor, value, iv, attempted = row
    event = EventId(UUID(bytes=event_id))
    return Entry(seq, event, event_ms, major, minor, value, iv, bool(attempted))


def fault_in(sql: sqlite3.Connection) -> SequenceRegressedError | None:
    """Why nothing is sent at all; None if all is well."""
    key, seq, attempted, detail = sql.execute(
        "SELECT fault_key, fault_seq, fault_attempted, fault_detail FROM device"
    ).fetchone()
    if key is None:
        return None
    return SequenceRegressedError(
        key=AggregateKey.from_packed(key),
        highest_seq=seq,
        attempted_seq=attempted,
        detail=detail or "",
    )


def status_in(sql: sqlite3.Connection, page_bytes: int, limit: int | None) -> Status:
    """The store at a glance."""
    client_id, pruned = sql.execute("SELECT client_id, pruned_seq FROM device").fetchone()
    (next_seq,) = sql.execute("SELECT next_seq FROM counter").fetchone()
    counts = dict(sql.execute("SELECT state, count(*) FROM events GROUP BY state").fetchall())
    (attempted,) = sql.execute(
        "SELECT count(*) FROM events WHERE state = 0 AND attempted = 1"
    ).fetchone()
    blocked = sql.execute(
        "SELECT key, blocked_seq, blocked_code, blocked_reason, queued FROM aggregates "
        "WHERE blocked_seq IS NOT NULL ORDER BY id"
    ).fetchall()
    fault = fault_in(sql)
    (pages,) = sql.execute("PRAGMA page_count").fetchone()
    (free,) = sql.execute("PRAGMA freelist_count").fetchone()
    return Status(
        client_id=ClientId(UUID(bytes=client_id)),
        next_seq=next_seq,
        queued=counts.get(QUEUED, 0),
        attempted=attempted,
        synced=counts.get(SYNCED, 0),
        abandoned=counts.get(ABANDONED, 0),
        pruned_seq=pruned,
        blocked=tuple([Blocked(AggregateKey.from_packed(row[0]), *row[1:]) for row in blocked]),
        fault=None if fault is None else str(fault),
        used_bytes=(pages - free) * page_bytes,
        limit_bytes=limit,
    )
