"""Numbered steps by which tables come to be, safe when many processes start at once (BC-26).

"Create if missing" is not safe against a parallel create in PostgreSQL, so one advisory lock comes
first. Each part of the schema (``log``, ``projection``) has its own numbers, in one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString, NamedTuple

import psycopg

from landed.errors import StorageError, StorageForeignError
from landed.postgres.faults import Phase, storage_error

LOCK_KEY: Final = 0x6C64_7363_6865_6D61
"""Of the lock that whoever migrates takes. A constant: a hash of this process would exclude nobody."""
LOCK_WAIT: Final = "60s"
"""For another process to finish its migration; far longer than any step of ours takes."""


class Step(NamedTuple):
    """One migration. Once released it is never edited: a change is a new step."""

    number: int
    """1, 2, 3, …"""
    sql: LiteralString
    """Any number of statements."""


def migrate(
    connection: psycopg.Connection[Any], part: str, steps: Sequence[Step]
) -> tuple[int, ...]:
    """Apply the steps that are missing, all in one transaction, and commit it.

    A database that has them all is only looked at, which needs no right to create anything.

    Args:
        connection: in no transaction.
        part: of the schema: what the numbers count.
        steps: in order, numbered from 1.

    Returns:
        The numbers that this call applied; none if another process was faster.

    Raises:
        StorageForeignError: a newer version wrote this database.
        StorageError: the database failed; nothing was applied, or another process was.
    """
    newest = steps[-1].number
    phase = Phase.WORKING
    try:
        if _is_current(connection, part, newest):
            return ()
        with connection.transaction():
            # Whoever waited for the lock must see what the one before committed.
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            connection.execute("SET LOCAL statement_timeout = 0")  # a step may take its time
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS landed_schema (part text NOT NULL,"
                " number integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),"
                " PRIMARY KEY (part, number))"
            )
            found = _found(connection, part, newest)
            missing = [step for step in steps if step.number > found]
            for step in missing:
                connection.execute(step.sql)
                connection.execute(
                    "INSERT INTO landed_schema (part, number) VALUES (%s, %s)", (part, step.number)
                )
            phase = Phase.COMMITTING
    except psycopg.Error as e:
        raise storage_error(e, phase, doing=f"preparing the tables of the {part}") from e
    return tuple(step.number for step in missing)


def _is_current(connection: psycopg.Connection[Any], part: str, newest: int) -> bool:
    with connection.transaction():
        row = connection.execute("SELECT to_regclass('landed_schema') IS NOT NULL").fetchone()
        return row is not None and row[0] and _found(connection, part, newest) == newest


def _found(connection: psycopg.Connection[Any], part: str, newest: int) -> int:
    row = connection.execute(
        "SELECT coalesce(max(number), 0) FROM landed_schema WHERE part = %s", (part,)
    ).fetchone()
    if row is None:
        raise StorageError("a count of the applied steps has no row")
    found = int(row[0])
    if found > newest:
        raise StorageForeignError(
            f"the {part} in this database has schema {found}, written by a newer version; this one "
            f"knows {newest}: upgrade it"
        )
    return found
