"""What time it was when the ledger last wrote something, for a process that starts (rule SQ-18).

A host whose clock was put back would else date new records before old ones: a key that its recipient
has long forgotten would seem fresh enough to send again, a worker that was killed would seem to hold
its claims for hours. On PostgreSQL the server's clock decides, and is its operator's to keep.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, func, select

from landed.records.meta import read, write
from landed.records.session import Books, is_postgres
from landed.records.tables import effects, ingest_clock, outbox, receipts

NEWEST: Final = "newest_us"


def keep(conn: Connection, books: Books) -> None:
    """Write down what time it is; called every few seconds by whoever works.

    Attempts carry no id that tells their time, and nobody should walk through all of them at a start:
    so after a kill as much may be missing as passes between two of these.
    """
    if not is_postgres(conn.dialect):
        write(conn, NEWEST, str(max(books.now_us(), _marked(conn))))


def resume(conn: Connection, books: Books) -> int:
    """Go on from the newest time on record; returns by how much the clock is behind it, microseconds."""
    if is_postgres(conn.dialect):
        return 0
    # Ids are of version 7: the highest one is the newest, and an index knows it.
    newest = [
        conn.execute(select(func.max(column))).scalar()
        for column in (receipts.c.receipt_id, outbox.c.outbox_id, effects.c.effect_id)
    ]
    beat_us = conn.execute(select(func.max(ingest_clock.c.beat_at))).scalar() or 0
    stored_us = max([_marked(conn), beat_us, *(_us_of(id) for id in newest if id is not None)])
    return books.not_below(stored_us)


def _marked(conn: Connection) -> int:
    return int(read(conn, NEWEST) or 0)


def _us_of(id: UUID) -> int:
    return (id.int >> 80) * 1000
