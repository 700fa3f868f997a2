"""Claiming: against statements written by hand, and against the size of what lies behind.

By hand means psycopg on the same tables, with prepared statements, the same locks and the same two
commits, and nothing around them: no groups, no order, no clock of the ledger, no rows read.
"""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import uuid4

import psycopg
from benchmarks.bench_handling_ours import Measured, filled
from sqlalchemy import Connection

from landed.records import outbox, schedule
from landed.records.session import transact

BATCH: Final = 100
_NOW: Final = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_CLAIM: Final = f"""
WITH due AS MATERIALIZED (
  SELECT work_id FROM landed_schedule
  WHERE lane = %s AND ready_at <= {_NOW} AND (lease_until IS NULL OR lease_until < {_NOW})
  ORDER BY ready_at LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE landed_schedule SET lease_owner = 'hand', lease_token = %s, lease_until = {_NOW} + 30000000,
  claims = claims + 1
WHERE work_id IN (SELECT work_id FROM due) RETURNING work_id, subject_id
"""
_DONE: Final = f"""
UPDATE landed_outbox SET state = 'done', done_at = {_NOW}
WHERE outbox_id = ANY(%s) AND state = 'queued'
"""
_FINISH: Final = "DELETE FROM landed_schedule WHERE work_id = ANY(%s) AND lease_token = %s"


def ours(measured: Measured, rows: int) -> float:
    """Outbox rows claimed, read and marked done per second, a hundred at a time."""
    ledger = measured.ledger
    measured.publish(rows)

    def _claim(conn: Connection) -> list[schedule.Claim]:
        return schedule.claim(conn, ledger.books, lane="relay:out", owner="bench", limit=BATCH)

    def _done(conn: Connection, claims: list[schedule.Claim]) -> None:
        outbox.mark_done(conn, ledger.books, [claim.subject_id for claim in claims])
        schedule.finish(conn, claims)

    done = 0
    began = time.perf_counter()
    while done < rows:
        claims = transact(ledger.engine, _claim)
        transact(ledger.engine, lambda conn, claims=claims: _done(conn, claims))
        done += len(claims)
    return rows / (time.perf_counter() - began)


def by_hand(measured: Measured, rows: int, conninfo: str) -> float:
    """The same by hand."""
    measured.publish(rows)
    with psycopg.connect(conninfo) as conn:
        done = 0
        began = time.perf_counter()
        while done < rows:
            token = uuid4()
            claims = conn.execute(_CLAIM, ("relay:out", BATCH, token)).fetchall()
            conn.commit()
            conn.execute(_DONE, ([subject for _, subject in claims],))
            conn.execute(_FINISH, ([work for work, _ in claims], token))
            conn.commit()
            done += len(claims)
        return rows / (time.perf_counter() - began)


def claim_seconds(measured: Measured, claims: int) -> float:
    """The seconds that one claim of a hundred takes, undone again each time."""
    ledger = measured.ledger
    if ledger.engine.dialect.name == "postgresql":
        # What was claimed and rolled back before would be walked through, and be taken for size.
        with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("VACUUM landed_schedule")
    took = 0.0
    for _ in range(claims):
        with ledger.engine.connect() as conn, conn.begin() as transaction:
            began = time.perf_counter()
            found = schedule.claim(conn, ledger.books, lane="relay:out", owner="bench", limit=BATCH)
            took += time.perf_counter() - began
            assert len(found) == BATCH
            transaction.rollback()
    return took / claims


def fill(measured: Measured, rows: int) -> None:
    """So many events that were handled, and effects that were settled, as SQL makes them."""

    def _work(conn: Connection) -> Any:
        for statement in filled(conn, rows):
            conn.exec_driver_sql(statement)

    transact(measured.ledger.engine, _work)
    with measured.ledger.engine.connect() as conn, conn.begin():
        conn.exec_driver_sql("ANALYZE")
