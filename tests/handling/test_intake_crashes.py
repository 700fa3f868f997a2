"""Processes killed while they receive: what was acknowledged is there, what is there is there once."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest
from sqlalchemy import func, select

from landed.ledger import Ledger
from landed.records import invariants
from landed.records.tables import alerts, outbox, quarantine, receipts, reviews, schedule
from landed.workers.handling import Handling
from tests.handling.conftest import LedgerDb
from tests.handling.doors import TYPE, plain_ledger
from tests.handling.receiver import Receivers, receivers

pytestmark = pytest.mark.real_loop

UNKNOWN = {"id": "e1", "type": "acme.unknown.v1"}


@pytest.fixture(scope="module")
def lives():
    with receivers() as made:
        yield made


def rows(db: LedgerDb, table) -> int:
    with db.engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()


def is_whole(db: LedgerDb) -> bool:
    with db.engine.connect() as conn:
        return invariants.check(conn, db.books) == []


@pytest.mark.scenario("AS-01")
def test_fifty_deliveries_of_one_event_at_four_processes_are_one_event(
    ledger_db: LedgerDb, lives: Receivers
):
    events = [{"id": "e1"}] * 13
    results = lives.live(ledger_db.url, events, processes=4, at_once=True)
    answers = [answer for result in results for answer in result["answers"]]
    assert len(answers) == 52
    assert {answer["status"] for answer in answers} == {202}
    assert len({answer["receipt"] for answer in answers}) == 1
    assert sorted(a["disposition"] for a in answers).count("accepted") == 1
    assert rows(ledger_db, receipts) == 1
    assert handled(ledger_db) == ["e1"]
    assert handled(ledger_db) == []


@pytest.mark.parametrize(
    ("kill", "is_kept"),
    [
        ({"point": "KP-1"}, False),
        ({"commit": "before"}, False),
        ({"commit": "after"}, True),
        ({"point": "KP-3"}, True),
    ],
    ids=["KP-1", "KP-2 before", "KP-2 after", "KP-3"],
)
def test_killed_before_the_answer_a_repeat_makes_one_receipt(
    ledger_db: LedgerDb, lives: Receivers, kill, is_kept: bool
):
    (died,) = lives.live(ledger_db.url, [{"id": "e1"}], **kill)
    assert died == {"answers": [], "signal": -signal.SIGKILL}
    assert rows(ledger_db, receipts) == is_kept
    (lived,) = lives.live(ledger_db.url, [{"id": "e1"}, {"id": "e1"}])
    dispositions = [answer["disposition"] for answer in lived["answers"]]
    assert dispositions == ["duplicate" if is_kept else "accepted", "duplicate"]
    assert rows(ledger_db, receipts) == rows(ledger_db, outbox) == rows(ledger_db, schedule) == 1
    assert is_whole(ledger_db)


def test_killed_after_the_answer_a_worker_finds_the_event_without_a_wake_up(
    ledger_db: LedgerDb, lives: Receivers
):
    (died,) = lives.live(ledger_db.url, [{"id": "e1"}, {"id": "e2"}], point="KP-4")
    assert died["signal"] == -signal.SIGKILL
    assert rows(ledger_db, receipts) == 1, "KP-4 comes after the answer left"
    assert handled(ledger_db) == ["e1"]


@pytest.mark.scenario("AS-09")
def test_killed_at_any_statement_a_quarantine_is_whole_or_absent(
    ledger_db: LedgerDb, lives: Receivers
):
    tables = (receipts, quarantine, reviews, alerts, outbox)
    for statement in range(40):
        (result,) = lives.live(ledger_db.url, [UNKNOWN], statement=statement)
        if result["signal"] == 0:
            break
        assert [rows(ledger_db, table) for table in tables] == [0] * 5
        assert result["answers"] == []
    else:
        pytest.fail("it never came to its end")
    assert statement > 5, "there were statements to be killed at"
    assert result["answers"][0]["disposition"] == "quarantined"
    assert [rows(ledger_db, table) for table in tables] == [1] * 5
    (killed,) = lives.live(ledger_db.url, [UNKNOWN | {"id": "e2"}], point="KP-5")
    assert killed["signal"] == -signal.SIGKILL
    assert [rows(ledger_db, table) for table in tables] == [1] * 5
    assert is_whole(ledger_db)


def test_killed_within_a_group_all_of_it_is_kept_or_nothing(ledger_db: LedgerDb, lives: Receivers):
    events = [{"id": f"e{n}"} for n in range(5)]
    (died,) = lives.live(ledger_db.url, events, at_once=True, point="KP-6")
    assert died == {"answers": [], "signal": -signal.SIGKILL}
    assert rows(ledger_db, receipts) == 0
    for statement in (2, 3, 4):
        (died,) = lives.live(ledger_db.url, events, at_once=True, statement=statement)
        kept = rows(ledger_db, receipts)
        assert died["signal"] == 0 or kept in (0, 1, 5), "a first group of one, then one of four"
    (lived,) = lives.live(ledger_db.url, events, at_once=True)
    assert {answer["status"] for answer in lived["answers"]} == {202}
    assert rows(ledger_db, receipts) == rows(ledger_db, outbox) == 5
    assert is_whole(ledger_db)


@pytest.mark.scenario("AS-02")
def test_after_every_process_was_killed_a_repeat_changes_no_row(
    ledger_db: LedgerDb, lives: Receivers
):
    lives.live(ledger_db.url, [{"id": "e1"}], point="KP-4")
    before = [rows(ledger_db, table) for table in (receipts, outbox, schedule, quarantine)]
    (lived,) = lives.live(ledger_db.url, [{"id": "e1"}] * 2)
    assert [answer["disposition"] for answer in lived["answers"]] == ["duplicate"] * 2
    after = [rows(ledger_db, table) for table in (receipts, outbox, schedule, quarantine)]
    assert after == before


def handled(db: LedgerDb) -> list[str]:
    """The events that a handler sees now."""
    seen: list[str] = []
    base, _ = plain_ledger(db)
    base.registry.handlers.clear()
    handler_name = f"on {TYPE}"
    ledger: Ledger = base
    ledger.on(ledger.registry.producers["shop"], TYPE, name=handler_name)(
        lambda _tx, event: seen.append(event.id)
    )
    ledger.prepare()
    agent = Handling(
        ledger.engine, ledger.books, ledger.registry, owner="w1", chance=random.Random(1)
    )

    async def run() -> None:
        while await agent.run_once():
            pass

    try:
        asyncio.run(run())
    finally:
        ledger.close()
    return seen
