"""The story of one id in order, and invariants that notice what is broken."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import delete, update

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.effects.answer import Accepted, Ambiguous, NotSent, Refused, Success
from landed.effects.state import State
from landed.records import (
    actions,
    contracts,
    effect_actions,
    effects,
    explain,
    invariants,
    receipts,
)
from landed.records.tables import attempts, outbox, quarantine, reviews, schedule
from landed.records.tables import effects as effect_rows
from landed.records.tables import receipts as receipt_rows
from tests.handling import lives


def story(db, id):
    with db.engine.connect() as conn:
        return explain.explain(conn, db.books, id)


def in_state(db, state):
    books = db.books
    answers = {
        State.RETRY: NotSent("refused"),
        State.ACCEPTED: Accepted("r", "202"),
        State.UNKNOWN: Ambiguous("reset"),
        State.CONFIRMED: Success(b"", None, "200"),
        State.REFUSED: Refused(b"", "402"),
    }

    def work(conn):
        contracts.register(conn, books, lives.RECIPIENT, lives.REPLAYS)
        asked = effects.request(conn, books, lives.intent("k"))
        if state in answers:
            lives.attempted(conn, books, asked.effect_id, answers[state])
        elif state is State.SENDING:
            lives.begun(conn, books, asked.effect_id)
        elif state is State.CANCELLED:
            effect_actions.cancel(
                conn,
                books,
                actions.Action(action_id=uuid4(), actor="ann", reason="not wanted"),
                effect_actions.Case(asked.effect_id, lives.REPLAYS, lives.DELAYS),
            )
        return lives.seen(conn, asked.effect_id)

    return db.transact(work)


@pytest.mark.scenario("AS-109")
@pytest.mark.parametrize(
    ("state", "why", "waits", "allowed"),
    [
        (State.PENDING, "never begun", "effect:acme", {"effect.cancel", "effect.hold"}),
        (State.SENDING, "may have acted", "send deadline", {"effect.cancel", "effect.hold"}),
        (State.RETRY, "not to have acted", "effect:acme", {"effect.cancel", "effect.hold"}),
        (State.ACCEPTED, "durably took it", "reconcile:acme", {"effect.attest acted"}),
        (
            State.UNKNOWN,
            "in doubt",
            "reconcile:acme",
            {"effect.attest acted", "effect.attest did-not-act", "effect.reconcile"},
        ),
        (State.CONFIRMED, "it happened, proven", "", set()),
        (State.REFUSED, "will not", "", set()),
        (State.CANCELLED, "cancelled (operator)", "", set()),
    ],
)
def test_an_effect_says_why_it_stands_there_and_what_can_happen(
    ledger_db, state, why, waits, allowed
):
    effect = in_state(ledger_db, state)
    told = story(ledger_db, effect.effect_id)
    assert told.state == state.value
    assert why in told.why
    assert waits in told.waits_for
    assert allowed <= set(told.allowed)
    assert bool(told.allowed) == bool(allowed)
    whats = [line.what for line in told.lines]
    assert whats[:2] == ["requested", "cause"]
    assert [line.at_us for line in told.lines] == sorted(line.at_us for line in told.lines)
    if state is State.UNKNOWN:
        assert any("look-up" in way for way in told.would_settle)
        assert any("same key" in way for way in told.would_settle)
    assert story(ledger_db, effect.idempotency_key) == told


def test_a_receipt_tells_of_its_quarantine_and_what_came_of_it(ledger_db):
    books = ledger_db.books
    aside = QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "new")

    def work(conn):
        kept = receipts.keep(conn, books, [lives.arrival("e", disposition=aside)])[0]
        plain = receipts.keep(conn, books, [lives.arrival("p")])[0]
        cause = effects.Cause(kind="receipt", id=str(plain.receipt_id))
        asked = effects.request(conn, books, lives.intent("k", cause=cause))
        return kept.receipt_id, plain.receipt_id, asked.effect_id

    first, second, effect_id = ledger_db.transact(work)
    told = story(ledger_db, first)
    assert told.allowed == ("quarantine.release", "quarantine.reject")
    assert told.waits_for == "a decision of team-billing"
    assert [line.what for line in told.lines][:2] == ["received", "quarantined"]
    assert story(ledger_db, second).related == (("effect", str(effect_id)),)
    assert story(ledger_db, uuid4()) is None


def broken(db):
    with db.engine.connect() as conn:
        return {found.rule for found in invariants.check(conn, db.books)}


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("I-3", lambda conn: conn.execute(delete(outbox))),
        ("I-3", lambda conn: conn.execute(delete(reviews))),
        ("I-5", lambda conn: conn.execute(delete(attempts))),
        ("I-5", lambda conn: conn.execute(update(effect_rows).values(attempt_no=7))),
        (
            "I-7",
            lambda conn: conn.execute(
                update(effect_rows)
                .where(effect_rows.c.state == "unknown")
                .values(state="confirmed")
            ),
        ),
        (
            "I-7",
            lambda conn: conn.execute(
                update(effect_rows)
                .where(effect_rows.c.state == "unknown")
                .values(state="refused", doubt_from=None)
            ),
        ),
        ("I-7", lambda conn: conn.execute(update(effect_rows).values(doubt_from=None))),
        ("I-9", lambda conn: conn.execute(delete(schedule))),
        ("I-10", lambda conn: conn.execute(update(receipt_rows).values(scrub_tier=2))),
        ("I-10", lambda conn: conn.execute(update(effect_rows).values(scrub_tier=1))),
        (
            "I-12",
            lambda conn: conn.execute(update(quarantine).values(decision="rejected")),
        ),
    ],
)
def test_each_breach_is_noticed(ledger_db, rule, damage):
    books = ledger_db.books
    aside = QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "new")

    def fill(conn):
        receipts.keep(conn, books, [lives.arrival("e"), lives.arrival("q", disposition=aside)])
        lives.doubted(conn, books, "d")
        lives.confirmed(conn, books, "c")
        effects.request(conn, books, lives.intent("p"))

    ledger_db.transact(fill)
    assert broken(ledger_db) == set()
    ledger_db.transact(damage)
    assert rule in broken(ledger_db)


def test_a_payload_that_is_not_what_was_asked_for_is_noticed(ledger_db):
    asked = ledger_db.transact(
        lambda conn: effects.request(conn, ledger_db.books, lives.intent("k"))
    )
    with ledger_db.engine.begin() as conn:
        if ledger_db.is_postgres:
            conn.exec_driver_sql("ALTER TABLE landed_effects DISABLE TRIGGER ALL")
        else:
            conn.exec_driver_sql("DROP TRIGGER landed_effects_stands")
        conn.execute(
            update(effect_rows)
            .where(effect_rows.c.effect_id == asked.effect_id)
            .values(payload=b"{}", idempotency_key=uuid4())
        )
    with ledger_db.engine.connect() as conn:
        found = invariants.check(conn, ledger_db.books)
    assert {(b.rule, b.detail.split()[1]) for b in found} == {
        ("I-6", "payload"),
        ("I-6", "idempotency"),
    }


def test_an_effects_bytes_and_key_cannot_be_changed(ledger_db):
    from sqlalchemy.exc import DBAPIError

    ledger_db.transact(lambda conn: effects.request(conn, ledger_db.books, lives.intent("k")))
    for column, value in (
        ("payload", b"{}"),
        ("idempotency_key", uuid4()),
        ("effect_key", "other"),
        ("fingerprint", b"x"),
        ("recipient", "other"),
    ):
        with pytest.raises(DBAPIError, match="stands"), ledger_db.engine.begin() as conn:
            conn.execute(update(effect_rows).values({column: value}))
    with ledger_db.engine.begin() as conn:
        conn.execute(update(effect_rows).values(payload=None, effect_key=None))


def test_contracts_come_back_as_they_were(ledger_db):
    everything = [lives.REPLAYS, lives.FENCED, lives.SEALED, lives.LOOKUP_ONLY, lives.NOTHING]
    digests = [
        ledger_db.transact(
            lambda conn, c=c: contracts.register(conn, ledger_db.books, lives.RECIPIENT, c)
        )
        for c in everything * 2
    ]
    with ledger_db.engine.connect() as conn:
        assert [contracts.load(conn, digest) for digest in digests] == everything * 2
        assert set(contracts.load_all(conn)) == set(digests)
        assert contracts.load(conn, b"x") is None
