"""What was refused before receipt: counted by the hour, no payload kept (rule AU-7)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, RowMapping, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.records.session import Books, is_postgres
from landed.records.tables import rejections

UNVERIFIED: Final = "unverified"
"""The namespace of whoever proved nothing: never a name that a message claims."""
SAMPLE_CHARS_MAX: Final = 200
KEPT_US: Final = 90 * 24 * 3_600_000_000
HOUR_US: Final = 3_600_000_000


def count(
    conn: Connection, books: Books, *, namespace: str, reason: str, sample: str, times: int = 1
) -> None:
    """Count a refusal. One row per namespace, reason and hour, whatever is sent.

    Args:
        conn: inside a transaction.
        books: the ledger's.
        namespace: a declared producer's, or ``UNVERIFIED``; so the number of rows is bounded.
        reason: a fixed word.
        sample: one redacted line of the first in the hour; holds nothing of the payload.
        times: how many refusals this is.
    """
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    at = books.at(conn)
    statement = dialect.insert(rejections).values(
        namespace=namespace,
        reason=reason,
        hour=at // HOUR_US * HOUR_US,
        count=times,
        sample=sample[:SAMPLE_CHARS_MAX],
        first_at=at,
        last_at=at,
    )
    conn.execute(
        statement.on_conflict_do_update(
            index_elements=["namespace", "reason", "hour"],
            set_={"count": rejections.c.count + times, "last_at": statement.excluded.last_at},
        )
    )


def recent(conn: Connection, *, limit: int = 100) -> list[RowMapping]:
    """The newest counts first."""
    return list(
        conn.execute(
            select(rejections)
            .order_by(rejections.c.hour.desc(), rejections.c.count.desc())
            .limit(limit)
        ).mappings()
    )


def forget_old(conn: Connection, books: Books, *, kept_us: int = KEPT_US) -> int:
    """Drop counts that nobody looks at any more; returns how many rows."""
    return conn.execute(
        delete(rejections).where(rejections.c.hour < books.at(conn) - kept_us)
    ).rowcount
