"""The essential tests of reliable event handling, each told from the shop's webhook to the bank.

Nothing is replaced but the bank, which counts what it did in a database of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from landed.effects.state import Certainty, State
from landed.records import retention
from landed.testing import FaultyRecipient
from tests.handling.conftest import LedgerDb
from tests.handling.stories.billing import Billing, billing, bills
from tests.handling.stories.mortal import killed

pytestmark = pytest.mark.real_loop

SQLITE_FIRST = pytest.mark.parametrize(
    "ledger_db", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
"""A process a test: PostgreSQL waits for `make long`."""


@pytest.fixture
def bank() -> Iterator[FaultyRecipient]:
    with FaultyRecipient() as running:
        yield running


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    return tmp_path / "bus"


async def is_done_once(service: Billing) -> None:
    """One receipt, one row, one effect at the bank, one message under one id, nothing broken."""
    effect = await service.charge()
    assert effect.state is State.CONFIRMED
    assert service.bank.acted == {str(effect.idempotency_key): 1}
    assert (service.receipts(), service.count(bills)) == (1, 1)
    assert len(set(service.published())) == 1
    service.check()


@pytest.mark.scenario("AS-01", "AS-02")
async def test_the_same_event_at_once_and_after_a_restart_is_one_receipt_and_one_charge(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    async with billing(ledger_db, bank, bus) as service:
        answers = await asyncio.gather(*[service.invoice() for _ in range(20)])
        assert {answer.status_code for answer in answers} == {202}
        dispositions = [answer.headers["landed-disposition"] for answer in answers]
        assert sorted(dispositions) == ["accepted"] + ["duplicate"] * 19
        await service.work()
    async with billing(ledger_db, bank, bus) as service:
        again = await service.invoice()
        assert again.headers["landed-disposition"] == "duplicate"
        assert again.headers["landed-receipt"] == answers[0].headers["landed-receipt"]
        await service.work()
        await is_done_once(service)
        assert len(bank.requests) == 1


CRASHES = {
    "before the receipt commits": "KP-1",
    "after the receipt committed": "KP-3",
    "after the acknowledgement": "KP-4",
    "after the publication": "KP-10",
    "after the bank acted": "KP-18",
}


@pytest.mark.scenario("BC-13", "KP-1", "KP-3", "KP-4", "KP-10", "KP-18")
@pytest.mark.parametrize("when", CRASHES)
async def test_a_crash_anywhere_loses_nothing_and_charges_once(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path, when: str
):
    await crash_and_recover(CRASHES[when], ledger_db, bank, bus)


@pytest.mark.scenario("KP-7", "KP-8", "KP-9", "KP-13", "KP-14", "KP-15", "KP-16", "KP-17")
@pytest.mark.scenario("KP-19", "KP-20")
@SQLITE_FIRST
@pytest.mark.parametrize("point", [f"KP-{n}" for n in (7, 8, 9, 13, 14, 15, 16, 17, 19, 20)])
async def test_killed_at_any_other_point_it_charges_once_as_well(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path, point: str
):
    await crash_and_recover(point, ledger_db, bank, bus)


async def crash_and_recover(point: str, db: LedgerDb, bank: FaultyRecipient, bus: Path) -> None:
    is_acknowledged = killed(point, db, bank, bus)
    acted, sent = bank.effects, len(bank.requests)
    assert (acted, sent) == ((1, 1) if point in ("KP-18", "KP-19", "KP-20") else (0, 0))
    async with billing(db, bank, bus) as service:
        assert service.receipts() == (0 if point == "KP-1" else 1)
        if not is_acknowledged:
            answer = await service.invoice()  # the shop knows no better
            assert answer.status_code == 202
        await service.recover()
        await is_done_once(service)


@pytest.mark.scenario("AS-80")
async def test_an_old_event_after_a_newer_one_is_refused_by_the_bank(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    async with billing(ledger_db, bank, bus) as service:
        await service.change_terms("e2", version=2)
        await service.work()
        await service.change_terms("e1", version=1)
        await service.work()
        newer, older = await service.terms_effect(2), await service.terms_effect(1)
        assert (newer.state, older.state) == (State.CONFIRMED, State.FENCED)
        assert bank.acted == {str(newer.idempotency_key): 1}
        assert [seen.fence for seen in bank.requests] == ["terms/481/2", "terms/481/1"]
        standing = bank.newest("481")
        assert standing is not None
        assert standing[0] == 2
        service.check()


@pytest.mark.scenario("AS-45")
async def test_a_changed_payload_under_a_known_key_fails_and_reuses_nothing(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    async with billing(ledger_db, bank, bus) as service:
        await service.invoice("e1", cents=1200)
        await service.work()
        before = await service.charge()
        await service.invoice("e2", cents=9900)
        await service.work()
        assert await service.charge() == before
        assert bank.effects == 1
        assert service.count(bills) == 1, "the second handling was rolled back whole"
        assert len(service.published()) == 1
        assert len(service.reviews()) == 1, "and somebody is told"
        service.check()


@pytest.mark.scenario("AS-53")
@pytest.mark.parametrize("fault", ["lose", "cut", "act-and-status"])
async def test_an_unknown_result_is_reconciled_and_not_charged_again(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path, fault: str
):
    bank.next(fault, n=500 if fault == "act-and-status" else 12)
    async with billing(ledger_db, bank, bus) as service:
        await service.invoice()
        await service.work()
        await is_done_once(service)
        assert (await service.charge()).certainty == Certainty.PROVEN
        assert len(bank.requests) == 1, "it was asked about, and not sent again"


async def test_an_unknown_result_of_nothing_is_sent_again_under_the_same_key(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    bank.next("drop")
    async with billing(ledger_db, bank, bus) as service:
        await service.invoice()
        await service.work()
        await is_done_once(service)
        assert len(bank.requests) == 2
        assert bank.requests[0] == bank.requests[1], "the same key and the same bytes"


@pytest.mark.scenario("AS-87", "AS-88")
async def test_a_retained_event_replayed_is_a_repeat_and_beyond_the_boundary_is_refused(
    ledger_db: LedgerDb, bank: FaultyRecipient, bus: Path
):
    old = "2001-02-03T04:05:06Z"
    async with billing(ledger_db, bank, bus) as service:
        await service.invoice("e1", time=old)
        await service.work()
        replayed = await service.invoice("e1", time=old)
        assert replayed.headers["landed-disposition"] == "duplicate"
        await service.work()
        now_us = service.ledger.books.now_us()
        ledger_db.transact(
            lambda conn: retention.raise_floor(conn, service.door.producer, now_us - 10**9)
        )
        for event in ("e1", "e0"):
            refused = await service.invoice(event, time=old)
            assert refused.status_code == 400
            assert refused.json()["type"] == "urn:landed:problem:beyond-retention"
        await service.work()
        await is_done_once(service)
