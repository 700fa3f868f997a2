"""Late arrivals: what was settled and scrubbed long ago is still recognised."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from landed.records import actions, retention
from landed.records.actions import Action
from landed.records.tables import receipts, reviews
from landed.workers.handling import Handling
from tests.handling.conftest import LedgerDb
from tests.handling.doors import TYPE, door

pytestmark = pytest.mark.real_loop

INVOICE = {"type": TYPE, "data": {"id": "481", "cents": 1200}}
DAY_US = 24 * 3_600_000_000


async def handle(at) -> int:
    """Let the handlers run; returns how many events they saw."""
    ledger = at.ledger
    agent = Handling(
        ledger.engine, ledger.books, ledger.registry, owner="w1", chance=random.Random(1)
    )
    seen = 0
    while found := await agent.run_once():
        seen += found
    return seen


def age(db: LedgerDb, days: int) -> None:
    """Let everything that is settled be older by so many days, on both clocks."""

    def work(conn) -> None:
        conn.execute(
            update(receipts)
            .where(receipts.c.settled_at.is_not(None))
            .values(
                settled_at=receipts.c.settled_at - days * DAY_US,
                settled_mark=receipts.c.settled_mark - days * DAY_US,
            )
        )

    db.transact(work)


def scrub(db: LedgerDb, policy: retention.Policy) -> None:
    def work(conn) -> int:
        retention.settle_receipts(conn, db.books)
        return retention.scrub_due(conn, db.books, policy).total

    while db.transact(work):
        pass


def tiers(db: LedgerDb) -> dict[str | None, int]:
    with db.engine.connect() as conn:
        return dict(
            conn.execute(
                select(receipts.c.scrub_tier, func.count()).group_by(receipts.c.scrub_tier)
            ).all()  # type: ignore[arg-type]
        )


@pytest.mark.scenario("AS-87")
async def test_a_repeat_is_a_duplicate_at_every_tier(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        first = await at.post(at.webhook(INVOICE))
        assert await handle(at) == 1
        policy = retention.Policy(payload_us=14 * DAY_US, receipts_us={"shop": 45 * DAY_US})
        for days, tier in ((0, 0), (20, 1), (40, 2)):
            scrub(ledger_db, policy)
            age(ledger_db, days)
            scrub(ledger_db, policy)
            assert tiers(ledger_db) == {tier: 1}
            again = await at.post(at.webhook(INVOICE))
            assert again.headers["landed-disposition"] == "duplicate"
            assert again.headers["landed-receipt"] == first.headers["landed-receipt"]
            other = await at.post(at.webhook(INVOICE | {"data": {"cents": tier}}))
            assert other.headers["landed-disposition"] == "conflict"
            close_reviews(ledger_db)
            assert await handle(at) == 0


@pytest.mark.scenario("BC-24", "AS-23")
async def test_what_waits_for_a_person_is_remembered_until_it_was_decided(ledger_db: LedgerDb):
    policy = retention.Policy(payload_us=DAY_US, receipts_us={"shop": 7 * DAY_US})
    async with door(ledger_db) as at:
        parked = await at.post(at.webhook({"type": "later"}, id="ev-1"))
        assert parked.headers["landed-disposition"] == "quarantined"
        await at.post(at.webhook(INVOICE, id="ev-2"))
        assert await handle(at) == 1
        scrub(ledger_db, policy)
        age(ledger_db, 8)
        scrub(ledger_db, policy)
        scrub(ledger_db, policy)
        assert tiers(ledger_db) == {0: 1, 2: 1}, "the parked one is not touched at any age"
    async with door(ledger_db, types={TYPE: None, "later": None}) as at:
        producer = at.ledger.registry.producers["shop"]
        receipt_id = parked.headers["landed-receipt"]

        def release(conn):
            return actions.release_quarantine(
                conn,
                at.ledger.books,
                Action(action_id=at.ledger.books.new_id(), actor="ann", reason="declared now"),
                UUID(receipt_id),
                producer=producer,
                routes=at.ledger.registry.routes("shop"),
            )

        ledger_db.transact(release)
        during = await at.post(at.webhook({"type": "later"}, id="ev-1"))
        assert await handle(at) == 1
        for made in (
            at.webhook({"type": "later"}, id="ev-1"),
            at.webhook(INVOICE, id="ev-2"),
        ):
            answer = await at.post(made)
            assert answer.headers["landed-disposition"] == "duplicate"
        assert during.headers["landed-disposition"] == "duplicate"
        assert await handle(at) == 0


def close_reviews(db: LedgerDb) -> None:
    db.transact(lambda conn: conn.execute(update(reviews).values(state="closed")))
