"""Operators, keepers and replicas killed in the middle of what they do: all of it is there, or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import func, inspect, select

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.records import actions, invariants, migrations, receipts, retention, runs
from landed.records import quarantine as quarantines
from landed.records.meta import prepare
from landed.records.session import open_engine
from landed.records.tables import PREFIX, outbox, scrub_reports
from landed.records.tables import actions as action_rows
from landed.records.tables import effects as effect_rows
from landed.records.tables import receipts as receipt_rows
from tests.handling import cut_short, lives
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.cut_short import AFTER
from tests.handling.stories.test_essential import SQLITE_FIRST
from tests.handling.test_intake_cli import stored
from tests.handling.test_records_retention import aged, handled_event, settle

pytestmark = pytest.mark.real_loop


def count(db: LedgerDb, table) -> int:
    with db.engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()


def is_whole(db: LedgerDb) -> bool:
    with db.engine.connect() as conn:
        return invariants.check(conn, db.books) == []


def every(step: int = 1) -> Iterator[int]:
    """Statements to be killed at; the caller stops once an act came to its end."""
    return itertools.count(0, step)


@pytest.mark.scenario("KP-26")
@SQLITE_FIRST
def test_killed_at_any_statement_a_release_is_whole_or_absent(ledger_db: LedgerDb):
    aside = lives.arrival(
        "e", disposition=QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "v2")
    )
    (kept,) = ledger_db.transact(lambda conn: receipts.keep(conn, ledger_db.books, [aside]))
    action_id = uuid4()

    def decision() -> str:
        with ledger_db.engine.connect() as conn:
            found = quarantines.find(conn, kept.receipt_id)
        assert found is not None
        return found["decision"]

    def handlings() -> int:
        with ledger_db.engine.connect() as conn:
            query = select(func.count()).where(outbox.c.kind == "handle")
            return conn.execute(query).scalar_one()

    for statement in every():
        if not cut_short.cut_short(
            cut_short.release, ledger_db.url, kept.receipt_id, action_id, at=statement
        ):
            break
        assert (decision(), handlings(), count(ledger_db, action_rows)) == ("open", 0, 0)
        assert is_whole(ledger_db)
    assert statement > 6, "there were statements to be killed at"
    assert (decision(), handlings(), count(ledger_db, action_rows)) == ("released", 1, 1)
    assert is_whole(ledger_db)


@pytest.mark.scenario("KP-29", "AS-106")
@SQLITE_FIRST
def test_killed_after_its_commit_an_act_is_repeated_and_is_one_act(ledger_db: LedgerDb):
    aside = lives.arrival(
        "e", disposition=QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "v2")
    )
    (kept,) = ledger_db.transact(lambda conn: receipts.keep(conn, ledger_db.books, [aside]))
    action_id = uuid4()
    given = (kept.receipt_id, action_id)
    assert cut_short.cut_short(cut_short.release, ledger_db.url, *given, at=AFTER)
    again = cut_short.release(ledger_db.engine, ledger_db.books, *given)
    assert again.is_repeat
    assert again.after["decision"] == "released"
    assert count(ledger_db, action_rows) == 1
    with ledger_db.engine.connect() as conn:
        found = actions.find(conn, action_id)
    assert found is not None
    assert is_whole(ledger_db)


@pytest.mark.scenario("KP-28")
@SQLITE_FIRST
def test_killed_at_any_statement_a_scrub_took_the_whole_batch_or_nothing(ledger_db: LedgerDb):
    day_us = 86_400_000_000
    for n in range(3):
        handled_event(ledger_db, f"e{n}", f"invoice/{n}")
    settle(ledger_db)
    aged(ledger_db, wall_us=2 * day_us, received_us=2 * day_us)
    policy = retention.Policy(payload_us=day_us)

    def tiers() -> set[int]:
        with ledger_db.engine.connect() as conn:
            found = [conn.execute(select(t.c.scrub_tier)) for t in (receipt_rows, effect_rows)]
            return {tier for rows in found for tier in rows.scalars()}

    for statement in every():
        if not cut_short.cut_short(cut_short.scrub, ledger_db.url, policy, at=statement):
            break
        assert (tiers(), count(ledger_db, scrub_reports)) == ({0}, 0)
    assert statement > 6, "there were statements to be killed at"
    assert (tiers(), count(ledger_db, scrub_reports)) == ({1}, 1)
    cut_short.scrub(ledger_db.engine, ledger_db.books, policy)
    assert (tiers(), count(ledger_db, scrub_reports)) == ({1}, 1), "again is harmless"
    assert is_whole(ledger_db)
    again = ledger_db.transact(
        lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e0")])
    )
    assert type(again[0]) is receipts.Seen


@pytest.mark.scenario("KP-27", "AS-100")
@SQLITE_FIRST
def test_a_run_whose_process_is_killed_neither_skips_nor_recounts(
    ledger_db: LedgerDb, tmp_path: Path
):
    path = tmp_path / "stored.jsonl"
    path.write_text("\n".join(stored(f"i{n}") for n in range(20)))
    plan = runs.Plan(kind=runs.BACKFILL, label="old", namespace="shop", source=str(path))

    def begin(conn):
        run_id = runs.create(conn, ledger_db.books, plan, by="bob", why="an outage")
        runs.approve(conn, ledger_db.books, run_id, by="ann", plan_digest=plan.digest())
        return run_id

    run_id = ledger_db.transact(begin)
    for passes, taken in ((0, 0), (2, 8), (1, 12), (9, 20)):
        was_killed = cut_short.cut_short(
            cut_short.backfill, ledger_db.url, run_id, path, passes, at=-1
        )
        run = ledger_db.transact(lambda conn: runs.load(conn, run_id))
        assert (was_killed, run["cursor"], run["accepted"]) == (taken < 20, taken, taken)
        assert count(ledger_db, receipt_rows) == count(ledger_db, outbox) == taken
        assert is_whole(ledger_db)
    assert run["state"] == "completed"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def empty(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    return request.getfixturevalue("empty_postgres")


@pytest.mark.scenario("BC-26")
def test_killed_at_any_statement_a_migration_is_whole_or_absent(empty: str):
    engine = open_engine(empty)
    for statement in every(9):
        if not cut_short.cut_short(cut_short.migrate, empty, at=statement):
            break
        names = [name for name in inspect(engine).get_table_names() if name.startswith(PREFIX)]
        assert names == [], "a step and its number commit together"
    assert statement > 30, "there were statements to be killed at"
    with engine.connect() as conn:
        assert migrations.version(conn) == migrations.NEWEST
    books = cut_short.Books(LEDGER, DIGEST_KEY)
    prepare(engine, books)
    with engine.connect() as conn:
        assert invariants.check(conn, books) == []
    engine.dispose()
