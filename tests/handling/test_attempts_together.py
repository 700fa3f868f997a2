"""Attempts that are begun and ended together: one in trouble troubles no other, and a kill loses none."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, OperationalError

from landed.effects.answer import Ambiguous
from landed.effects.order import OrderPolicy
from landed.effects.state import State
from landed.errors import StorageError
from landed.records import attempts, effects, invariants, outbox
from landed.records.tables import attempts as attempt_rows
from landed.records.tables import effects as effect_rows
from landed.records.tables import schedule as schedule_rows
from landed.workers import attempt, ends
from landed.workers.desk import Desk
from tests.handling import lives, works
from tests.handling.crash_child import killed_at
from tests.handling.far_side import far_side

pytestmark = pytest.mark.real_loop

MANY = 6


def seen(acme, ids):
    return [acme.see(effect_id) for effect_id in ids]


async def test_several_are_begun_and_ended_by_the_statements_of_one(ledger_db):
    """Counted on PostgreSQL; SQLite, which has no round trips, runs some of them once a row."""

    async def send(call):
        return call.answer("200", result=b"ok")

    async with works.acme(ledger_db, send=send) as acme:
        acme.collect.settled_handlers.clear()
        ids = acme.ask_many(f"k{n}" for n in range(MANY))
        with lives.statements(ledger_db.engine) as ran:
            assert await acme.executor.run_once() == MANY
        assert {effect.state for effect in seen(acme, ids)} == {State.CONFIRMED}
        if ledger_db.is_postgres:
            words = [statement.split()[0] for statement in ran]
            assert words.count("WITH") == 1, "the claim"
            assert words.count("UPDATE") == 3, "begun, attempts closed, effects moved"
            assert words.count("INSERT") == 1
            assert words.count("DELETE") == 1


@pytest.mark.scenario("AS-75", "AT-1")
async def test_one_that_may_not_be_begun_hinders_no_other(ledger_db):
    async with works.acme(ledger_db, contract=lives.FENCED, policy=OrderPolicy.STRICT) as acme:
        older, newer = acme.ask("v1", version=1), acme.ask("v2", version=2)
        ids = acme.ask_many(["held", "cancelled", "begun by another", "free"])
        held, cancelled, taken, free = ids
        read = seen(acme, [older, newer, *ids])
        for effect_id, values in (
            (held, {"held_by": "ann"}),
            (cancelled, {"is_cancel_requested": True}),
        ):
            change = (
                effect_rows.update().where(effect_rows.c.effect_id == effect_id).values(**values)
            )
            ledger_db.transact(lambda conn, change=change: conn.execute(change))
        books = acme.desk.books
        ledger_db.transact(lambda conn: lives.begun(conn, books, taken, acme.contract))
        begun = ledger_db.transact(
            lambda conn: attempts.begin_all(
                conn, books, [(effect, acme.contract) for effect in read], worker="w1"
            )
        )
        kinds = [type(one).__name__ for one in begun]
        assert kinds == ["Begun", "NotBegun", "NotBegun", "NotBegun", "NotBegun", "Begun"]
        assert begun[4].effect.attempt_no == 1, "as it stands now"
        assert acme.see(free).state is State.SENDING
        assert len(acme.attempts(newer)) == len(acme.attempts(held)) == 0


async def test_each_of_several_is_ended_by_its_own_answer(ledger_db):
    answers = {"k0": "200", "k1": "402", "k2": "429", "k3": None, "k4": "200"}

    async def send(call):
        code = answers[call.effect_key]
        return Ambiguous("reset") if code is None else call.answer(code, result=b"ok")

    async with works.acme(ledger_db, send=send) as acme:
        ids = acme.ask_many(answers)
        await acme.executor.run_once()
        states = [effect.state.value for effect in seen(acme, ids)]
        assert states == ["confirmed", "refused", "retry", "unknown", "confirmed"]
        lanes = ledger_db.transact(
            lambda conn: dict(
                conn.execute(
                    select(schedule_rows.c.subject_id, schedule_rows.c.lane).where(
                        schedule_rows.c.kind == effects.EFFECT
                    )
                ).all()
            )
        )
        assert lanes == {ids[2]: "effect:acme", ids[3]: "reconcile:acme"}


@pytest.mark.scenario("KP-19", "KP-20")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_group_of_ends_that_fails_is_written_one_by_one(ledger_db, monkeypatch, is_kept):
    real = Desk.transact

    async def transact(desk, work, *, is_durable=True):
        if "Attempts._write.<locals>" in work.__qualname__:
            if is_kept:
                await real(desk, work, is_durable=is_durable)
            raise StorageError("the connection broke", is_outcome_known=False)
        return await real(desk, work, is_durable=is_durable)

    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(MANY))
            made = await acme.executor.take(MANY)
            monkeypatch.setattr(Desk, "transact", transact)
            await asyncio.gather(*map(acme.executor.work, made))
            monkeypatch.undo()
            assert {effect.state for effect in seen(acme, ids)} == {State.CONFIRMED}
            rows = [acme.attempts(effect_id) for effect_id in ids]
            assert [(r.outcome, r.late_outcome) for (r,) in rows] == [("success", None)] * MANY
            assert far.effects == MANY


class Away:
    """A database that takes no answers for a while."""

    def __init__(self, monkeypatch, *, tries: int | None) -> None:
        self.tries = 0
        real = Desk.transact

        async def transact(desk, work, *, is_durable=True):
            is_end = "Attempts._write" in work.__qualname__
            if is_end and (tries is None or self.tries < tries):
                self.tries += 1
                lost = OperationalError("COMMIT", {}, Exception("connection refused"))
                raise StorageError("the database failed", is_outcome_known=True) from lost
            return await real(desk, work, is_durable=is_durable)

        monkeypatch.setattr(Desk, "transact", transact)
        monkeypatch.setattr(attempt, "_END_PAUSE_S", 0.0)


@pytest.mark.scenario("KP-19")
async def test_answers_in_hand_outlive_a_database_that_is_away(ledger_db, monkeypatch):
    """Where nobody can be asked later, an answer that was given up would be a doubt for ever."""
    with far_side() as far:
        async with works.acme(ledger_db, far, contract=lives.NOTHING) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(MANY))
            away = Away(monkeypatch, tries=50)
            await acme.executor.run_once()
            assert away.tries == 50
            assert {effect.state for effect in seen(acme, ids)} == {State.CONFIRMED}


@pytest.mark.scenario("AT-11")
async def test_a_worker_that_has_to_leave_waits_for_no_database(ledger_db, monkeypatch):
    monkeypatch.setattr(ends, "LEAVE_S", 0.0)
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(MANY))
            away = Away(monkeypatch, tries=None)
            working = asyncio.create_task(acme.executor.run_once())
            async with asyncio.timeout(30):
                while away.tries < 20:
                    await asyncio.sleep(0)
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            monkeypatch.undo()
            assert {effect.state for effect in seen(acme, ids)} == {State.SENDING}


@pytest.mark.scenario("KP-14", "KP-15", "KP-16", "KP-18", "KP-19", "KP-20")
@pytest.mark.parametrize("point", ["KP-14", "KP-15", "KP-16", "KP-18", "KP-19", "KP-20"])
async def test_a_worker_killed_with_a_batch_in_hand_loses_none_of_it(ledger_db, point):
    """Whatever was begun and not ended is unknown, sent or not; and each acts once in the end."""
    contract = replace(lives.REPLAYS, timeout_s=5.0)
    with far_side() as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            ids = acme.ask_many(f"k{n}" for n in range(MANY))
            assert killed_at(point, ledger_db, far, contract) == -signal.SIGKILL
            begun = {effect.state for effect in seen(acme, ids)}
            if point == "KP-14":
                assert begun == {State.PENDING}, "all of the batch, or none"
            else:
                assert begun <= {State.SENDING, State.CONFIRMED}
                assert all(len(acme.attempts(effect_id)) == 1 for effect_id in ids)
            if point in ("KP-14", "KP-15", "KP-16"):
                assert far.requests == []
            ledger_db.transact(
                lambda conn: conn.execute(schedule_rows.update().values(lease_until=1))
            )
            for effect_id in ids:
                if acme.see(effect_id).state is State.SENDING:
                    acme.outdate(effect_id)
            await acme.reaper.run_once()
            if point != "KP-14":
                assert {effect.state for effect in seen(acme, ids)} <= {
                    State.UNKNOWN,
                    State.CONFIRMED,
                }
            for effect_id in ids:
                assert (await acme.settle(effect_id)).state is State.CONFIRMED
            assert far.effects == MANY
            with ledger_db.engine.connect() as conn:
                assert invariants.check(conn, ledger_db.books) == []
                open_ = select(attempt_rows).where(attempt_rows.c.ended_at.is_(None))
                assert conn.execute(open_).all() == []


@pytest.mark.parametrize("at", [0, 2])
def test_a_row_that_may_not_be_written_is_an_error_of_the_database_wherever_it_stands(
    ledger_db, at
):
    taken = "m0"
    message = lambda name: outbox.Message(  # noqa: E731
        kind="event",
        destination="d",
        message_id=name,
        cause_kind="local",
        cause_id=None,
        type="t",
        body=b"",
        lane="relay:d",
    )
    ledger_db.transact(lambda conn: outbox.add(conn, ledger_db.books, [message(taken)]))
    names = ["m1", "m2", "m3"]
    names[at] = taken
    with pytest.raises(StorageError) as caught:
        ledger_db.transact(
            lambda conn: outbox.add(conn, ledger_db.books, [message(name) for name in names])
        )
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert caught.value.is_outcome_known
