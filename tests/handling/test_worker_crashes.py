"""A worker killed at every crash point of an attempt: what it left, and what comes of it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from sqlalchemy import select

from landed.effects.contract import Lookup
from landed.effects.state import Finality, State
from landed.records import invariants
from landed.records.tables import effects as effect_rows
from landed.records.tables import outbox
from landed.records.tables import schedule as schedule_rows
from tests.handling import lives, works
from tests.handling.crash_child import killed_at
from tests.handling.far_side import far_side

pytestmark = pytest.mark.real_loop

NOTHING_SENT = {"KP-13", "KP-14", "KP-15", "KP-16"}
ACTED = {"KP-18", "KP-19", "KP-20"}
LEFT = {"KP-13": State.PENDING, "KP-14": State.PENDING, "KP-20": State.CONFIRMED}
"""Where the effect stands after the kill; else an attempt is open."""
POINTS = [f"KP-{n}" for n in range(13, 21)]


@pytest.mark.scenario(
    "AS-54", "KP-13", "KP-14", "KP-15", "KP-16", "KP-17", "KP-18", "KP-19", "KP-20"
)
@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_anywhere_leaves_one_effect(ledger_db, point):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            assert killed_at(point, ledger_db, far, acme.contract) == -9
            left = acme.see(effect_id)
            assert left.state is LEFT.get(point, State.SENDING)
            assert len(acme.attempts(effect_id)) == (0 if left.state is State.PENDING else 1)
            if point in NOTHING_SENT:
                assert far.requests == []
            assert far.effects == (1 if point in ACTED else 0)
            effect = await _recovered(acme, effect_id)
            assert effect.state is State.CONFIRMED
            assert far.effects == 1
            assert {key for key, _, _ in far.requests} == {str(effect.idempotency_key)}
            assert len(far.requests) <= len(acme.attempts(effect_id)), "each send has its attempt"
            assert _settlements(ledger_db) == 1
            assert _broken(ledger_db) == []


@pytest.mark.scenario("AS-55", "AS-56")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("point", ["KP-16", "KP-17", "KP-18", "KP-19"])
@pytest.mark.parametrize("has_lookup", [True, False])
async def test_without_a_key_a_killed_worker_never_makes_a_second_effect(
    ledger_db, point, has_lookup
):
    contract = lives.NOTHING
    if has_lookup:
        lookup = Lookup(lag_s=0.0, absence=Finality.QUIESCENCE, quiescence_s=30.0)
        contract = replace(lives.LOOKUP_ONLY, lookup=lookup)
    with far_side(has_keys=False) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            assert killed_at(point, ledger_db, far, contract) == -9
            acted = far.effects
            effect = await _recovered(acme, effect_id)
            if has_lookup:
                assert effect.state is State.CONFIRMED
                assert far.effects == 1
            else:
                assert effect.state is State.UNKNOWN
                assert acme.reviews() == [("doubt", "warning")]
                assert far.effects == acted
                assert len(acme.attempts(effect_id)) == 1
            assert _broken(ledger_db) == []


@pytest.mark.scenario("KP-23", "KP-24", "KP-25")
@pytest.mark.parametrize(
    ("point", "fault", "left", "state"),
    [
        ("KP-23", "lose", State.UNKNOWN, State.CONFIRMED),
        ("KP-24", "drop", State.UNKNOWN, State.CANCELLED),
        ("KP-25", "", State.UNKNOWN, State.CONFIRMED),
    ],
)
async def test_a_worker_killed_while_it_asks_or_reaps_is_followed_by_one_that_asks_again(
    ledger_db, point, fault, left, state
):
    contract = replace(lives.SEALED, timeout_s=5.0)
    with far_side(faults=deque([fault] if fault else [])) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            if point == "KP-25":
                acme.db.transact(
                    lambda conn: lives.begun(conn, acme.desk.books, effect_id, contract)
                )
                acme.outdate(effect_id)
            else:
                await acme.executor.run_once()
            if point == "KP-24":
                flag = effect_rows.update().values(is_cancel_requested=True)
                acme.db.transact(lambda conn: conn.execute(flag))
            assert killed_at(point, ledger_db, far, contract) == -9
            assert acme.see(effect_id).state is left
            sealed_before = set(far.sealed)
            effect = await _recovered(acme, effect_id)
            assert effect.state is state
            assert far.effects == (0 if state is State.CANCELLED else 1)
            if point == "KP-24":
                assert sealed_before == {str(effect.idempotency_key)}, "the seal stands, unrecorded"
            assert _settlements(ledger_db) == 1
            assert _broken(ledger_db) == []


async def _recovered(acme, effect_id):
    """What other workers do once the leases and the deadline of the dead one are over."""
    acme.db.transact(lambda conn: conn.execute(schedule_rows.update().values(lease_until=1)))
    if acme.see(effect_id).state is State.SENDING:
        acme.outdate(effect_id)
    await acme.reaper.run_once()
    return await acme.settle(effect_id)


def _settlements(db) -> int:
    with db.engine.connect() as conn:
        return len(conn.execute(select(outbox.c.outbox_id).where(outbox.c.kind == "settled")).all())


def _broken(db):
    with db.engine.connect() as conn:
        return invariants.check(conn, db.books)
