"""Numbered steps by which the recipient's tables came to be, as frozen SQL of each database.

A step, once released, is never edited: a change is a new step. ``tables.py`` says what the newest step
leaves behind, and a test holds the two together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, func, insert, inspect, select

from landed.errors import StorageForeignError
from landed.recipient.tables import migrations


class Step(NamedTuple):
    """One migration, as statements that name the type of bytes ``{bytes}``."""

    number: int
    name: str
    statements: tuple[str, ...]


STEPS: Final = (
    Step(
        1,
        "keys and fences",
        (
            # "if not exists": versions without numbers made the same tables.
            """CREATE TABLE IF NOT EXISTS landed_r_keys (
                key_digest {bytes} NOT NULL,
                scope TEXT NOT NULL,
                "key" TEXT,
                state TEXT NOT NULL CHECK (state IN ('acted', 'sealed')),
                fingerprint {bytes},
                status INTEGER,
                content_type TEXT,
                body {bytes},
                recorded_at BIGINT NOT NULL,
                scrubbed_at BIGINT,
                PRIMARY KEY (key_digest)
            )""",
            "CREATE INDEX IF NOT EXISTS ix_landed_r_keys_recorded_at ON landed_r_keys (recorded_at)",
            """CREATE TABLE IF NOT EXISTS landed_r_fences (
                scope TEXT NOT NULL,
                domain TEXT NOT NULL,
                fence_key TEXT NOT NULL,
                version BIGINT NOT NULL,
                taken_by {bytes} NOT NULL,
                taken_at BIGINT NOT NULL,
                PRIMARY KEY (scope, domain, fence_key)
            )""",
        ),
    ),
)
NEWEST: Final = STEPS[-1].number
_NUMBERS: Final = """CREATE TABLE IF NOT EXISTS landed_r_migrations (
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (number)
)"""
_LOCK: Final = 0x6C5F726563
"""Key of the lock that replicas take which start together."""


def create_tables(conn: Connection) -> None:
    """Make the tables, or bring them up to date, in your transaction; safe from every replica at once.

    For those who migrate otherwise, see ``metadata``.

    Raises:
        StorageForeignError: a newer version made them.
    """
    is_postgres = conn.dialect.name == "postgresql"
    if is_postgres:
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    conn.exec_driver_sql(_NUMBERS)
    found = version(conn)
    if found > NEWEST:
        raise StorageForeignError(
            f"the recipient's tables are of step {found}, made by a newer version; this one knows "
            f"{NEWEST}. Upgrade it"
        )
    for step in STEPS[found:]:
        for statement in step.statements:
            conn.exec_driver_sql(statement.format(bytes="BYTEA" if is_postgres else "BLOB"))
        conn.execute(insert(migrations).values(number=step.number, name=step.name))


def version(conn: Connection) -> int:
    """The number of the newest step that was applied; 0 for a database without numbers."""
    if not inspect(conn).has_table(migrations.name):
        return 0
    return int(conn.execute(select(func.coalesce(func.max(migrations.c.number), 0))).scalar_one())
