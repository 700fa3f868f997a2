"""Quick handlings that share one transaction: what they save, and what they may never cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError

from landed.records.tables import effect_causes, effects, outbox, schedule
from landed.workers import costs
from tests.handling.conftest import LedgerDb
from tests.handling.ledgers import QUICK, Charge, Shop, bill_row, bills, shop
from tests.handling.lives import together


@pytest.fixture(autouse=True)
def everything_is_quick(monkeypatch):
    """What a handler takes on a busy machine decides nothing here."""
    monkeypatch.setattr(costs, "GROUP_S", 1_000.0)


class Facts:
    """What an agent noted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def __call__(self, name: str, fields: Any) -> None:
        self.seen.append((name, dict(fields)))

    @property
    def commits(self) -> int:
        return sum(fields.get("point") == "KP-8" for name, fields in self.seen if name == "kp")

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(fields["outcome"] for name, fields in self.seen if name == "handling.ended")

    @property
    def splits(self) -> int:
        return sum(name == "handling.split" for name, _ in self.seen)


def handled(made: Shop, ids: list[str], *, rounds: int = 1) -> Facts:
    """Handle events at once, by an agent that has handled one before and found it quick."""
    facts = Facts()
    agent = made.agent(note=facts)
    made.receive("before")
    asyncio.run(agent.run_once())
    made.seen.clear()
    facts.seen.clear()
    for id in ids:
        made.receive(id)
    for _ in range(rounds):
        asyncio.run(agent.run_once())
    return facts


def bill_and_charge(made: Shop, tx: Any, event: Any) -> None:
    bill_row(tx, event)
    tx.request(made.collect, f"{event.data.id}/collect", Charge(event.data.id, 1200))


def keys(made: Shop) -> list[str]:
    with made.engine.connect() as conn:
        found = conn.execute(select(effects.c.effect_key)).scalars()
        return sorted(key.partition("/")[0] for key in found)


def waiting(made: Shop) -> int:
    with made.engine.connect() as conn:
        lanes = conn.execute(select(schedule.c.lane)).scalars().all()
        return lanes.count("effect:acme")


def test_quick_handlings_share_a_commit_and_lose_nothing(ledger_db: LedgerDb):
    with shop(ledger_db, lambda tx, event: bill_and_charge(made, tx, event)) as made:
        ids = [f"i{n}" for n in range(12)]
        facts = handled(made, ids)
        assert facts.commits == 1
        assert facts.outcomes == {"done": 12}
        assert keys(made) == sorted([*ids, "before"])
        assert sorted(made.billed()) == sorted([*ids, "before"])
        assert waiting(made) == 13
        with made.engine.connect() as conn:
            states = conn.execute(select(outbox.c.state)).scalars().all()
            causes = conn.execute(select(effect_causes.c.cause_id)).scalars().all()
        assert set(states) == {"done"}
        assert len(set(causes)) == 13, "each effect says which event asked for it"


@pytest.mark.scenario("HN-3")
def test_one_that_fails_fails_alone(ledger_db: LedgerDb):
    def handler(tx, event):
        bill_and_charge(made, tx, event)
        if event.data.id == "i3":
            raise ValueError("not this one")

    with shop(ledger_db, handler) as made:
        facts = handled(made, [f"i{n}" for n in range(6)])
        assert facts.splits == 1
        assert facts.outcomes == {"done": 5, "failed": 1}
        assert keys(made) == ["before", "i0", "i1", "i2", "i4", "i5"]
        assert "i3" not in made.billed()
        with made.engine.connect() as conn:
            tries = conn.execute(select(outbox.c.state, outbox.c.tries)).all()
        assert sorted(map(tuple, tries)) == [("done", 0)] * 6 + [("queued", 1)]


def test_a_handler_that_breaks_the_transaction_breaks_it_for_nobody_else(ledger_db: LedgerDb):
    """It catches the database's error, and the transaction is unusable all the same."""

    def handler(tx, event):
        if event.data.id == "i1":
            with suppress(IntegrityError):
                tx.conn.execute(insert(bills).values(id="before", cents=1))
            return
        bill_and_charge(made, tx, event)

    with shop(ledger_db, handler) as made:
        handled(made, ["i0", "i1", "i2"])
        assert {"i0", "i2"} <= set(made.billed())
        assert {"i0", "i2"} <= set(keys(made))


@pytest.mark.scenario("EF-2", "EF-3")
@pytest.mark.parametrize("is_known", [True, False])
def test_an_effect_that_is_asked_for_again_is_shared_and_says_so(
    ledger_db: LedgerDb, is_known: bool
):
    """Asked for by an event before, or by two events of one group."""
    answers: dict[str, bool] = {}

    def handler(tx, event):
        key = "before" if is_known or event.data.id == "before" else "shared"
        ref = tx.request(made.collect, f"{key}/collect", Charge(key, 1200))
        answers[event.data.id] = ref.is_created

    with shop(ledger_db, handler) as made:
        facts = handled(made, ["i0", "i1", "i2"])
        assert facts.outcomes == {"done": 3}
        assert answers.pop("before")
        assert sorted(answers.values()) == ([False] * 3 if is_known else [False, False, True])
        assert keys(made) == (["before"] if is_known else ["before", "shared"])
        with made.engine.connect() as conn:
            assert len(conn.execute(select(effect_causes)).all()) == 4


@pytest.mark.scenario("EF-4", "HN-5")
def test_another_payload_for_a_known_key_is_refused_within_a_group_as_well(ledger_db: LedgerDb):
    def handler(tx, event):
        key = "before" if event.data.id in ("before", "i1") else event.data.id
        tx.request(made.collect, f"{key}/collect", Charge(event.data.id, 1200))

    with shop(ledger_db, handler) as made:
        facts = handled(made, ["i0", "i1", "i2"])
        assert facts.outcomes == {"done": 2, "effect_payload_conflict": 1}
        assert keys(made) == ["before", "i0", "i2"]


@pytest.mark.scenario("EF-10")
@pytest.mark.parametrize("way", ["nested", "by hand"])
@pytest.mark.parametrize("is_swallowed", [False, True])
def test_a_savepoint_that_is_rolled_back_takes_its_effect_along(
    ledger_db: LedgerDb, way: str, is_swallowed: bool
):
    def ask(tx, event):
        tx.request(made.collect, f"{event.data.id}/collect", Charge(event.data.id, 1200))

    def roll_back(tx, event):
        if way == "nested":
            with tx.conn.begin_nested() as savepoint:
                ask(tx, event)
                savepoint.rollback()
        else:
            tx.conn.execute(text("SAVEPOINT mine"))
            ask(tx, event)
            tx.conn.execute(text("ROLLBACK TO SAVEPOINT mine"))

    def handler(tx, event):
        if event.data.id != "i1":
            ask(tx, event)
            return
        try:
            roll_back(tx, event)
        except Exception:
            if not is_swallowed:
                raise

    with shop(ledger_db, handler) as made:
        facts = handled(made, ["i0", "i1", "i2"])
        assert facts.outcomes == {"done": 3}
        assert keys(made) == ["before", "i0", "i2"]
        assert waiting(made) == 3


def test_what_a_slow_handler_does_is_not_shared(ledger_db: LedgerDb, monkeypatch):
    monkeypatch.setattr(costs, "GROUP_S", 1e-9)
    with shop(ledger_db, lambda tx, event: bill_and_charge(made, tx, event)) as made:
        facts = handled(made, ["i0", "i1", "i2"])
        assert (facts.commits, facts.outcomes) == (3, {"done": 3})


@pytest.mark.scenario("HN-2", "KP-8")
def test_two_agents_that_hold_the_same_group_handle_it_once(ledger_db: LedgerDb):
    with shop(ledger_db, lambda tx, event: bill_and_charge(made, tx, event)) as made:
        ids = [f"i{n}" for n in range(5)]
        agents = [made.agent(owner=f"w{n}") for n in range(2)]
        made.receive("b0")
        asyncio.run(agents[0].run_once())
        made.receive("b1")
        asyncio.run(agents[1].run_once())
        for id in ids:
            made.receive(id)

        async def _held(agent):
            held = await agent.take(100)
            with made.engine.begin() as conn:
                conn.execute(schedule.update().values(lease_until=1))
            return held

        held = [asyncio.run(_held(agent)) for agent in agents]
        assert [len(group) for groups in held for group in groups] == [5, 1, 1, 1, 1, 1]

        def _worked(agent, groups):
            async def _work():
                for group in groups:
                    await agent.work(group)

            return lambda: asyncio.run(_work())

        assert together(*map(_worked, agents, held)) == [None, None]
        assert sorted(made.billed()) == sorted([*ids, "b0", "b1"])
        assert keys(made) == sorted([*ids, "b0", "b1"])


@pytest.mark.scenario("BC-22", "CL-5")
def test_a_lease_is_renewed_while_a_handler_runs_and_ends_with_its_worker(ledger_db: LedgerDb):
    """Renewed: nobody takes over. On SQLite nobody could: the handler holds the one writer's place."""
    pace = replace(QUICK, takeover_s=0.3)
    taken: list[Any] = []

    def handler(_tx, event):
        if ledger_db.is_postgres and not taken:
            taken.append(event)
            deadline = made.books.clock.monotonic_ms() + 1000
            other = made.agent(owner="w2", pace=pace)
            while made.books.clock.monotonic_ms() < deadline:
                assert asyncio.run(other.take(100)) == []

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        assert asyncio.run(made.agent(pace=pace).run_once()) == 1
        made.receive("i2")
        first, second = made.agent(pace=pace), made.agent(owner="w2", pace=pace)
        assert len(asyncio.run(first.take(9))) == 1, "and it is killed"
        deadline = made.books.clock.monotonic_ms() + 20_000
        while not (found := asyncio.run(second.take(9))):
            assert made.books.clock.monotonic_ms() < deadline
        assert found[0][0].event.data.id == "i2"
