"""Doubt is asked about until evidence ends it; nothing else does, and no second effect comes of it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

import pytest
from sqlalchemy import select

from landed.effects.answer import Inconclusive, Present, Success
from landed.effects.contract import Ambiguity, Expiry, Lookup
from landed.effects.order import OrderPolicy
from landed.effects.state import Finality, State
from landed.records import attempts as attempt_records
from landed.records import effect_actions, receipts, reviews, schedule
from landed.records.actions import Action
from landed.records.effects import effect_lane
from landed.records.tables import effects as effect_rows
from landed.records.tables import schedule as schedule_rows
from landed.workers.desk import Tempo
from landed.workers.worker import Worker, agents_of
from tests.handling import lives, works
from tests.handling.far_side import far_side

pytestmark = pytest.mark.real_loop

RESEND_ONLY = replace(lives.REPLAYS, lookup=None)


def finality(absence: Finality, **more):
    return replace(lives.LOOKUP_ONLY, lookup=Lookup(lag_s=0.0, absence=absence, **more))


@pytest.mark.scenario("AS-53")
async def test_a_lost_answer_is_found_by_a_lookup(ledger_db):
    with far_side(faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=lives.LOOKUP_ONLY) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            doubted = acme.see(effect_id)
            assert (doubted.state, doubted.doubt_from) == (State.UNKNOWN, 1)
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.certainty) == (State.CONFIRMED, "proven")
            assert [row.method for row in acme.questions(effect_id)] == ["lookup"]
            assert far.effects == 1


@pytest.mark.scenario("AS-54")
@pytest.mark.parametrize("fault", ["drop", "lose", "half", "status:503"])
async def test_the_same_key_again_settles_a_doubt_with_one_effect(ledger_db, fault):
    with far_side(faults=deque([fault])) as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect_id = acme.ask("k1")
            effect = await acme.settle(effect_id)
            assert effect.state is State.CONFIRMED
            assert works.outcomes(acme.attempts(effect_id)) == ["ambiguous", "success"]
            assert {key for key, _, _ in far.requests} == {str(effect.idempotency_key)}
            assert far.effects == 1


@pytest.mark.scenario("AS-55")
@pytest.mark.parametrize("fault", ["drop", "lose"])
async def test_without_a_key_nothing_is_sent_again_before_an_absence_is_final(ledger_db, fault):
    with far_side(has_keys=False, faults=deque([fault])) as far:
        contract = finality(Finality.QUIESCENCE, quiescence_s=60.0)
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            for _ in range(5):
                await acme.executor.run_once()
                await acme.reconciler.run_once()
            assert len(far.requests) == 1
            acme.shift(effect_id, send_deadline=120_000_000)
            effect = await acme.settle(effect_id)
            assert effect.state is State.CONFIRMED
            assert far.effects == 1
            assert len(far.requests) == (2 if fault == "drop" else 1)


@pytest.mark.scenario("AS-56")
@pytest.mark.parametrize("fault", ["drop", "lose"])
async def test_with_neither_key_nor_lookup_it_stays_unknown_and_a_person_is_asked(ledger_db, fault):
    with far_side(has_keys=False, faults=deque([fault])) as far:
        async with works.acme(ledger_db, far, contract=lives.NOTHING) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            for _ in range(25):
                await acme.reconciler.run_once()
                await acme.executor.run_once()
                await acme.reaper.run_once()
                # As a rebuilt schedule would: due again.
                ledger_db.transact(
                    lambda conn: schedule.move(
                        conn,
                        acme.desk.books,
                        kind="effect",
                        subject_id=effect_id,
                        lane="reconcile:acme",
                        delay_us=0,
                    )
                )
            assert acme.see(effect_id).state is State.UNKNOWN
            assert acme.reviews() == [("doubt", "warning")]
            assert len(far.requests) == 1
            assert far.effects == (1 if fault == "lose" else 0)


@pytest.mark.scenario("AS-59")
async def test_a_stored_error_is_not_looped_and_gets_a_review(ledger_db):
    tempo = Tempo(question_us=1_000_000, question_max_us=60_000_000)
    with far_side(fault="status:500") as far:
        clock = works.Turned()
        async with works.acme(
            ledger_db, far, contract=RESEND_ONLY, tempo=tempo, clock=clock
        ) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            for _ in range(12):
                _due_now(ledger_db)
                clock.turn(60)
                await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert effect.state is State.UNKNOWN
            assert ("doubt", "warning") in acme.reviews()
            assert set(works.outcomes(acme.attempts(effect_id))) == {"ambiguous"}
            assert {row.method for row in acme.questions(effect_id)} == {"resend"}
            assert await acme.reconciler.run_once() == 0, "it comes again only after its delay"


@pytest.mark.scenario("AS-60")
async def test_a_key_in_flight_is_asked_for_again_under_the_same_key(ledger_db):
    with far_side(faults=deque(["status:409"])) as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect = await acme.settle(acme.ask("k1"))
            assert effect.state is State.CONFIRMED
            assert works.outcomes(acme.attempts(effect.effect_id)) == ["in_flight", "success"]
            assert far.effects == 1


@pytest.mark.scenario("AS-61")
async def test_a_key_known_with_another_payload_is_never_sent_again(ledger_db):
    with far_side(fault="status:422") as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect_id = acme.ask("k1")
            effect = await acme.settle(effect_id)
            assert (effect.state, effect.reason) == (State.UNKNOWN, "key_conflict")
            assert acme.reviews() == [("key_conflict", "critical")]
            _due_now(ledger_db)
            await acme.keeper.run_once()
            await acme.reconciler.run_once()
            assert len(far.requests) == 1


@pytest.mark.scenario("AS-63")
async def test_an_absence_that_is_never_final_settles_nothing_until_it_is_found(ledger_db):
    tempo = Tempo(question_us=1_000_000, question_max_us=900_000_000)
    with far_side(faults=deque(["lose"]), hides=True) as far:
        async with works.acme(ledger_db, far, contract=lives.LOOKUP_ONLY, tempo=tempo) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            waits = []
            for _ in range(7):
                _due_now(ledger_db)
                before = _ready_at(ledger_db, acme)
                await acme.reconciler.run_once()
                assert acme.see(effect_id).state is State.UNKNOWN
                waits.append(_ready_at(ledger_db, acme) - before)
            assert waits[6] > waits[3] > waits[0], "ever more slowly"
            assert len(far.requests) == 1
            far.hides = False
            _due_now(ledger_db)
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.CONFIRMED
            assert far.effects == 1


@pytest.mark.scenario("AS-64")
async def test_an_absence_within_the_lag_after_the_last_possible_send_is_not_used(ledger_db):
    contract = replace(
        lives.LOOKUP_ONLY,
        lookup=Lookup(lag_s=100.0, absence=Finality.QUIESCENCE, quiescence_s=10.0),
    )
    with far_side(has_keys=False, faults=deque(["drop"])) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            # Past the quiet time, and not past the lag: counted from the deadline of the send.
            acme.shift(effect_id, send_deadline=90_000_000)
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.UNKNOWN
            acme.shift(effect_id, send_deadline=60_000_000)
            _due_now(ledger_db)
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.doubt_from) == (State.RETRY, None)
            assert [row.finality for row in acme.questions(effect_id)] == ["none", "quiescence"]


@pytest.mark.scenario("AS-65")
async def test_past_an_enforced_expiry_an_absence_is_final_and_the_old_request_is_refused(
    ledger_db,
):
    contract = replace(
        lives.REPLAYS,
        expiry=Expiry(tolerance_s=5.0),
        lookup=Lookup(lag_s=0.0, absence=Finality.EXPIRY),
        timeout_s=1.0,
    )
    with far_side(faults=deque(["drop"]), has_keys=False) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            begun = acme.see(effect_id)
            assert begun.state is State.UNKNOWN
            acme.shift(effect_id, send_deadline=60_000_000)
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.doubt_from) == (State.RETRY, None)
            assert [row.finality for row in acme.questions(effect_id)] == ["expiry"]
            effect = await acme.settle(effect_id)
            assert effect.state is State.CONFIRMED
            # The first request, released late: its deadline is over there.
            far.now_us = lambda: begun.send_deadline + 10_000_000
            status, _ = far.act(
                str(begun.idempotency_key), "", str(begun.send_deadline // 1000), begun.payload
            )
            assert (status, far.effects) == (410, 1)


@pytest.mark.scenario("AS-66")
async def test_past_the_recipients_memory_nothing_is_sent_and_a_lookup_may_still_settle_it(
    ledger_db,
):
    with far_side(faults=deque(["lose"]), hides=True) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            acme.shift(effect_id, first_sight_at=2 * 86_400_000_000)
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.reason) == (State.UNKNOWN, "horizon_passed")
            assert ("horizon_passed", "critical") in acme.reviews()
            assert len(far.requests) == 1
            far.hides = False
            _due_now(ledger_db)
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.CONFIRMED
            assert len(far.requests) == 1


@pytest.mark.scenario("AS-66")
async def test_the_keeper_notices_a_horizon_that_passes_while_nobody_asks(ledger_db):
    with far_side(faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            await acme.keeper.run_once()
            assert acme.see(effect_id).reason == "no_answer"
            acme.shift(effect_id, first_sight_at=2 * 86_400_000_000)
            await acme.keeper.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.reason) == (State.UNKNOWN, "horizon_passed")


@pytest.mark.scenario("AS-67")
async def test_a_late_success_confirms_what_was_reaped(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            begun = ledger_db.transact(
                lambda conn: lives.begun(conn, acme.desk.books, effect_id, acme.contract)
            )
            acme.outdate(effect_id)
            assert await acme.reaper.run_once() == 1
            assert acme.see(effect_id).reason == "abandoned"
            far.act(str(begun.effect.idempotency_key), "", "", begun.effect.payload)
            ended = ledger_db.transact(
                lambda conn: attempt_records.end(
                    conn,
                    acme.desk.books,
                    begun.effect,
                    acme.contract,
                    Success(b"ok", None, "200"),
                    delays=lives.DELAYS,
                )
            )
            assert ended.was_late
            assert acme.see(effect_id).state is State.CONFIRMED
            (attempt,) = acme.attempts(effect_id)
            assert (attempt.outcome, attempt.late_outcome) == ("abandoned", "success")
            assert far.effects == 1


async def test_a_paused_worker_and_its_successor_make_one_effect_between_them(ledger_db):
    """KP-21: it sleeps before its first byte, is reaped, another sends; then it sends as well."""
    asleep = asyncio.Event()
    woken = asyncio.Event()
    with far_side() as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect_id = acme.ask("k1")
            send = acme.collect.sender

            async def slow(call):
                asleep.set()
                await woken.wait()
                return await send(call)

            acme.collect.sender = slow
            paused = asyncio.ensure_future(acme.executor.run_once())
            await asleep.wait()
            acme.collect.sender = send
            acme.outdate(effect_id)
            assert await acme.reaper.run_once() == 1
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.CONFIRMED
            woken.set()
            await paused
            assert len(far.requests) == 2
            assert far.effects == 1
            first, second = acme.attempts(effect_id)
            assert (first.outcome, first.late_outcome, second.outcome) == (
                "abandoned",
                "success",
                "success",
            )
            assert not acme.see(effect_id).is_contradicted


@pytest.mark.scenario("AS-69")
async def test_an_event_of_the_recipient_settles_a_doubt_without_a_call(ledger_db):
    contract = replace(lives.LOOKUP_ONLY, evidence_events=("charge.succeeded",))
    with far_side(faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1", correlation='{"charge": "c-77"}')
            other = acme.ask("k2", correlation='{"charge": "c-78"}')
            far.faults.append("lose")
            await acme.executor.run_once()
            for namespace, charge in ((lives.RECIPIENT, "c-77"), ("somebody", "c-78")):
                arrival = lives.arrival(
                    f"e-{charge}",
                    b'{"object": {"charge": "%b"}}' % charge.encode(),
                    namespace=namespace,
                    type="charge.succeeded",
                    handlers=(),
                )
                ledger_db.transact(
                    lambda conn, arrival=arrival: receipts.keep(conn, acme.desk.books, [arrival])
                )
            far.hides = True
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.CONFIRMED
            assert [row.method for row in acme.questions(effect_id)] == ["event"]
            assert acme.see(other).state is State.UNKNOWN, "another producer proves nothing"
            assert far.lookups == ["k2"]


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (Present(b"ok", recipient_ref="ch\0\ud800"), State.CONFIRMED),
        (Present("text"), State.UNKNOWN),
        (Inconclusive("\0\ud800"), State.UNKNOWN),
        (ValueError("\0\ud800"), State.UNKNOWN),
    ],
)
async def test_what_a_lookup_says_is_kept_though_no_database_could_hold_it(ledger_db, found, state):
    async def look(_ask):
        if isinstance(found, ValueError):
            raise found
        return found

    with far_side(faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=lives.LOOKUP_ONLY) as acme:
            acme.collect.looker = look
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is state
            assert len(acme.questions(effect_id)) == 1


@pytest.mark.scenario("AS-70")
async def test_what_was_accepted_is_confirmed_by_a_lookup(ledger_db):
    with far_side(faults=deque(["act-status:202"])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            assert acme.see(effect_id).state is State.ACCEPTED
            await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.CONFIRMED
            assert len(far.requests) == far.effects == 1


@pytest.mark.scenario("AS-70")
async def test_a_result_that_does_not_come_gets_a_review_by_its_age(ledger_db):
    with far_side(faults=deque(["status:202"])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            await acme.keeper.run_once()
            assert acme.reviews() == []
            acme.shift(effect_id, first_sight_at=int(acme.contract.series_max_s * 1e6) + 1)
            await acme.keeper.run_once()
            assert acme.reviews() == [("doubt", "warning")]
            assert acme.see(effect_id).state is State.ACCEPTED


@pytest.mark.scenario("AS-71")
@pytest.mark.parametrize(("fault", "state"), [("drop", "cancelled"), ("lose", "confirmed")])
async def test_a_cancel_in_doubt_seals_and_the_seal_says_what_it_was(ledger_db, fault, state):
    with far_side(faults=deque([fault])) as far:
        async with works.acme(ledger_db, far, contract=lives.SEALED) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            case = effect_actions.Case(effect_id, acme.contract, lives.DELAYS)
            action = Action(
                action_id=acme.desk.books.new_id(), actor="ann", reason="the customer called"
            )
            ledger_db.transact(
                lambda conn: effect_actions.cancel(conn, acme.desk.books, action, case)
            )
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert effect.state.value == state
            assert [row.method for row in acme.questions(effect_id)] == ["seal"]
            assert len(far.requests) == 1
            status, _ = far.act(str(effect.idempotency_key), "", "", effect.payload)
            assert status == (410 if fault == "drop" else 200)


@pytest.mark.scenario("AS-71")
async def test_a_cancel_in_doubt_that_nothing_can_seal_sends_nothing_and_asks_a_person(ledger_db):
    with far_side(faults=deque(["drop"])) as far:
        async with works.acme(ledger_db, far, contract=RESEND_ONLY) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            flag = effect_rows.update().values(is_cancel_requested=True)
            ledger_db.transact(lambda conn: conn.execute(flag))
            for _ in range(3):
                await acme.reconciler.run_once()
            assert acme.see(effect_id).state is State.UNKNOWN
            assert acme.reviews() == [("doubt", "warning")]
            assert len(far.requests) == 1


async def test_a_stopped_recipient_is_asked_and_not_sent_to(ledger_db):
    from landed.records import lanes

    with far_side(faults=deque(["drop"])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            lane = effect_lane(lives.RECIPIENT)
            ledger_db.transact(
                lambda conn: lanes.stop(conn, acme.desk.books, lane, by="ann", why="incident")
            )
            await acme.reconciler.run_once()
            assert len(far.lookups) == 1
            assert len(far.requests) == 1
            assert acme.see(effect_id).state is State.UNKNOWN


async def test_duplicates_that_are_tolerated_by_name_are_sent_again(ledger_db):
    contract = replace(
        lives.NOTHING,
        ambiguity=Ambiguity.DUPLICATES_TOLERATED,
        ambiguity_reason="a reminder mail twice does no harm",
    )
    with far_side(has_keys=False, faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            acme.shift(effect_id, first_sight_at=30 * 86_400_000_000)
            effect = await acme.settle(effect_id)
            assert effect.state is State.CONFIRMED
            assert far.effects == 2


async def test_a_refusal_after_a_declared_quiet_time_is_contractual_and_a_success_is_proven(
    ledger_db,
):
    """AT-14."""
    contract = finality(Finality.QUIESCENCE, quiescence_s=1.0)
    with far_side(has_keys=False, faults=deque(["drop", "drop"])) as far:
        async with works.acme(ledger_db, far, contract=contract) as acme:
            ids = [acme.ask(key) for key in ("k1", "k2")]
            await acme.executor.run_once()
            for effect_id in ids:
                acme.shift(effect_id, send_deadline=120_000_000)
            far.faults.append("status:402")
            await acme.settle(ids[0])
            found = {(e.state.value, e.certainty) for e in map(acme.see, ids)}
            assert found == {("refused", "contractual"), ("confirmed", "proven")}


# --- Order ------------------------------------------------------------------------------------


@pytest.mark.scenario("AS-80")
async def test_an_old_ordered_effect_is_refused_by_the_recipients_fence(ledger_db):
    with far_side(has_fence=True) as far:
        async with works.acme(
            ledger_db, far, contract=lives.FENCED, policy=OrderPolicy.LATEST_WINS
        ) as acme:
            newer = acme.ask("new", version=5)
            await acme.executor.run_once()
            older = acme.ask("old", version=3)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.CONFIRMED
            assert acme.see(older).state is State.FENCED
            assert far.values["i1"]["key"] == "new"
            assert [fence for _, fence, _ in far.requests] == ["invoice/i1/5", "invoice/i1/3"]


@pytest.mark.scenario("AS-81")
async def test_a_paused_older_version_cannot_win_once_a_newer_one_is_confirmed(ledger_db):
    """KP-22."""
    asleep, woken = asyncio.Event(), asyncio.Event()
    with far_side(has_fence=True) as far:
        async with works.acme(
            ledger_db, far, contract=lives.FENCED, policy=OrderPolicy.LATEST_WINS
        ) as acme:
            older = acme.ask("old", version=1)
            send = acme.collect.sender

            async def slow(call):
                asleep.set()
                await woken.wait()
                return await send(call)

            acme.collect.sender = slow
            paused = asyncio.ensure_future(acme.executor.run_once())
            await asleep.wait()
            acme.collect.sender = send
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.CONFIRMED
            woken.set()
            await paused
            assert acme.see(older).state is State.FENCED
            assert far.values["i1"]["key"] == "new"
            assert far.effects == 1


@pytest.mark.scenario("AS-82")
@pytest.mark.parametrize(("fault", "state"), [("lose", "confirmed"), ("drop", "fenced")])
async def test_with_a_seal_only_the_newer_effect_waits_until_the_older_is_sealed(
    ledger_db, fault, state
):
    contract = replace(lives.SEALED, key=None, lookup=None)
    with far_side(faults=deque([fault])) as far:
        async with works.acme(ledger_db, far, contract=contract, policy=OrderPolicy.STRICT) as acme:
            _by_reference(acme, far)
            older = acme.ask("old", version=1)
            await acme.executor.run_once()
            assert acme.see(older).state is State.UNKNOWN
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.PENDING, "it waits for the older one"
            await acme.reconciler.run_once()
            assert acme.see(older).state.value == state
            _due_now(ledger_db)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.CONFIRMED
            assert far.values["i1"]["key"] == "new"
            if state == "fenced":
                payload = acme.see(older).payload
                assert far.act("old", "", "", payload)[0] == 410


@pytest.mark.scenario("AS-82")
async def test_a_doubt_left_to_a_person_is_sealed_once_a_newer_effect_waits_for_it(ledger_db):
    contract = replace(lives.SEALED, key=None, lookup=None)
    with far_side(faults=deque(["drop"])) as far:
        async with works.acme(ledger_db, far, contract=contract, policy=OrderPolicy.STRICT) as acme:
            _by_reference(acme, far)
            older = acme.ask("old", version=1)
            await acme.executor.run_once()
            await acme.reconciler.run_once()
            assert acme.see(older).state is State.UNKNOWN, "nothing asks for a seal yet"
            assert acme.reviews() == [("doubt", "warning")]
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            await acme.reconciler.run_once()
            assert acme.see(older).state is State.FENCED
            _due_now(ledger_db)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.CONFIRMED


@pytest.mark.scenario("AS-82", "OG-5")
@pytest.mark.parametrize("faults", [[], ["drop"]], ids=["newer confirmed", "newer in doubt"])
async def test_with_a_seal_only_an_old_decision_that_comes_after_a_newer_one_is_sealed_instead(
    ledger_db, faults
):
    contract = replace(lives.SEALED, key=None, lookup=None)
    with far_side(faults=deque(faults)) as far:
        async with works.acme(ledger_db, far, contract=contract, policy=OrderPolicy.STRICT) as acme:
            _by_reference(acme, far)
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            older = acme.ask("old", version=1)
            await acme.executor.run_once()
            assert acme.see(older).attempt_no == 0, "the recipient would go back"
            await acme.reconciler.run_once()
            assert (acme.see(older).state, acme.see(older).attempt_no) == (State.FENCED, 0)
            assert far.act("old", "", "", acme.see(older).payload)[0] == 410
            assert acme.see(newer).state is (State.UNKNOWN if faults else State.CONFIRMED)


@pytest.mark.scenario("AS-82")
async def test_an_old_decision_is_sent_where_the_newer_one_is_known_not_to_have_acted(ledger_db):
    contract = replace(lives.SEALED, key=None, lookup=None)
    with far_side(faults=deque(["status:429"])) as far:
        async with works.acme(ledger_db, far, contract=contract, policy=OrderPolicy.STRICT) as acme:
            _by_reference(acme, far)
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.RETRY
            older = acme.ask("old", version=1)
            await acme.executor.run_once()
            assert acme.see(older).state is State.CONFIRMED


@pytest.mark.scenario("AS-85")
async def test_of_five_queued_versions_only_the_newest_is_needed(ledger_db):
    with far_side(has_fence=True) as far:
        async with works.acme(
            ledger_db, far, contract=lives.FENCED, policy=OrderPolicy.LATEST_WINS
        ) as acme:
            ids = [acme.ask(f"v{n}", version=n) for n in range(1, 6)]
            held = {piece.effect.effect_id: piece for piece in await acme.executor.take(8)}
            await acme.executor.work(held[ids[4]])  # the others wait for a slot
            for effect_id in ids[:4]:
                await acme.executor.work(held[effect_id])
            states = [acme.see(effect_id).state.value for effect_id in ids]
            assert states == ["cancelled"] * 4 + ["confirmed"]
            assert far.values["i1"]["key"] == "v5"
            assert len(far.requests) == 1


@pytest.mark.scenario("AS-86")
@pytest.mark.parametrize(("fault", "state"), [("drop", "fenced"), ("lose", "confirmed")])
async def test_behind_a_passed_fence_a_lookup_settles_the_older_effect_for_good(
    ledger_db, fault, state
):
    with far_side(has_fence=True, faults=deque([fault])) as far:
        async with works.acme(
            ledger_db, far, contract=lives.FENCED, policy=OrderPolicy.LATEST_WINS
        ) as acme:
            older = acme.ask("old", version=1)
            await acme.executor.run_once()
            newer = acme.ask("new", version=2)
            await acme.executor.run_once()
            assert acme.see(newer).state is State.CONFIRMED
            _due_now(ledger_db)
            await acme.reconciler.run_once()
            effect = acme.see(older)
            assert (effect.state.value, effect.certainty) == (state, "proven")
            assert far.values["i1"]["key"] == "new"
            assert sum(key == str(effect.idempotency_key) for key, _, _ in far.requests) == 1


# --- Deadlines --------------------------------------------------------------------------------


async def test_a_business_deadline_cancels_what_was_never_begun_and_no_doubt(ledger_db):
    with far_side(faults=deque(["lose"]), hides=True) as far:
        async with works.acme(ledger_db, far, contract=lives.LOOKUP_ONLY) as acme:
            now_us = ledger_db.transact(acme.desk.now_us)
            doubted = acme.ask("k1", not_after_us=now_us + 3_600_000_000)
            await acme.executor.run_once()
            waiting = acme.ask("k2", not_after_us=now_us + 3_600_000_000)
            await acme.keeper.run_once()
            assert acme.see(waiting).state is State.PENDING
            for effect_id in (doubted, waiting):
                acme.shift(effect_id, not_after=7_200_000_000)
            assert await acme.executor.run_once() == 1
            assert (acme.see(waiting).state, acme.see(waiting).reason) == (
                State.CANCELLED,
                "expired",
            )
            await acme.keeper.run_once()
            assert acme.see(doubted).state is State.UNKNOWN
            assert len(far.requests) == 1


async def test_the_keeper_tells_the_oldest_doubt_of_each_recipient(ledger_db):
    with far_side(faults=deque(["lose"])) as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            acme.shift(effect_id, first_sight_at=600_000_000)
            await acme.keeper.run_once()
            (fields,) = [f for name, f in acme.facts if name == "landed.unknown.age.max"]
            assert fields["recipient"] == lives.RECIPIENT
            assert fields["count"] == 1
            assert 600 <= fields["seconds"] < 900


def _due_now(db) -> None:
    """Let all waiting work be due, as time would."""
    db.transact(
        lambda conn: conn.execute(
            schedule_rows.update()
            .where(schedule_rows.c.ready_at.is_not(None))
            .values(ready_at=schedule_rows.c.ready_at - 10_000_000_000)
        )
    )


def _ready_at(db, acme) -> int:
    """When the one piece of work is due, from now."""
    with db.engine.connect() as conn:
        ready_at = conn.execute(select(schedule_rows.c.ready_at)).scalar_one()
        return ready_at - acme.desk.now_us(conn)


def _by_reference(acme, far) -> None:
    """The seal of a recipient that knows our own reference instead of a key."""

    async def seal(ask):
        with far.lock:
            found = far.answers.get(ask.effect_key)
            if found is None:
                far.sealed.add(ask.effect_key)
        return ask.sealed() if found is None else ask.already_acted(found)

    acme.collect.sealer = seal


@pytest.mark.scenario("AL-5", "AT-13")
async def test_a_review_of_a_doubt_that_is_closed_without_an_answer_is_opened_again(ledger_db):
    """Closing the review of a doubt settles nothing; only evidence does."""
    async with works.acme(ledger_db) as acme:
        effect_id = ledger_db.transact(
            lambda conn: lives.doubted(conn, ledger_db.books, "k1").effect_id
        )
        acme.shift(effect_id, first_sight_at=2 * 86_400_000_000)
        await acme.keeper.run_once()
        await acme.keeper.run_once()
        assert acme.reviews() == [("horizon_passed", "critical")], "one review, however often"

        def close(conn):
            (review,) = reviews.open_reviews(conn)
            return reviews.close_review(
                conn, ledger_db.books, review["review_id"], by="ann", note="seen"
            )

        for _ in range(2):
            assert ledger_db.transact(close)
            await acme.keeper.run_once()
            await acme.keeper.run_once()
            assert acme.reviews() == [("doubt", "warning")]


@pytest.mark.scenario("BF-6")
async def test_a_recipient_that_is_left_alone_pauses_the_runs(ledger_db):
    from landed.records import runs

    tempo = replace(works.QUICK, breaker_after=2, breaker_s=60.0, breaker_max_s=60.0)
    plan = runs.Plan(kind=runs.BACKFILL, label="old", namespace="shop", source="file")
    async with works.acme(ledger_db, tempo=tempo) as acme:
        books = acme.desk.books

        def begin(conn):
            run_id = runs.create(conn, books, plan, by="bob", why="an outage")
            runs.approve(conn, books, run_id, by="ann", plan_digest=plan.digest())
            runs.start(conn, books, run_id)
            return run_id

        run_id = ledger_db.transact(begin)

        def run():
            return ledger_db.transact(lambda conn: runs.load(conn, run_id))

        worker = Worker(agents_of(acme.desk), note=acme.desk.note)
        acme.ask_many(["k1"])
        await worker.run_until_idle(rounds_max=1)
        assert run()["state"] == "running", "one failure is no alarm"
        await worker.run_until_idle(rounds_max=3)
        assert run()["state"] == "paused"
        assert run()["paused_because"] == "acme does not answer and is left alone"
