"""The executor over a real HTTP recipient: what an answer, a lost one, or none at all makes of an effect."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from landed.clock import SystemClock
from landed.effects.answer import Ambiguous, InFlight, NotExecuted, NotSent, Success
from landed.effects.state import State
from landed.records import attempts as attempt_records
from landed.records import effects, schedule
from landed.records.effects import effect_lane
from landed.records.tables import effects as effect_rows
from landed.registry import Call
from landed.workers.agent import Life
from landed.workers.desk import Desk, Tempo
from landed.workers.executor import Executor
from landed.workers.worker import agents_of
from tests.handling import lives, works
from tests.handling.far_side import far_side

pytestmark = pytest.mark.real_loop


async def test_a_due_effect_is_sent_once_and_confirmed(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            assert await acme.executor.run_once() == 1
            effect = acme.see(effect_id)
            assert (effect.state, effect.certainty) == (State.CONFIRMED, "proven")
            assert far.acted == {str(effect.idempotency_key): 1}
            assert effect.result == far.answers[str(effect.idempotency_key)]
            assert await acme.executor.run_once() == 0


async def test_the_bytes_and_the_key_are_those_on_record_in_every_attempt(ledger_db):
    with far_side(faults=deque(["status:429", "status:429"])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            effect = await acme.settle(effect_id)
            assert effect.state is State.CONFIRMED
            assert len(far.requests) == 3
            assert {(key, body) for key, _, body in far.requests} == {
                (str(effect.idempotency_key), effect.payload)
            }


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Success(b"ok", recipient_ref="ch\0\ud800"), State.CONFIRMED),
        (Success(b"ok", code="2\x0000"), State.CONFIRMED),
        (Ambiguous("reset\0"), State.UNKNOWN),
        (Ambiguous("reset\ud800"), State.UNKNOWN),
        (Success("text"), State.UNKNOWN),
        (NotExecuted(retry_after_s=math.inf), State.RETRY),
        (NotExecuted(retry_after_s=math.nan), State.RETRY),
        (NotExecuted(retry_after_s=1e20), State.RETRY),
        (InFlight(retry_after_s=1e20), State.UNKNOWN),
        (ValueError("\0\ud800"), State.UNKNOWN),
    ],
)
async def test_an_answer_that_no_database_could_hold_is_kept_all_the_same(ledger_db, answer, state):
    async def send(_call):
        if isinstance(answer, ValueError):
            raise answer
        return answer

    async with works.acme(ledger_db, send=send) as acme:
        effect_id = acme.ask("k1")
        await acme.executor.run_once()
        assert acme.see(effect_id).state is state
        assert [row.ended_at is None for row in acme.attempts(effect_id)] == [False]


@pytest.mark.scenario("AS-57", "AS-59", "AS-60", "AS-61")
@pytest.mark.parametrize(
    ("fault", "state", "outcome"),
    [
        ("drop", State.UNKNOWN, "ambiguous"),
        ("lose", State.UNKNOWN, "ambiguous"),
        ("half", State.UNKNOWN, "ambiguous"),
        ("status:429", State.RETRY, "not_executed"),
        ("status:503", State.UNKNOWN, "ambiguous"),
        ("status:500", State.UNKNOWN, "ambiguous"),
        ("status:302", State.UNKNOWN, "ambiguous"),
        ("status:409", State.UNKNOWN, "in_flight"),
        ("status:422", State.UNKNOWN, "key_conflict"),
        ("status:402", State.REFUSED, "refused"),
        ("status:202", State.ACCEPTED, "accepted"),
    ],
)
async def test_what_comes_back_over_http_decides(ledger_db, fault, state, outcome):
    with far_side(faults=deque([fault])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            assert acme.see(effect_id).state is state
            assert works.outcomes(acme.attempts(effect_id)) == [outcome]
            assert len(far.requests) == 1, "nothing is sent again down below (BC-13)"


@pytest.mark.scenario("AS-57")
async def test_a_refused_connection_is_no_doubt(ledger_db):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening

        async def send(call: Call):
            return await acme.out.send(call, f"http://127.0.0.1:{taken.getsockname()[1]}/")

        async with works.acme(ledger_db, send=send) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.doubt_from) == (State.RETRY, None)
            assert works.outcomes(acme.attempts(effect_id)) == ["not_sent"]


class NobodyThoughtOfThisError(Exception):
    pass


async def _raise(_call):
    raise NobodyThoughtOfThisError


async def _cancel_inside(_call):
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


async def _nonsense(_call):
    return True


async def _timeout(_call):
    raise TimeoutError


@pytest.mark.scenario("AS-57", "AS-58")
@pytest.mark.parametrize("send", [_raise, _cancel_inside, _nonsense, _timeout])
async def test_whatever_a_sender_does_that_is_no_answer_is_ambiguous(ledger_db, send):
    async with works.acme(ledger_db, send=send) as acme:
        effect_id = acme.ask("k1")
        await acme.executor.run_once()
        effect = acme.see(effect_id)
        assert (effect.state, effect.reason, effect.doubt_from) == (State.UNKNOWN, "no_answer", 1)
        assert works.outcomes(acme.attempts(effect_id)) == ["ambiguous"]


@pytest.mark.scenario("AS-57")
async def test_a_sender_that_hangs_is_cut_off_before_its_deadline(ledger_db):
    async with works.acme(
        ledger_db, contract=replace(lives.REPLAYS, timeout_s=0.3), send=works.forever
    ) as acme:
        effect_id = acme.ask("k1")
        await acme.executor.run_once()
        (attempt,) = acme.attempts(effect_id)
        assert attempt.outcome == "ambiguous"
        assert acme.see(effect_id).state is State.UNKNOWN


@pytest.mark.scenario("AS-62")
async def test_a_resend_that_was_never_sent_leaves_the_older_doubt(ledger_db):
    answers = deque(["hang up", NotSent("refused")])

    async def send(_call):
        answer = answers.popleft()
        if isinstance(answer, str):
            raise ConnectionResetError(answer)
        return answer

    contract = replace(lives.REPLAYS, lookup=None)
    async with works.acme(ledger_db, contract=contract, send=send) as acme:
        effect_id = acme.ask("k1")
        await acme.executor.run_once()
        await acme.reconciler.run_once()
        effect = acme.see(effect_id)
        assert works.outcomes(acme.attempts(effect_id)) == ["ambiguous", "not_sent"]
        assert (effect.state, effect.doubt_from) == (State.UNKNOWN, 1)


async def test_a_worker_that_comes_to_itself_after_the_deadline_does_not_send(ledger_db):
    """KP-16, KP-21: it was paused between the begin and the first byte."""
    clock = works.Turned()
    sent = []

    async def send(call):
        sent.append(call)
        return call.answer("200")

    def pause(name, fields):
        if fields.get("point") == "KP-15":
            clock.turn(lives.REPLAYS.timeout_s + 1)

    async with works.acme(ledger_db, clock=clock, send=send, note=pause) as acme:
        effect_id = acme.ask("k1")
        await acme.executor.run_once()
        assert sent == []
        assert works.outcomes(acme.attempts(effect_id)) == ["not_sent"]


@pytest.mark.scenario("AS-75")
async def test_of_two_workers_that_hold_one_effect_one_sends(ledger_db):
    with far_side() as far:
        tempo = replace(works.QUICK, lease_s=-1000.0)  # every lease has run out already
        async with works.acme(ledger_db, far, tempo=tempo) as acme:
            effect_id = acme.ask("k1")
            one, two = acme.executor, acme.executor
            held = [*await one.take(5), *await two.take(5)]
            assert [piece.effect.effect_id for piece in held] == [effect_id, effect_id]
            await asyncio.gather(one.work(held[0]), two.work(held[1]))
            assert len(far.requests) == 1
            assert acme.see(effect_id).state is State.CONFIRMED


@pytest.mark.scenario("AS-72")
async def test_a_stop_lets_open_sends_finish_and_leaves_the_rest_open(ledger_db):
    with far_side(fault="wait") as far:
        contract = replace(lives.REPLAYS, concurrency=20)
        async with works.acme(ledger_db, far, contract=contract) as acme:
            ids = [acme.ask(f"k{n}") for n in range(20)]
            late = acme.ask("stays")  # no slot is left for it
            life = Life(grace_s=0.2, idle_max_s=0.02)
            running = asyncio.ensure_future(acme.executor.run(life))
            await _until(lambda: len(far.requests) == 20)
            life.stop()
            await running
            states = {acme.see(effect_id).state for effect_id in ids}
            assert states == {State.SENDING}, "none is rewritten to be sent again"
            assert acme.see(late).state is State.PENDING
            far.gate.set()
            far.fault = None
            await _until(lambda: far.effects == 20)
            for effect_id in ids:
                acme.outdate(effect_id)
            assert await acme.reaper.run_once() == 20
            assert {acme.see(effect_id).state for effect_id in ids} == {State.UNKNOWN}
            for effect_id in [*ids, late]:
                assert (await acme.settle(effect_id)).state is State.CONFIRMED
            assert far.effects == 21
            assert set(far.acted.values()) == {1}


@pytest.mark.scenario("AS-72")
async def test_an_answer_in_hand_is_written_although_the_worker_is_cancelled(ledger_db):
    async def send(call):
        return call.answer("200", result=b"ok")

    def cancel(_name, fields):
        if fields.get("point") == "KP-18":  # the sender has returned, nothing is written yet
            asyncio.current_task().cancel()

    async with works.acme(ledger_db, send=send, note=cancel) as acme:
        effect_id = acme.ask("k1")
        with pytest.raises(asyncio.CancelledError):
            await acme.executor.run_once()
        assert acme.see(effect_id).state is State.CONFIRMED


@pytest.mark.scenario("AS-72")
async def test_a_send_that_is_cancelled_by_the_stop_stays_open_for_the_reaper(ledger_db):
    sending = asyncio.Event()

    async def send(_call):
        sending.set()
        await asyncio.Event().wait()

    async with works.acme(ledger_db, send=send) as acme:
        effect_id = acme.ask("k1")
        running = asyncio.ensure_future(acme.executor.run_once())
        await sending.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert acme.see(effect_id).state is State.SENDING
        (attempt,) = acme.attempts(effect_id)
        assert attempt.ended_at is None


@pytest.mark.scenario("KP-19", "KP-20")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_end_whose_commit_is_in_doubt_is_read_back_and_written_once(
    ledger_db, monkeypatch, is_kept
):
    from landed.errors import StorageError
    from landed.workers import attempt as attempt_module

    monkeypatch.setattr(attempt_module, "_END_PAUSE_S", 0.0)
    real = Desk.transact
    failures = [True]

    async def transact(desk, work, *, is_durable=True):
        is_end = "_write_alone" in work.__qualname__
        if is_end and failures:
            failures.clear()
            if is_kept:
                await real(desk, work, is_durable=is_durable)
            raise StorageError("the connection broke", is_outcome_known=False)
        return await real(desk, work, is_durable=is_durable)

    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            monkeypatch.setattr(Desk, "transact", transact)
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            assert failures == []
            assert acme.see(effect_id).state is State.CONFIRMED
            (attempt,) = acme.attempts(effect_id)
            assert (attempt.outcome, attempt.late_outcome) == ("success", None)
            assert far.effects == 1


@pytest.mark.scenario("KP-15")
async def test_a_begin_whose_commit_is_in_doubt_sends_nothing(ledger_db, monkeypatch):
    from landed.errors import StorageError

    real = Desk.transact

    async def transact(desk, work, *, is_durable=True):
        made = await real(desk, work, is_durable=is_durable)
        if "Executor.take" in work.__qualname__:
            raise StorageError("the connection broke", is_outcome_known=False)
        return made

    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            monkeypatch.setattr(Desk, "transact", transact)
            with pytest.raises(StorageError):
                await acme.executor.run_once()
            monkeypatch.undo()
            assert far.requests == []
            assert acme.see(effect_id).state is State.SENDING
            assert acme.flow.room(100) == acme.contract.concurrency, "no place is kept for it"
            acme.outdate(effect_id)
            assert await acme.reaper.run_once() == 1
            assert (await acme.settle(effect_id)).state is State.CONFIRMED
            assert far.effects == 1


@pytest.mark.scenario("AS-118")
async def test_no_connection_is_held_while_a_send_waits(ledger_db):
    with far_side(fault="wait") as far:
        async with works.acme(ledger_db, far) as acme:
            single = ledger_db.open(pool_size=1)
            single.pool._max_overflow = 0
            single.pool._timeout = 5
            desk = replace(acme.desk, engine=single)
            executor = Executor(desk, lives.RECIPIENT, acme.flow)
            effect_id = acme.ask("k1")
            running = asyncio.ensure_future(executor.run_once())
            await _until(lambda: len(far.requests) == 1)
            assert single.pool.checkedout() == 0
            await desk.transact(desk.now_us)
            far.gate.set()
            await running
            assert acme.see(effect_id).state is State.CONFIRMED


@pytest.mark.scenario("AS-117")
async def test_an_effect_costs_two_statements_to_begin_and_three_to_end(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            acme.collect.settled_handlers.clear()  # each costs its outbox row and its place
            acme.ask("k1")
            executor = acme.executor
            with lives.statements(ledger_db.engine) as ran:
                (piece,) = await executor.take(1)
                await executor.work(piece)
            assert [statement.split()[0] for statement in ran[-5:]] == [
                "UPDATE",
                "INSERT",
                "UPDATE",
                "UPDATE",
                "DELETE",
            ]


@pytest.mark.scenario("AS-77")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
@pytest.mark.parametrize("off_s", [600.0, -600.0])
async def test_a_workers_own_clock_moves_neither_leases_nor_due_times(ledger_db, off_s):
    """On PostgreSQL; on SQLite every worker is on one machine and shares its clock."""

    wrong = works.Turned(int(SystemClock().wall_ms() + off_s * 1000))
    async with works.acme(ledger_db, clock=wrong) as acme:
        acme.ask("k1")
        lane = effect_lane(lives.RECIPIENT)

        def claim(conn, books):
            return schedule.claim(conn, books, lane=lane, owner="w", limit=5, lease_us=60_000_000)

        books = acme.desk.books
        assert len(ledger_db.transact(lambda conn: claim(conn, books))) == 1
        assert ledger_db.transact(lambda conn: claim(conn, books)) == []
        assert ledger_db.transact(lambda conn: claim(conn, ledger_db.books)) == []


@pytest.mark.scenario("AS-78")
@pytest.mark.parametrize("due", [1000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_recipient_that_hangs_keeps_no_other_lane_waiting(ledger_db, due):
    contract = replace(lives.REPLAYS, concurrency=4)
    async with works.acme(ledger_db, contract=contract, send=works.forever) as acme:
        acme.ask_many(f"k{n}" for n in range(due))
        registry = acme.desk.registry
        registry.is_frozen = False
        quick = registry.add_recipient("quick", contract).effect("collect", dict)

        @quick.send
        async def _(call):
            return call.answer("200")

        registry.is_frozen = True
        life = Life(grace_s=0.0, idle_max_s=0.05)
        lanes = [a for a in agents_of(acme.desk, lanes=["effect"]) if isinstance(a, Executor)]
        running = [asyncio.ensure_future(lane.run(life)) for lane in lanes]
        await _until(lambda: _sending(ledger_db) == 4)
        intent = replace(lives.intent("q", contract=contract), recipient="quick")
        effect_id = ledger_db.transact(
            lambda conn: effects.request(conn, acme.desk.books, intent).effect_id
        )
        await _until(lambda: acme.see(effect_id).state is State.CONFIRMED)
        assert _sending(ledger_db) == 4, "the one that hangs has its own slots, and no more"
        life.stop()
        await asyncio.gather(*running)


def _sending(db) -> int:
    with db.engine.connect() as conn:
        query = select(func.count()).where(effect_rows.c.state == "sending")
        return conn.execute(query).scalar_one()


@pytest.mark.scenario("AS-73")
async def test_a_recipient_that_is_down_is_left_alone_and_drained_when_it_is_back(ledger_db):
    clock = works.Turned()
    is_down = True
    sent: list[str] = []

    async def send(call):
        sent.append(call.effect_key)
        return NotSent("refused") if is_down else call.answer("200")

    tempo = Tempo(retry_us=0, retry_max_us=0, breaker_after=5, breaker_s=8.0, breaker_max_s=60.0)
    async with works.acme(ledger_db, clock=clock, send=send, tempo=tempo) as acme:
        ids = [acme.ask(f"k{n}") for n in range(20)]
        for _ in range(600):  # ten minutes, a second at a time
            await acme.executor.run_once()
            clock.turn(1)
        assert 5 <= len(sent) <= 60, "a probe now and then, no storm"
        states = {acme.see(effect_id).state for effect_id in ids}
        assert states <= {State.PENDING, State.RETRY}
        assert any(name == "recipient.paused" for name, _ in acme.facts)
        is_down = False
        sent.clear()
        clock.turn(61)
        for _ in range(30):
            await acme.executor.run_once()
        assert {acme.see(effect_id).state for effect_id in ids} == {State.CONFIRMED}
        assert sorted(sent) == sorted(f"k{n}" for n in range(20))


async def test_a_rate_is_kept_and_what_exceeds_it_stays_due(ledger_db):
    clock = works.Turned()
    sent = []

    async def send(call):
        sent.append(call)
        return call.answer("200")

    contract = replace(lives.REPLAYS, rate_per_s=2.0)
    async with works.acme(ledger_db, contract=contract, clock=clock, send=send) as acme:
        for n in range(6):
            acme.ask(f"k{n}")
        counts = []
        for _ in range(3):
            await acme.executor.run_once()
            await acme.executor.run_once()
            counts.append(len(sent))
            clock.turn(1)
        assert counts == [2, 4, 6]


async def test_a_held_effect_is_not_sent_and_waits_in_place(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            from landed.records.tables import effects as rows

            ledger_db.transact(lambda conn: conn.execute(rows.update().values(held_by="ann")))
            assert await acme.executor.run_once() == 1
            assert await acme.executor.run_once() == 0
            assert far.requests == []
            assert acme.see(effect_id).state is State.PENDING


async def test_a_stopped_lane_is_not_worked_on(ledger_db):
    from landed.records import lanes

    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            acme.ask("k1")
            name = effect_lane(lives.RECIPIENT)
            ledger_db.transact(
                lambda conn: lanes.stop(conn, acme.desk.books, name, by="ann", why="incident")
            )
            assert await acme.executor.run_once() == 0
            ledger_db.transact(lambda conn: lanes.resume(conn, name))
            assert await acme.executor.run_once() == 1
            assert far.effects == 1


@pytest.mark.scenario("BC-22", "AS-79")
async def test_the_reaper_leaves_alone_what_is_not_overdue_or_was_closed_meanwhile(ledger_db):
    async with works.acme(ledger_db, send=works.forever) as acme:
        effect_id = acme.ask("k1")
        begun = ledger_db.transact(
            lambda conn: lives.begun(conn, acme.desk.books, effect_id, acme.contract)
        )
        assert await acme.reaper.run_once() == 0
        assert acme.see(effect_id).state is State.SENDING
        acme.outdate(effect_id)
        stale = acme.see(effect_id)
        ledger_db.transact(
            lambda conn: attempt_records.end(
                conn,
                acme.desk.books,
                begun.effect,
                acme.contract,
                NotSent("refused"),
                delays=lives.DELAYS,
            )
        )
        before = acme.see(effect_id)
        reaped = ledger_db.transact(
            lambda conn: attempt_records.reap(
                conn, acme.desk.books, stale, acme.contract, delays=lives.DELAYS
            )
        )
        assert not reaped
        assert acme.see(effect_id) == before
        assert await acme.reaper.run_once() == 0


async def test_the_reaper_looks_again_before_it_closes_an_attempt(ledger_db, monkeypatch):
    """What it found overdue was resent meanwhile: the newer attempt is in time."""
    async with works.acme(ledger_db, send=works.forever) as acme:
        effect_id = acme.ask("k1")
        ledger_db.transact(
            lambda conn: lives.begun(conn, acme.desk.books, effect_id, acme.contract)
        )
        monkeypatch.setattr(attempt_records, "overdue", lambda *_args, **_more: [effect_id])
        assert await acme.reaper.run_once() == 0
        assert acme.see(effect_id).state is State.SENDING


def test_a_desk_is_made_of_values():
    assert Desk.__dataclass_params__.frozen


async def _until(condition, within_s: float = 20.0) -> None:
    """Wait for a condition; looks again and again, and gives up after a while."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)
