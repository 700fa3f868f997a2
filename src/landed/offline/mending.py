"""What a recovery changes in a store, within its transaction: marks, numbers, blocks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from landed.offline.recovery import Recovered, Repair
from landed.offline.schema import SYNCED

_CANNOT_TELL: Final = (
    "it was tried, and the log does not show whether it landed: abandon it, "
    "and save it again if it is missing"
)

Block = Callable[[sqlite3.Connection, int, int, int, str], None]


def mend(sql: sqlite3.Connection, repairs: Sequence[Repair], *, block: Block) -> Recovered:
    """Mark what the log holds, move the counter above it, renumber what cannot have landed.

    The order of the events stays. The store sends again afterwards (rule SW-108).
    """
    floor = max((one.floor for one in repairs), default=0)
    sql.execute("UPDATE counter SET next_seq = max(next_seq, ?)", (floor + 1,))
    synced: list[int] = []
    stuck: list[int] = []
    waiting: list[int] = []
    for one in repairs:
        sql.executemany(
            "UPDATE events SET state = ? WHERE client_seq = ?", [(SYNCED, n) for n in one.synced]
        )
        count = len(one.synced)
        sql.execute(
            "UPDATE aggregates SET queued = queued - ? WHERE id = ?", (count, one.aggregate)
        )
        sql.execute("UPDATE device SET synced = synced + ?", (count,))
        synced += one.synced
        waiting += one.renumber
        if one.stuck_at is not None:
            block(sql, one.aggregate, one.stuck_at, 0, _CANNOT_TELL)
            stuck.append(one.stuck_at)
    moved = tuple([(old, _renumber(sql, old)) for old in sorted(waiting)])
    sql.execute(
        "UPDATE device SET fault_key = NULL, fault_seq = NULL, fault_attempted = NULL, "
        "fault_detail = NULL"
    )
    return Recovered(tuple(synced), moved, tuple(stuck))


def _renumber(sql: sqlite3.Connection, old: int) -> int:
    (new,) = sql.execute(
        "UPDATE counter SET next_seq = next_seq + 1 RETURNING next_seq - 1"
    ).fetchone()
    sql.execute(
        "UPDATE events SET client_seq = ?, attempted = 0, note = ? WHERE client_seq = ?",
        (new, f"had number {old} before a recovery", old),
    )
    return int(new)
