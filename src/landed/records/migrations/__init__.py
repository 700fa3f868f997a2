"""Numbered steps by which the tables came to be, as frozen SQL text of each database.

A step, once released, is never edited: a change is a new step. ``tables.py`` says what the newest
step leaves behind, and a test holds the two together. Statements of a file are parted by blank
lines.
"""

from __future__ import annotations

from importlib import resources
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from landed.errors import StorageError, StorageForeignError
from landed.records.session import Books, is_postgres, transact
from landed.records.tables import migrations


class Step(NamedTuple):
    """One migration: its number, and the stem of its two files."""

    number: int
    name: str


STEPS: Final = (Step(1, "records"), Step(2, "evidence"))
NEWEST: Final = STEPS[-1].number

_LOCK: Final = 0x6C616E646564
"""Key of the lock that migrations of any replica take; the same in every process."""


def migrate(engine: Engine, books: Books) -> list[Step]:
    """Apply what is missing, in one transaction; safe to run from many replicas at once (BC-26).

    Returns the steps that this call applied, none if another was faster.

    Raises:
        StorageForeignError: a newer version wrote this database.
        StorageError: the database failed; nothing was applied.
    """
    return transact(engine, lambda conn: _migrate(conn, books))


def version(conn: Connection) -> int:
    """The number of the newest step that was applied; 0 for a database without our tables."""
    if not inspect(conn).has_table(migrations.name):
        return 0
    return int(conn.execute(select(func.coalesce(func.max(migrations.c.number), 0))).scalar_one())


def check_version(conn: Connection) -> None:
    """Refuse to work on tables of another version.

    Raises:
        StorageForeignError: saying what to do.
    """
    found = version(conn)
    if found == NEWEST:
        return
    if found > NEWEST:
        raise StorageForeignError(
            f"this database has schema {found}, written by a newer version; this one knows "
            f"{NEWEST}. Upgrade it"
        )
    raise StorageForeignError(
        f"this database has schema {found}, this version needs {NEWEST}: run "
        "'landed migrate --database URL'"
    )


def _migrate(conn: Connection, books: Books) -> list[Step]:
    _exclude_others(conn)
    found = version(conn)
    if found > NEWEST:
        check_version(conn)
    applied = []
    for step in STEPS:
        if step.number <= found:
            continue
        for statement in statements(step, conn.dialect.name):
            conn.exec_driver_sql(statement)
        conn.execute(
            insert(migrations).values(number=step.number, name=step.name, applied_at=books.at(conn))
        )
        applied.append(step)
    return applied


def statements(step: Step, dialect: str) -> list[str]:
    """The frozen statements of a step."""
    file = resources.files(__name__) / f"{step.number:04d}_{step.name}.{dialect}.sql"
    parts = file.read_text(encoding="utf-8").split("\n\n")
    return [part.strip() for part in parts if part.strip()]


def _exclude_others(conn: Connection) -> None:
    """One migrates at a time; the lock ends with the transaction."""
    if is_postgres(conn.dialect):
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        return
    try:
        # An engine of ours begins as a writer; a user's may not have begun at all.
        conn.exec_driver_sql("BEGIN IMMEDIATE")
    except DBAPIError as e:
        if "within a transaction" not in str(e.orig):
            raise StorageError(f"the database is locked: {e.orig}") from e
