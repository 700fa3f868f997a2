"""Crash points that need more than one invoice and one life; see docs/reference/crash-points.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import delete, event, select, update

from landed.effects.state import State
from landed.records import actions, effect_actions, rebuild
from landed.records.settle import Delays
from landed.records.tables import attempts, effects, schedule
from landed.testing import FaultyRecipient
from tests.handling.conftest import LedgerDb
from tests.handling.stories.billing import billing
from tests.handling.stories.mortal import asleep, killed
from tests.handling.stories.test_essential import SQLITE_FIRST, bank, bus, is_done_once

__all__ = ["bank", "bus"]  # fixtures

pytestmark = pytest.mark.real_loop

ROOT = Path(__file__).parents[3]


def _pass_time(db: LedgerDb) -> None:
    """As if every send deadline were over."""
    db.transact(lambda conn: conn.execute(update(effects).values(send_deadline=1)))


@pytest.mark.scenario("KP-11")
@SQLITE_FIRST
async def test_killed_between_two_publications_both_go_out_under_their_own_ids(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    killed("KP-10", ledger_db, bank, bus, invoices=3, passes=1)
    async with billing(ledger_db, bank, bus) as service:
        before = service.published()
        assert len(before) == 2
        await service.recover()
        after = service.published()
        assert after[:2] == before
        assert set(before) < set(after)
        assert len(set(after)) == 3
        assert bank.effects == 3
        service.check()


@pytest.mark.scenario("KP-23")
@SQLITE_FIRST
async def test_killed_between_a_lookups_answer_and_its_record_it_is_asked_again(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    bank.next("lose")
    killed("KP-23", ledger_db, bank, bus)
    async with billing(ledger_db, bank, bus) as service:
        assert (await service.charge()).state is State.UNKNOWN
        await service.recover()
        await is_done_once(service)
        assert len(bank.requests) == 1


@pytest.mark.scenario("KP-25")
@SQLITE_FIRST
async def test_killed_while_reaping_it_is_reaped_once(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    killed("KP-18", ledger_db, bank, bus)
    ledger_db.transact(lambda conn: conn.execute(update(effects).values(send_deadline=1)))
    killed("KP-25", ledger_db, bank, bus)
    async with billing(ledger_db, bank, bus) as service:
        assert (await service.charge()).state is State.UNKNOWN
        await service.recover()
        await is_done_once(service)


@pytest.mark.scenario("KP-24")
@SQLITE_FIRST
async def test_a_seal_whose_answer_is_lost_is_asked_for_again_and_is_one_seal(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    bank.next("drop")
    killed("KP-16", ledger_db, bank, bus, passes=1)  # dropped first; it dies before the resend
    async with billing(ledger_db, bank, bus) as service:
        effect = await service.charge()
        case = effect_actions.Case(effect.effect_id, bank.contract(), Delays(owner="team-billing"))
        act = actions.Action(action_id=uuid4(), actor="ann", reason="the order was withdrawn")
        _pass_time(ledger_db)
        await service.work_on("reaper")
        ledger_db.transact(
            lambda conn: effect_actions.cancel(conn, service.ledger.books, act, case)
        )
    killed("KP-24", ledger_db, bank, bus)
    key = str(effect.idempotency_key)
    assert bank._seal(key).state == "sealed", "the seal was there, and its answer lost"
    async with billing(ledger_db, bank, bus) as service:
        assert (await service.charge()).state is State.UNKNOWN
        await service.recover()
        assert (await service.charge()).state is State.CANCELLED
        assert bank.effects == 0
        assert bank._seal(key).state == "sealed"
        service.check()


@pytest.mark.scenario("KP-21", "AS-67")
@SQLITE_FIRST
async def test_a_worker_that_slept_through_its_reaping_makes_no_second_charge(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    with asleep("KP-16", ledger_db, bank, bus):
        async with billing(ledger_db, bank, bus) as service:
            assert (await service.charge()).state is State.SENDING
            await service.recover()
            await is_done_once(service)
            assert len(bank.requests) == 1
    async with billing(ledger_db, bank, bus) as service:
        await service.recover()
        await is_done_once(service)
        assert len({seen.key for seen in bank.requests}) == 1
        assert len(bank.requests) == 2, "the sleeper sent as well, under the same key"
        with service.ledger.engine.connect() as conn:
            first, second = conn.execute(select(attempts).order_by(attempts.c.attempt_no)).all()
        assert (first.outcome, second.outcome) == ("abandoned", "success")
        assert first.late_outcome == "success", "its late answer is on record"


@pytest.mark.scenario("KP-22", "AS-81")
@SQLITE_FIRST
async def test_a_worker_that_slept_with_an_older_version_is_refused(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    with asleep("KP-16", ledger_db, bank, bus, terms=1):
        async with billing(ledger_db, bank, bus) as service:
            await service.change_terms("terms 2", version=2)
            await service.work()
            assert (await service.terms_effect(2)).state is State.CONFIRMED
            assert bank.effects == 1
    async with billing(ledger_db, bank, bus) as service:
        await service.recover()
        assert [seen.fence for seen in bank.requests] == ["terms/481/2", "terms/481/1"]
        assert (await service.terms_effect(1)).state is State.FENCED
        standing = bank.newest("481")
        assert standing is not None
        assert (standing[0], bank.effects) == (2, 1)
        service.check()


@pytest.mark.scenario("KP-30", "AS-76")
@pytest.mark.parametrize("point", ["KP-4", "KP-16", "KP-18"])
@SQLITE_FIRST
async def test_a_schedule_that_is_lost_with_the_process_costs_nothing(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path, point: str
):
    killed(point, ledger_db, bank, bus)
    ledger_db.transact(lambda conn: conn.execute(delete(schedule)))
    async with billing(ledger_db, bank, bus) as service:
        books = service.ledger.books
        ledger_db.transact(lambda conn: rebuild.rebuild_schedule(conn, books))
        await service.recover()
        await is_done_once(service)


@pytest.mark.scenario("KP-33")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
async def test_a_full_disk_is_no_acknowledgement_and_leaves_no_half_rows(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    async with billing(ledger_db, bank, bus) as service:
        engine = service.ledger.engine
        pages = 0

        def bound(conn: object) -> None:
            conn.exec_driver_sql(f"PRAGMA max_page_count = {pages or 2**31}")

        event.listen(engine, "begin", bound)
        await service.invoice("e0", id="480")
        with engine.connect() as conn:
            pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        assert (await service.invoice(id="4" * 50_000)).status_code == 503
        assert service.receipts() == 1
        service.check()
        pages = 0
        assert (await service.invoice()).status_code == 202
        await service.work()
        assert bank.effects == 2
        service.check()


def test_every_crash_point_is_in_the_table_with_a_test_that_exists():
    table = (ROOT / "docs/reference/crash-points.md").read_text()
    rows = re.findall(r"^\| (KP-\d+) \|.*\| (.+?) \|$", table, re.MULTILINE)
    assert [point for point, _ in rows] == [f"KP-{n}" for n in range(1, 34)]
    named = {name for _, tests in rows for name in re.findall(r"`(test_\w+)`", tests)}
    defined = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert named - defined == set()
    for point, tests in rows:
        assert "`test_" in tests or tests.startswith("not built"), point
