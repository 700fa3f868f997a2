"""Doubt in the records: late answers, questions, people, leases, and reapers that come too late."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from landed.effects.answer import (
    Absent,
    AlreadyActed,
    Ambiguous,
    Fenced,
    Inconclusive,
    InProgress,
    NotExecuted,
    NotSent,
    Present,
    Refused,
    Sealed,
    Success,
)
from landed.effects.state import Finality, Method, State
from landed.errors import ActionRefusedError
from landed.records import (
    actions,
    attempts,
    effect_actions,
    effects,
    invariants,
    rebuild,
    receipts,
    reconcile,
    schedule,
)
from landed.records.session import transact
from landed.records.tables import attempts as attempt_rows
from landed.records.tables import effects as effect_rows
from landed.records.tables import outbox, reconciliations, reviews
from landed.records.tables import schedule as schedule_rows
from tests.handling import lives

LANE = effects.effect_lane(lives.RECIPIENT)
ASK = effects.reconcile_lane(lives.RECIPIENT)


@pytest.fixture(autouse=True)
def _invariants_hold(ledger_db):
    yield
    with ledger_db.engine.connect() as conn:
        assert invariants.check(conn, ledger_db.books) == []


def act():
    return actions.Action(action_id=uuid4(), actor="ann", reason="ticket 7")


def case(effect, contract=lives.REPLAYS):
    return effect_actions.Case(effect.effect_id, contract, lives.DELAYS)


def ask(db, key="k", contract=lives.REPLAYS, **more):
    return db.transact(
        lambda conn: effects.request(conn, db.books, lives.intent(key, contract=contract, **more))
    )


def begin(db, asked, contract=lives.REPLAYS):
    return db.transact(lambda conn: lives.begun(conn, db.books, asked.effect_id, contract))


def end(db, begun, answer, contract=lives.REPLAYS, number=None, delays=lives.DELAYS):
    return db.transact(
        lambda conn: attempts.end(
            conn, db.books, begun.effect, contract, answer, delays=delays, attempt_no=number
        )
    )


def reap(db, begun):
    def work(conn):
        conn.execute(update(effect_rows).values(send_deadline=0))
        effect = lives.seen(conn, begun.effect.effect_id)
        assert attempts.overdue(conn, db.books, limit=9) == [effect.effect_id]
        return attempts.reap(conn, db.books, effect, lives.REPLAYS, delays=lives.DELAYS)

    return db.transact(work)


def lookup(db, effect, answer, contract=lives.REPLAYS, method=Method.LOOKUP):
    return db.transact(
        lambda conn: reconcile.record_lookup(
            conn,
            db.books,
            lives.seen(conn, effect.effect_id),
            contract,
            answer,
            evidence=reconcile.Evidence(method=method),
            delays=lives.DELAYS,
        )
    )


def now(db, effect):
    with db.engine.connect() as conn:
        return lives.seen(conn, effect.effect_id)


def lanes(db):
    with db.engine.connect() as conn:
        found = conn.execute(select(schedule_rows.c.lane).where(schedule_rows.c.lane != "alert"))
        return found.scalars().all()


@pytest.mark.scenario("AS-62")
def test_a_second_attempt_that_was_not_sent_leaves_the_doubt_of_the_first(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    again = end(ledger_db, begin(ledger_db, effect), NotSent("refused"))
    after = now(ledger_db, effect)
    assert again.state is after.state is State.UNKNOWN
    assert (after.doubt_from, after.attempt_no) == (1, 2)
    assert after.first_sight_at == effect.first_sight_at


@pytest.mark.scenario("AS-53")
def test_a_lookup_that_finds_it_confirms_with_proof(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    assert effect.doubt_from == 1
    assert lookup(ledger_db, effect, Present(b"r", "ref")).state is State.CONFIRMED
    after = now(ledger_db, effect)
    assert (after.certainty, after.result, after.recipient_ref) == ("proven", b"r", "ref")
    assert lanes(ledger_db) == []


@pytest.mark.scenario("AS-63")
def test_an_absence_without_finality_changes_nothing_however_often(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    for answer in [Absent(), InProgress(), Inconclusive("503")] * 8:
        assert lookup(ledger_db, effect, answer).state is State.UNKNOWN
    with ledger_db.engine.connect() as conn:
        rows = conn.execute(select(reconciliations)).all()
        assert conn.execute(select(reviews.c.kind)).scalars().all() == ["doubt"]
    assert sum(row.repeats for row in rows) == 24
    assert len(rows) <= 13  # the useless ones are counted after the tenth
    assert lanes(ledger_db) == [ASK]
    assert lookup(ledger_db, effect, Present(b"r")).state is State.CONFIRMED


@pytest.mark.scenario("AS-65")
def test_a_final_absence_makes_it_sendable_again_under_its_own_key(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    assert lookup(ledger_db, effect, Absent(Finality.EXPIRY)).state is State.RETRY
    after = now(ledger_db, effect)
    assert (after.is_absence_final, after.doubt_from) == (True, None)
    begun = begin(ledger_db, effect)
    assert begun.effect.idempotency_key == effect.idempotency_key
    assert begun.effect.payload == effect.payload


@pytest.mark.scenario("AS-86")
def test_behind_a_passed_fence_absence_is_final_and_presence_confirms(ledger_db):
    lost = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "lost"))
    found = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "found"))
    assert lookup(ledger_db, lost, Absent(Finality.FENCE)).state is State.FENCED
    assert now(ledger_db, lost).certainty == "proven"
    assert lookup(ledger_db, found, Present(b"")).state is State.CONFIRMED


@pytest.mark.scenario("AS-67")
def test_a_success_after_reaping_confirms_and_is_marked_late(ledger_db):
    begun = begin(ledger_db, ask(ledger_db))
    assert reap(ledger_db, begun)
    assert now(ledger_db, begun.effect).reason == "abandoned"
    ended = end(ledger_db, begun, Success(b"ok", "ref", "200"))
    assert (ended.state, ended.was_late) == (State.CONFIRMED, True)
    with ledger_db.engine.connect() as conn:
        row = conn.execute(select(attempt_rows)).one()
    assert (row.outcome, row.late_outcome) == ("abandoned", "success")


def test_a_late_success_while_a_newer_attempt_is_open_decides_at_its_end(ledger_db):
    first = begin(ledger_db, ask(ledger_db))
    reap(ledger_db, first)
    second = begin(ledger_db, first.effect)
    late = end(ledger_db, first, Success(b"ok", None, "200"), number=1)
    assert (late.state, late.was_late) == (State.SENDING, True)
    assert end(ledger_db, second, Ambiguous("reset")).state is State.CONFIRMED


@pytest.mark.parametrize("answer", [Refused(b"no", "402"), Fenced("412"), NotExecuted(None, "429")])
def test_late_answers_that_are_no_success_settle_nothing(ledger_db, answer):
    begun = begin(ledger_db, ask(ledger_db))
    reap(ledger_db, begun)
    ended = end(ledger_db, begun, answer)
    assert (ended.state, ended.was_late) == (State.UNKNOWN, True)
    assert now(ledger_db, begun.effect).doubt_from == 1


@pytest.mark.scenario("AS-68")
def test_a_late_success_against_an_attested_absence_is_an_incident(ledger_db):
    begun = begin(ledger_db, ask(ledger_db))
    reap(ledger_db, begun)
    ledger_db.transact(
        lambda conn: effect_actions.attest(
            conn, ledger_db.books, act(), case(begun.effect), has_acted=False, evidence="statement"
        )
    )
    parked = now(ledger_db, begun.effect)
    assert (parked.state, parked.reason, parked.doubt_from) == (
        State.PARKED,
        "attested_absent",
        None,
    )
    assert lanes(ledger_db) == []
    end(ledger_db, begun, Success(b"ok", None, "200"))
    after = now(ledger_db, begun.effect)
    assert (after.state, after.is_contradicted) == (State.PARKED, True)
    with ledger_db.engine.connect() as conn:
        opened = conn.execute(select(reviews.c.kind, reviews.c.severity)).all()
        alerts = conn.execute(select(outbox.c.type).where(outbox.c.kind == "alert")).scalars()
        assert alerts.all() == ["contradiction"]
    assert opened == [("contradiction", "critical")]
    with pytest.raises(ActionRefusedError, match="proof that it acted"):
        ledger_db.transact(
            lambda conn: effect_actions.requeue(conn, ledger_db.books, act(), case(begun.effect))
        )
    ledger_db.transact(
        lambda conn: effect_actions.reconcile(conn, ledger_db.books, act(), case(begun.effect))
    )
    assert lookup(ledger_db, begun.effect, Present(b"ok")).state is State.CONFIRMED


def test_a_proof_against_a_settled_effect_is_an_incident_and_the_state_stands(ledger_db):
    effect = ask(ledger_db)
    begun = begin(ledger_db, effect)
    end(ledger_db, begun, Refused(b"no", "402"))
    ended = end(ledger_db, begun, Success(b"ok", None, "200"), number=1)
    assert ended.state is State.REFUSED
    assert now(ledger_db, begun.effect).is_contradicted
    lookup(ledger_db, begun.effect, Present(b"x"))
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(reviews.c.severity)).scalars().all() == ["critical"]


@pytest.mark.scenario("AS-71")
def test_cancelling_what_was_never_begun_takes_place_at_once(ledger_db):
    asked = ask(ledger_db)
    delays = replace(lives.DELAYS, settled_handlers=("paid",))
    done = ledger_db.transact(
        lambda conn: effect_actions.cancel(
            conn,
            ledger_db.books,
            act(),
            effect_actions.Case(asked.effect_id, lives.REPLAYS, delays),
        )
    )
    assert done.after == {"state": "cancelled"}
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(outbox.c.kind)).scalars().all() == ["settled"]
    assert lanes(ledger_db) == ["handle"]


@pytest.mark.scenario("AS-71")
@pytest.mark.parametrize(
    ("answer", "state"), [(Sealed(), State.CANCELLED), (AlreadyActed(b"ok"), State.CONFIRMED)]
)
def test_cancelling_in_doubt_asks_for_a_seal_and_the_seal_decides(ledger_db, answer, state):
    effect = ledger_db.transact(
        lambda conn: lives.doubted(conn, ledger_db.books, "k", lives.SEALED)
    )
    done = ledger_db.transact(
        lambda conn: effect_actions.cancel(conn, ledger_db.books, act(), case(effect, lives.SEALED))
    )
    assert done.after == {"state": "unknown", "is_cancel_requested": True}
    asked = ledger_db.transact(
        lambda conn: reconcile.record_seal(
            conn,
            ledger_db.books,
            lives.seen(conn, effect.effect_id),
            lives.SEALED,
            answer,
            is_cancelling=True,
            delays=lives.DELAYS,
        )
    )
    assert asked.state is now(ledger_db, effect).state is state


@pytest.mark.scenario("AS-71")
def test_cancelling_in_doubt_without_a_seal_says_what_would_help(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    with pytest.raises(ActionRefusedError, match="reconcile or attest"):
        ledger_db.transact(
            lambda conn: effect_actions.cancel(conn, ledger_db.books, act(), case(effect))
        )


@pytest.mark.scenario("AS-71")
@pytest.mark.parametrize(
    ("answer", "state"),
    [(NotSent("refused"), State.CANCELLED), (Success(b"", None, "200"), State.CONFIRMED)],
)
def test_cancelling_while_sending_only_flags_and_the_answer_decides(ledger_db, answer, state):
    begun = begin(ledger_db, ask(ledger_db))
    ledger_db.transact(
        lambda conn: effect_actions.cancel(conn, ledger_db.books, act(), case(begun.effect))
    )
    assert now(ledger_db, begun.effect).state is State.SENDING
    end(ledger_db, begun, answer)
    assert now(ledger_db, begun.effect).state is state


def test_a_held_effect_is_not_begun_until_it_is_released(ledger_db):
    asked = ask(ledger_db)

    def try_begin(conn):
        return attempts.begin(
            conn, ledger_db.books, lives.seen(conn, asked.effect_id), lives.REPLAYS, worker="w"
        )

    ledger_db.transact(lambda conn: effect_actions.hold(conn, ledger_db.books, act(), case(asked)))
    assert isinstance(ledger_db.transact(try_begin), attempts.NotBegun)
    ledger_db.transact(
        lambda conn: effect_actions.release(conn, ledger_db.books, act(), case(asked))
    )
    assert isinstance(ledger_db.transact(try_begin), attempts.Begun)


@pytest.mark.scenario("AS-59")
def test_a_spent_budget_parks_and_a_person_gives_a_fresh_one(ledger_db):
    contract = replace(lives.REPLAYS, non_acts_max=2)
    asked = ask(ledger_db, contract=contract)
    end(ledger_db, begin(ledger_db, asked, contract), NotSent("refused"), contract)
    assert now(ledger_db, asked).state is State.RETRY
    end(ledger_db, begin(ledger_db, asked, contract), NotExecuted(None, "429"), contract)
    parked = now(ledger_db, asked)
    assert (parked.state, parked.reason) == (State.PARKED, "budget_spent")
    ledger_db.transact(
        lambda conn: effect_actions.requeue(conn, ledger_db.books, act(), case(asked, contract))
    )
    assert lanes(ledger_db) == [LANE]
    end(ledger_db, begin(ledger_db, asked, contract), NotSent("refused"), contract)
    assert now(ledger_db, asked).state is State.RETRY


def test_a_person_who_attests_settles_it_as_attested(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    with pytest.raises(ActionRefusedError, match="another one"):
        ledger_db.transact(
            lambda conn: effect_actions.attest(
                conn,
                ledger_db.books,
                act(),
                case(effect),
                has_acted=True,
                evidence="x",
                approved_by="ann",
            )
        )
    with pytest.raises(ActionRefusedError, match="what it rests on"):
        ledger_db.transact(
            lambda conn: effect_actions.attest(
                conn, ledger_db.books, act(), case(effect), has_acted=True, evidence=" "
            )
        )
    ledger_db.transact(
        lambda conn: effect_actions.attest(
            conn, ledger_db.books, act(), case(effect), has_acted=True, evidence="statement 12"
        )
    )
    after = now(ledger_db, effect)
    assert (after.state, after.certainty) == (State.CONFIRMED, "attested")


@pytest.mark.parametrize("verb", ["requeue", "cancel", "reconcile", "hold"])
def test_nothing_is_done_to_a_settled_effect(ledger_db, verb):
    effect = ledger_db.transact(lambda conn: lives.confirmed(conn, ledger_db.books, "k"))
    with pytest.raises(ActionRefusedError, match="it is confirmed"):
        ledger_db.transact(
            lambda conn: getattr(effect_actions, verb)(conn, ledger_db.books, act(), case(effect))
        )


@pytest.mark.scenario("AS-79")
def test_a_reaper_that_read_before_the_answer_came_changes_nothing(ledger_db):
    begun = begin(ledger_db, ask(ledger_db))
    stale = now(ledger_db, begun.effect)
    end(ledger_db, begun, Success(b"ok", None, "200"))
    before = now(ledger_db, begun.effect)
    assert not ledger_db.transact(
        lambda conn: attempts.reap(conn, ledger_db.books, stale, lives.REPLAYS, delays=lives.DELAYS)
    )
    assert now(ledger_db, begun.effect) == before


@pytest.mark.scenario("AS-79")
def test_a_question_answered_after_the_effect_was_settled_changes_nothing(ledger_db):
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    lookup(ledger_db, effect, Present(b"ok"))
    before = now(ledger_db, effect)
    ledger_db.transact(
        lambda conn: reconcile.record_lookup(
            conn,
            ledger_db.books,
            effect,
            lives.REPLAYS,
            Absent(Finality.EXPIRY),
            evidence=reconcile.Evidence(method=Method.LOOKUP),
            delays=lives.DELAYS,
        )
    )
    assert now(ledger_db, effect) == before


@pytest.mark.scenario("AS-74", "BC-22")
def test_a_lease_that_ran_out_is_another_workers_and_its_old_holder_finishes_nothing(ledger_db):
    books = ledger_db.books
    ask(ledger_db)

    def claim(owner, lease_us):
        return ledger_db.transact(
            lambda conn: schedule.claim(
                conn, books, lane=LANE, owner=owner, limit=5, lease_us=lease_us
            )
        )

    (old,) = claim("old", -1)
    (new,) = claim("new", 60_000_000)
    assert claim("third", 60_000_000) == []
    assert not ledger_db.transact(lambda conn: schedule.renew(conn, books, [old]))
    assert not ledger_db.transact(lambda conn: schedule.rearm(conn, books, old, delay_us=0))
    assert ledger_db.transact(lambda conn: schedule.finish(conn, [old])) == 0
    assert lanes(ledger_db) == [LANE]
    assert ledger_db.transact(lambda conn: schedule.finish(conn, [new])) == 1
    ledger_db.transact(lambda conn: rebuild.rebuild_schedule(conn, books))


@pytest.mark.scenario("AS-75")
def test_claims_of_many_workers_never_overlap_and_keep_to_their_limit(ledger_db):
    books = ledger_db.books
    for n in range(40):
        ask(ledger_db, f"k{n}")
    engines = [ledger_db.open() for _ in range(4)]
    results = lives.together(
        *(
            lambda engine=engine: transact(
                engine,
                lambda conn: schedule.claim(conn, books, lane=LANE, owner="w", limit=7),
            )
            for engine in engines
        )
    )
    claimed = [claim.subject_id for claims in results for claim in claims]
    assert len(claimed) == len(set(claimed))
    assert {len(claims) for claims in results} <= set(range(8))
    assert sum(len(claims) for claims in results) >= 7


@pytest.mark.scenario("AS-76")
def test_an_emptied_schedule_is_rebuilt_from_what_remembers(ledger_db):
    books = ledger_db.books

    def fill(conn):
        receipts.keep(conn, books, [lives.arrival("e1"), lives.arrival("e2", serial_key="s")])
        effects.request(conn, books, lives.intent("pending"))
        lives.doubted(conn, books, "doubted")
        lives.confirmed(conn, books, "confirmed")
        asked = effects.request(conn, books, lives.intent("retry"))
        lives.attempted(conn, books, asked.effect_id, NotSent("refused"))
        asked = effects.request(conn, books, lives.intent("sending"))
        lives.begun(conn, books, asked.effect_id)

    ledger_db.transact(fill)
    columns = (
        schedule_rows.c.lane,
        schedule_rows.c.kind,
        schedule_rows.c.subject_id,
        schedule_rows.c.group_key,
        schedule_rows.c.group_seq,
    )

    def rows(conn):
        found = conn.execute(select(*columns)).all()
        return {tuple(row) for row in found if row.subject_id not in sending(conn)}

    def sending(conn):
        return (
            conn.execute(select(effect_rows.c.effect_id).where(effect_rows.c.state == "sending"))
            .scalars()
            .all()
        )

    with ledger_db.engine.connect() as conn:
        before = rows(conn)
    ledger_db.transact(lambda conn: conn.execute(schedule_rows.delete()))
    with ledger_db.engine.connect() as conn:
        broken = {b.rule for b in invariants.check(conn, books)}
    assert broken == {"I-9"}
    rebuilt = ledger_db.transact(lambda conn: rebuild.rebuild_schedule(conn, books))
    with ledger_db.engine.connect() as conn:
        assert rows(conn) == before
    assert rebuilt.put == rebuilt.total == len(before) == 5
    again = ledger_db.transact(lambda conn: rebuild.rebuild_schedule(conn, books))
    assert (again.removed, again.put) == (0, 0)


@pytest.mark.scenario("AS-79", "RN-6")
def test_an_answer_about_an_earlier_attempt_does_not_move_a_later_one(ledger_db):
    """Same state, other attempt: an absence found before the resend proves nothing after it."""
    stale = ledger_db.transact(lambda conn: lives.doubted(conn, ledger_db.books, "k"))
    end(ledger_db, begin(ledger_db, stale), Ambiguous("reset again"))
    before = now(ledger_db, stale)
    assert (before.state, before.attempt_no) == (stale.state, 2)
    ledger_db.transact(
        lambda conn: reconcile.record_lookup(
            conn,
            ledger_db.books,
            stale,
            lives.REPLAYS,
            Absent(Finality.EXPIRY),
            evidence=reconcile.Evidence(method=Method.LOOKUP),
            delays=lives.DELAYS,
        )
    )
    assert now(ledger_db, stale) == before


@pytest.mark.scenario("AS-78", "SQ-11")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_a_claim_waits_for_no_other_claim(ledger_db):
    books = ledger_db.books
    for n in range(6):
        ask(ledger_db, f"k{n}")
    with ledger_db.engine.begin() as slow, ledger_db.engine.begin() as quick:
        quick.exec_driver_sql("SET LOCAL statement_timeout = '5s'")
        first = schedule.claim(slow, books, lane=LANE, owner="slow", limit=3)
        second = schedule.claim(quick, books, lane=LANE, owner="quick", limit=3)
    assert len({claim.work_id for claim in [*first, *second]}) == 6
