"""How far the follower of some feed has come, moved together with what it kept of it."""

from __future__ import annotations

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.records.session import Books, is_postgres
from landed.records.tables import cursors


def load(conn: Connection, name: str) -> str | None:
    """A follower's position, as it wrote it; None before its first page."""
    return conn.execute(select(cursors.c.position).where(cursors.c.name == name)).scalar()


def save(conn: Connection, books: Books, name: str, position: str) -> None:
    """Move a follower on, in the transaction that keeps what it read up to here."""
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    at = books.at(conn)
    conn.execute(
        dialect.insert(cursors)
        .values(name=name, position=position, changed_at=at)
        .on_conflict_do_update(
            index_elements=["name"], set_={"position": position, "changed_at": at}
        )
    )
