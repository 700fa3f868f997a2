"""Forgetting: only what is settled and old on both clocks, in place, and repeats stay repeats."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Flag
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.deliveries.producer import Producer
from landed.deliveries.verify import HmacScheme
from landed.effects.answer import Ambiguous, Present, Success
from landed.effects.state import Method, State
from landed.errors import ActionRefusedError
from landed.records import (
    actions,
    attempts,
    effects,
    ingest,
    invariants,
    outbox,
    receipts,
    reconcile,
    retention,
    reviews,
)
from landed.records.receipts import Seen
from landed.records.session import transact
from landed.records.tables import effects as effect_rows
from landed.records.tables import ingest_clock, metadata, payloads, scrub_reports
from landed.records.tables import outbox as outbox_rows
from landed.records.tables import receipts as receipt_rows
from tests.handling import lives

DAY = retention.DAY_US
POLICY = retention.Policy(
    payload_us=1 * DAY, receipts_us={"shop": 5 * DAY}, effects_us={lives.RECIPIENT: 5 * DAY}
)


def aged(db, *, wall_us, received_us):
    """Make everything settled so old on each of the two clocks."""

    def work(conn):
        db.books.at(conn)
        conn.execute(ingest_clock.delete())
        conn.execute(ingest_clock.insert().values(id=1, ticked_us=received_us, beat_at=0))
        for table in (receipt_rows, effect_rows):
            conn.execute(
                update(table)
                .where(table.c.settled_at.is_not(None))
                .values(settled_at=db.books.at(conn) - wall_us, settled_mark=0)
            )

    db.transact(work)


def handled_event(db, id="e", key="invoice/1", **more):
    """An event, handled, whose one effect is confirmed."""

    def work(conn):
        kept = receipts.keep(conn, db.books, [lives.arrival(id, **more)])[0]
        cause = effects.Cause(kind="receipt", id=str(kept.receipt_id))
        asked = effects.request(conn, db.books, lives.intent(key, cause=cause))
        lives.attempted(conn, db.books, asked.effect_id, Success(b"ok", "ref-7", "200"))
        rows = conn.execute(
            select(outbox_rows.c.outbox_id).where(outbox_rows.c.cause_id == kept.receipt_id)
        )
        done = rows.scalars().all()
        outbox.mark_done(conn, db.books, done)
        conn.execute(
            metadata.tables["landed_schedule"]
            .delete()
            .where(metadata.tables["landed_schedule"].c.subject_id.in_(done))
        )
        return kept.receipt_id, asked.effect_id

    return db.transact(work)


def settle(db):
    return db.transact(lambda conn: retention.settle_receipts(conn, db.books))


def scrub(db, policy=POLICY):
    return db.transact(lambda conn: retention.scrub_due(conn, db.books, policy))


def tiers(db):
    with db.engine.connect() as conn:
        return (
            conn.execute(select(receipt_rows.c.scrub_tier)).scalars().all(),
            conn.execute(select(effect_rows.c.scrub_tier)).scalars().all(),
        )


@pytest.mark.scenario("AS-87")
def test_a_repeat_is_a_repeat_at_every_tier(ledger_db):
    receipt_id, effect_id = handled_event(ledger_db)
    assert settle(ledger_db) == 1
    assert settle(ledger_db) == 0
    for age, tier in ((0, 0), (2 * DAY, 1), (6 * DAY, 2)):
        aged(ledger_db, wall_us=age, received_us=age)
        scrub(ledger_db)
        if tier == 2:
            scrub(ledger_db)
        assert tiers(ledger_db) == ([tier], [tier])
        again = ledger_db.transact(
            lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e")])
        )
        assert again == [Seen(receipt_id, "accepted")]
        asked = ledger_db.transact(
            lambda conn: effects.request(conn, ledger_db.books, lives.intent("invoice/1"))
        )
        assert (asked.effect_id, asked.is_created, asked.state) == (
            effect_id,
            False,
            State.CONFIRMED,
        )
    with ledger_db.engine.connect() as conn:
        effect = lives.seen(conn, effect_id)
        receipt = conn.execute(select(receipt_rows)).one()
        body = conn.execute(select(payloads.c.body)).scalar()
        assert invariants.check(conn, ledger_db.books) == []
    assert (body, receipt.source, receipt.event_id) == (None, None, None)
    assert (effect.payload, effect.result, effect.effect_key) == (None, None, None)
    assert effect.result_digest is not None
    assert effect.recipient_ref.startswith("sha256:")


def test_a_late_answer_is_still_compared_after_the_scrub(ledger_db):
    _, effect_id = handled_event(ledger_db)
    settle(ledger_db)
    aged(ledger_db, wall_us=6 * DAY, received_us=6 * DAY)
    scrub(ledger_db)
    scrub(ledger_db)

    def late(result):
        def work(conn):
            effect = lives.seen(conn, effect_id)
            return attempts.end(
                conn,
                ledger_db.books,
                effect,
                lives.REPLAYS,
                Success(result, None, "200"),
                delays=lives.DELAYS,
                attempt_no=1,
            )

        ledger_db.transact(work)
        with ledger_db.engine.connect() as conn:
            return lives.seen(conn, effect_id).is_contradicted

    assert not late(b"ok")
    assert late(b"another result")


@pytest.mark.scenario("AS-91")
def test_downtime_does_not_use_up_the_time_in_which_late_deliveries_may_come(ledger_db):
    handled_event(ledger_db)
    settle(ledger_db)
    aged(ledger_db, wall_us=10 * DAY, received_us=0)
    assert scrub(ledger_db).total == 0
    aged(ledger_db, wall_us=0, received_us=10 * DAY)
    assert scrub(ledger_db).total == 0
    aged(ledger_db, wall_us=10 * DAY, received_us=10 * DAY)
    assert scrub(ledger_db).total == 2


@pytest.mark.scenario("AS-91")
def test_the_ingest_clock_stands_still_while_nobody_beats(ledger_db):
    def beat_after(passed_us):
        def work(conn):
            conn.execute(update(ingest_clock).values(beat_at=ledger_db.books.at(conn) - passed_us))
            ingest.beat(conn, ledger_db.books)
            return conn.execute(select(ingest_clock.c.ticked_us)).scalar()

        return ledger_db.transact(work)

    ledger_db.transact(lambda conn: ingest.beat(conn, ledger_db.books))
    ticked = beat_after(10_000_000)
    assert 10_000_000 <= ticked < 20_000_000
    assert beat_after(10 * DAY) == ticked
    assert beat_after(-5_000_000) == ticked


@pytest.mark.scenario("AS-93")
def test_whatever_somebody_still_needs_is_not_scrubbed_at_any_age(ledger_db):
    books = ledger_db.books
    held = handled_event(ledger_db, "held", "held")
    reviewed = handled_event(ledger_db, "reviewed", "reviewed")
    contradicted = handled_event(ledger_db, "contradicted", "contradicted")

    def more(conn):
        receipts.keep(conn, books, [lives.arrival("unhandled")])
        receipts.keep(
            conn,
            books,
            [
                lives.arrival(
                    "aside", disposition=QuarantinedEvent(QuarantineReason.SCHEMA_INVALID, "x")
                )
            ],
        )
        doubted = receipts.keep(conn, books, [lives.arrival("doubted", handlers=())])[0]
        cause = effects.Cause(kind="receipt", id=str(doubted.receipt_id))
        asked = effects.request(conn, books, lives.intent("doubted", cause=cause))
        lives.attempted(conn, books, asked.effect_id, Ambiguous("reset"))
        conn.execute(
            update(effect_rows)
            .where(effect_rows.c.effect_id == held[1])
            .values(held_by="ann", held_reason="look")
        )
        for kind, id in (("receipt", reviewed[0]), ("effect", reviewed[1])):
            reviews.open_review(
                conn,
                books,
                reviews.Review(
                    kind="look",
                    subject_kind=kind,
                    subject_id=str(id),
                    severity="warning",
                    owner="ann",
                    note="",
                ),
            )
        effect = lives.seen(conn, contradicted[1])
        attempts.settle.contradict(conn, books, effect, "it acted")

    ledger_db.transact(more)
    settle(ledger_db)
    aged(ledger_db, wall_us=400 * DAY, received_us=400 * DAY)
    for _ in range(3):
        scrub(ledger_db)
    with ledger_db.engine.connect() as conn:
        kept = (
            conn.execute(select(receipt_rows.c.event_id).where(receipt_rows.c.scrub_tier == 0))
            .scalars()
            .all()
        )
        keys = (
            conn.execute(select(effect_rows.c.effect_key).where(effect_rows.c.scrub_tier == 0))
            .scalars()
            .all()
        )
    assert sorted(kept) == ["aside", "doubted", "reviewed", "unhandled"]
    assert sorted(keys) == ["contradicted", "doubted", "held", "reviewed"]


@pytest.mark.scenario("AS-93")
def test_an_unknown_horizon_lets_payloads_go_and_nothing_else(ledger_db):
    handled_event(ledger_db)
    settle(ledger_db)
    aged(ledger_db, wall_us=4000 * DAY, received_us=4000 * DAY)
    endless = replace(POLICY, receipts_us={"shop": None}, effects_us={})
    for _ in range(3):
        scrub(ledger_db, endless)
    assert tiers(ledger_db) == ([1], [1])


def test_every_scrub_leaves_a_report_that_names_its_policy(ledger_db):
    handled_event(ledger_db)
    settle(ledger_db)
    aged(ledger_db, wall_us=6 * DAY, received_us=6 * DAY)
    first, second, third = (scrub(ledger_db) for _ in range(3))
    assert (first.total, second.total, third.total) == (2, 2, 0)
    with ledger_db.engine.connect() as conn:
        rows = conn.execute(select(scrub_reports)).all()
    assert len(rows) == 2
    assert {row.policy for row in rows} == {POLICY.declaration().decode()}


@pytest.mark.scenario("AS-92")
def test_a_scrub_to_the_last_tier_while_the_event_keeps_coming(ledger_db):
    receipt_id, _ = handled_event(ledger_db)
    settle(ledger_db)
    aged(ledger_db, wall_us=6 * DAY, received_us=6 * DAY)
    done = Flag()
    sender, keeper = ledger_db.open(), ledger_db.open()

    def deliver():
        seen = []
        while not done.is_set() or len(seen) < 20:
            seen += transact(
                sender,
                lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e")]),
            )
        return seen

    def sweep():
        try:
            return [
                transact(keeper, lambda c: retention.scrub_due(c, ledger_db.books, POLICY)).total
                for _ in range(3)
            ]
        finally:
            done.set()

    seen, swept = lives.together(deliver, sweep)
    assert swept == [2, 2, 0]
    assert set(seen) == {Seen(receipt_id, "accepted")}


SHOP = Producer(namespace="shop", authentication=HmacScheme(keys=(), header="x"), types={})


@pytest.mark.scenario("AS-94")
def test_digests_of_a_producer_without_a_signed_event_time_stay(ledger_db):
    with pytest.raises(ActionRefusedError, match="signs no event time"):
        ledger_db.transact(lambda conn: retention.raise_floor(conn, SHOP, 10))
    signed = replace(SHOP, has_signed_event_time=True)
    ledger_db.transact(lambda conn: retention.raise_floor(conn, signed, 10))
    with pytest.raises(ActionRefusedError, match="never sinks"):
        ledger_db.transact(lambda conn: retention.raise_floor(conn, signed, 9))
    assert ledger_db.transact(lambda conn: retention.replay_floor(conn, "shop")) == 10


@pytest.mark.scenario("AS-95")
def test_erasure_leaves_no_readable_trace_of_a_subject(ledger_db):
    secret = "erika-mustermann"
    books = ledger_db.books
    arrival = lives.arrival(f"evt-{secret}", f'{{"name":"{secret}"}}'.encode())
    arrival = replace(
        arrival,
        event=replace(arrival.event, subject=secret),
        headers=f'{{"x-user":"{secret}"}}',
        transport_ref=secret,
    )
    aside = replace(
        arrival,
        event=replace(arrival.event, id=f"aside-{secret}"),
        disposition=QuarantinedEvent(QuarantineReason.SCHEMA_INVALID, f"{secret} is no number"),
    )

    def work(conn):
        kept, set_aside = receipts.keep(conn, books, [arrival, aside])
        cause = effects.Cause(kind="receipt", id=str(kept.receipt_id))
        asked = effects.request(
            conn,
            books,
            lives.intent(
                f"user/{secret}",
                {"name": secret},
                cause=cause,
                correlation=f'{{"user":"{secret}"}}',
            ),
        )
        lives.attempted(conn, books, asked.effect_id, Ambiguous(f"{secret} hung up"))
        reconcile.record_lookup(
            conn,
            books,
            lives.seen(conn, asked.effect_id),
            lives.REPLAYS,
            Present(secret.encode(), secret),
            evidence=reconcile.Evidence(method=Method.LOOKUP, text=secret),
            delays=lives.DELAYS,
        )
        outbox.add(
            conn,
            books,
            [
                outbox.Message(
                    kind="event",
                    destination="d",
                    message_id="m",
                    cause_kind="receipt",
                    cause_id=kept.receipt_id,
                    type="t",
                    body=secret.encode(),
                    lane="relay:d",
                    headers=f'{{"h":"{secret}"}}',
                )
            ],
        )
        actions.reject_quarantine(
            conn,
            books,
            actions.Action(action_id=uuid4(), actor="ann", reason="not ours"),
            set_aside.receipt_id,
        )
        return kept.receipt_id, asked.effect_id

    receipt_id, effect_id = ledger_db.transact(work)

    def traces():
        with ledger_db.engine.connect() as conn:
            return sorted(
                f"{name}.{column}"
                for name, table in metadata.tables.items()
                for row in conn.execute(select(table)).mappings()
                for column, value in row.items()
                if secret in str(value)
                or secret.encode() in (value if isinstance(value, bytes) else b"")
            )

    assert len(traces()) > 12
    with pytest.raises(ActionRefusedError, match="not settled"):
        ledger_db.transact(
            lambda conn: retention.erase(conn, books, namespace="shop", subject=secret)
        )

    def finish(conn):
        rows = conn.execute(
            select(outbox_rows.c.outbox_id).where(outbox_rows.c.cause_id == receipt_id)
        )
        outbox.mark_done(conn, books, rows.scalars().all())
        alerts = conn.execute(select(outbox_rows.c.outbox_id).where(outbox_rows.c.kind == "alert"))
        outbox.mark_done(conn, books, alerts.scalars().all())

    ledger_db.transact(finish)
    settle(ledger_db)
    erased = ledger_db.transact(
        lambda conn: retention.erase(conn, books, namespace="shop", subject=secret)
    )
    assert (len(erased[0]), erased[1]) == (2, [effect_id])
    assert traces() == []
    again = ledger_db.transact(lambda conn: receipts.keep(conn, books, [arrival, aside]))
    assert [type(t) for t in again] == [Seen, Seen]
