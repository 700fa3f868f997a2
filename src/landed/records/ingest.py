"""The ingest clock: how long we have been able to receive, all told (rule RT-7).

It stands still while nothing can be received, so that a week of downtime does not use up the week in
which late deliveries may still come.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.records.session import Books, is_postgres
from landed.records.tables import ingest_clock

BEAT_US: Final = 60_000_000
"""Two beats further apart than this had a time between them in which nothing could be received."""


def ingest_mark() -> ColumnElement[int]:
    """How long the boundary has been able to receive, as an SQL expression (rule RT-7)."""
    ticked = select(ingest_clock.c.ticked_us).where(ingest_clock.c.id == 1).scalar_subquery()
    return func.coalesce(ticked, 0)


def beat(conn: Connection, books: Books, *, apart_max_us: int = BEAT_US) -> None:
    """Let the ingest clock go on: called regularly by whoever is able to receive (rule RT-7).

    A longer silence than ``apart_max_us`` counts as downtime, and downtime ages nothing.
    """
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    at = books.at(conn)
    statement = dialect.insert(ingest_clock).values(id=1, ticked_us=0, beat_at=at)
    passed = statement.excluded.beat_at - ingest_clock.c.beat_at
    conn.execute(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_={
                "ticked_us": ingest_clock.c.ticked_us
                + case((and_(passed > 0, passed <= apart_max_us), passed), else_=0),
                "beat_at": case(
                    (passed > 0, statement.excluded.beat_at), else_=ingest_clock.c.beat_at
                ),
            },
        )
    )
