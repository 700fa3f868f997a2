"""Give back the rows of batches that nobody can read any more, a bounded slice at a time.

Unobservable (log rule C13): reads take head and rows in one statement. Any process may do it: a range
that another one is at is passed by.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

SLICE: Final = 1_000
"""Batches dropped by one call."""

_NEXT: Final = (
    "SELECT position, number, incarnation, below FROM landed_log_dead "
    "ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED"
)
_DROP: Final = (
    "DELETE FROM landed_log_entries WHERE position IN (SELECT position FROM landed_log_entries "
    "WHERE kind = 1 AND number = %s AND incarnation = %s AND version < %s "
    f"ORDER BY version LIMIT {SLICE})"
)
_DONE: Final = "DELETE FROM landed_log_dead WHERE position = %s"


def reclaim(connection: psycopg.Connection[Any]) -> int:
    """Drop a slice of one dead range, and the range's row when nothing is left of it.

    Transaction: the slice, and the row of the range.

    Returns:
        How many batches were dropped; 0 where nothing is dead, or somebody else is at it.

    Raises:
        psycopg.Error: the database failed; the slice is dropped or it is not.
    """
    while True:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '1s'")
            row = connection.execute(_NEXT).fetchone()
            if row is None:
                return 0
            position, *which = row
            dropped = connection.execute(_DROP, which).rowcount
            if dropped < SLICE:
                connection.execute(_DONE, (position,))
        if dropped:
            return dropped
