"""Lanes that nobody works on until a person lets them go on."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, RowMapping, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.records.prepared import TEXT, Prepared
from landed.records.session import Books, is_postgres
from landed.records.tables import stopped_lanes


def stop(conn: Connection, books: Books, lane: str, *, by: str, why: str) -> bool:
    """Stop a lane; its work stays where it is. Returns whether it was going."""
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    stopped = conn.execute(
        dialect.insert(stopped_lanes)
        .values(lane=lane, reason=why[:1000], stopped_by=by, stopped_at=books.at(conn))
        .on_conflict_do_nothing()
        .returning(stopped_lanes.c.lane)
    )
    return stopped.first() is not None


def resume(conn: Connection, lane: str) -> bool:
    """Let a lane go on. Returns whether it was stopped."""
    return conn.execute(delete(stopped_lanes).where(stopped_lanes.c.lane == lane)).rowcount == 1


def stopped(conn: Connection) -> list[RowMapping]:
    """The lanes that nobody works on, the longest stopped first."""
    rows = conn.execute(select(stopped_lanes).order_by(stopped_lanes.c.stopped_at))
    return list(rows.mappings())


def why_stopped(conn: Connection, lane: str) -> str | None:
    """Why nobody works on a lane; None if it goes."""
    return _WHY.execute(conn, lane=lane).scalar()


_WHY: Final = Prepared(
    lambda shape: select(stopped_lanes.c.reason).where(stopped_lanes.c.lane == shape["lane"]),
    lane=TEXT,
)
