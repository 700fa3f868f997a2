"""Quarantine and operators: one decision each, by today's declarations, and every act a row."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import select

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.deliveries.producer import EventType, Producer
from landed.deliveries.verify import HmacScheme
from landed.errors import ActionRefusedError, BeyondHorizonError
from landed.records import actions, effects, outbox, quarantine, receipts, retention
from landed.records.receipts import Seen
from landed.records.session import transact
from landed.records.tables import actions as action_rows
from landed.records.tables import outbox as outbox_rows
from landed.records.tables import payloads, reviews, schedule
from landed.records.tables import quarantine as quarantine_rows
from landed.records.tables import receipts as receipt_rows
from tests.handling import lives

SHOP = Producer(
    namespace="shop",
    authentication=HmacScheme(keys=(), header="x-signature"),
    types={"invoice.finalized": EventType(name="invoice.finalized")},
)
STRICTER = Producer(
    namespace="shop",
    authentication=SHOP.authentication,
    types={"other": EventType(name="other")},
)


def routes(_event, _data):
    return (quarantine.Route("bill"),)


def act(reason="looked at it", actor="ann", id=None):
    return actions.Action(action_id=id or uuid4(), actor=actor, reason=reason)


def set_aside(db, id="e", **more):
    arrival = lives.arrival(
        id, disposition=QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "new"), **more
    )
    return db.transact(lambda conn: receipts.keep(conn, db.books, [arrival]))[0].receipt_id


def release(db, receipt_id, action=None, producer=SHOP, engine=None):
    return transact(
        engine or db.engine,
        lambda conn: actions.release_quarantine(
            conn, db.books, action or act(), receipt_id, producer=producer, routes=routes
        ),
    )


@pytest.mark.scenario("AS-23")
def test_a_released_event_goes_the_way_of_every_other(ledger_db):
    receipt_id = set_aside(ledger_db)
    again = lives.arrival("e")
    assert isinstance(
        ledger_db.transact(lambda c: receipts.keep(c, ledger_db.books, [again]))[0], Seen
    )
    done = release(ledger_db, receipt_id)
    assert len(done.after["handlings"]) == 1
    assert isinstance(
        ledger_db.transact(lambda c: receipts.keep(c, ledger_db.books, [again]))[0], Seen
    )
    with ledger_db.engine.connect() as conn:
        row = conn.execute(select(quarantine_rows)).one()
        receipt = conn.execute(select(receipt_rows)).one()
        handling = conn.execute(select(outbox_rows).where(outbox_rows.c.kind == "handle")).one()
        assert bytes(conn.execute(select(payloads.c.body)).scalar()) == b'{"cents": 1200}'
        assert conn.execute(select(reviews.c.state)).scalars().all() == ["closed"]
        due = conn.execute(select(schedule.c.subject_id).where(schedule.c.lane == "handle"))
        assert due.scalars().all() == [handling.outbox_id]
    assert (row.decision, row.decided_by, receipt.disposition) == ("released", "ann", "released")
    assert handling.message_id == f"{receipt_id}:bill"


def test_what_todays_declarations_still_refuse_is_not_released(ledger_db):
    receipt_id = set_aside(ledger_db)
    with pytest.raises(ActionRefusedError, match="unsupported_type"):
        release(ledger_db, receipt_id, producer=STRICTER)
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(quarantine_rows.c.decision)).scalar() == "open"
        assert lives.counts(conn)["landed_actions"] == 0


def test_an_event_that_is_ignored_today_is_released_and_settled(ledger_db):
    receipt_id = set_aside(ledger_db)
    ignoring = Producer(
        namespace="shop",
        authentication=SHOP.authentication,
        types={},
        ignore=frozenset({"invoice.finalized"}),
    )
    assert release(ledger_db, receipt_id, producer=ignoring).after["handlings"] == []
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(receipt_rows.c.settled_at)).scalar() is not None


@pytest.mark.scenario("AS-88")
def test_an_event_below_the_replay_floor_is_not_released(ledger_db):
    signed = Producer(
        namespace="shop",
        authentication=SHOP.authentication,
        types=SHOP.types,
        has_signed_event_time=True,
    )
    from dataclasses import replace

    arrival = lives.arrival(
        "e", disposition=QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "new")
    )
    old = replace(arrival, event=replace(arrival.event, occurred_us=1_000))
    receipt_id = ledger_db.transact(lambda conn: receipts.keep(conn, ledger_db.books, [old]))[
        0
    ].receipt_id
    ledger_db.transact(lambda conn: retention.raise_floor(conn, signed, 2_000))
    with pytest.raises(BeyondHorizonError):
        release(ledger_db, receipt_id, producer=signed)


@pytest.mark.scenario("AS-24")
def test_two_who_release_and_one_who_rejects_make_one_decision(ledger_db):
    receipt_id = set_aside(ledger_db)
    engines = [ledger_db.open() for _ in range(3)]
    results = lives.together(
        lambda: release(ledger_db, receipt_id, act(actor="ann"), engine=engines[0]),
        lambda: release(ledger_db, receipt_id, act(actor="bob"), engine=engines[1]),
        lambda: transact(
            engines[2],
            lambda conn: actions.reject_quarantine(
                conn, ledger_db.books, act(actor="cid"), receipt_id
            ),
        ),
    )
    assert sorted(type(r).__name__ for r in results) == [
        "ActionRefusedError",
        "ActionRefusedError",
        "Done",
    ]
    with ledger_db.engine.connect() as conn:
        rows = lives.counts(conn)
        decision = conn.execute(select(quarantine_rows.c.decision)).scalar()
        handlings = conn.execute(
            select(outbox_rows.c.outbox_id).where(outbox_rows.c.kind == "handle")
        ).all()
    assert rows["landed_actions"] == 1
    assert len(handlings) == (1 if decision == "released" else 0)


@pytest.mark.scenario("AS-25")
def test_release_meets_an_effect_that_another_event_caused(ledger_db):
    receipt_id = set_aside(ledger_db)
    first = ledger_db.transact(
        lambda conn: effects.request(conn, ledger_db.books, lives.intent("invoice/1"))
    )
    release(ledger_db, receipt_id)
    again = ledger_db.transact(
        lambda conn: effects.request(
            conn,
            ledger_db.books,
            lives.intent("invoice/1", cause=effects.Cause(kind="receipt", id=str(receipt_id))),
        )
    )
    assert (again.effect_id, again.is_created) == (first.effect_id, False)
    with ledger_db.engine.connect() as conn:
        rows = lives.counts(conn)
    assert (rows["landed_effects"], rows["landed_effect_causes"]) == (1, 2)


@pytest.mark.scenario("AS-106")
def test_an_act_repeated_under_its_id_is_done_once(ledger_db):
    receipt_id = set_aside(ledger_db)
    action = act()
    first = release(ledger_db, receipt_id, action)
    second = release(ledger_db, receipt_id, action)
    assert (first.is_repeat, second.is_repeat) == (False, True)
    assert first.after == second.after
    with pytest.raises(ActionRefusedError, match="an id of its own"):
        ledger_db.transact(
            lambda conn: actions.reject_quarantine(conn, ledger_db.books, action, receipt_id)
        )
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(action_rows.c.verb)).scalars().all() == ["quarantine.release"]


@pytest.mark.scenario("AS-106")
def test_one_act_sent_many_times_at_once_is_done_once(ledger_db):
    receipt_id = set_aside(ledger_db)
    action = act()
    engines = [ledger_db.open() for _ in range(4)]
    results = lives.together(
        *(
            lambda engine=engine: release(ledger_db, receipt_id, action, engine=engine)
            for engine in engines
        )
    )
    assert sorted(r.is_repeat for r in results) == [False, True, True, True]
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn)["landed_actions"] == 1


@pytest.mark.scenario("AS-106")
@pytest.mark.parametrize(("actor", "reason"), [("ann", ""), ("ann", "  "), ("", "why")])
def test_nobody_acts_without_a_name_and_a_reason(ledger_db, actor, reason):
    receipt_id = set_aside(ledger_db)
    with pytest.raises(ActionRefusedError, match="who and why"):
        release(ledger_db, receipt_id, act(reason, actor))


def test_a_rejected_event_stays_a_duplicate_and_is_settled(ledger_db):
    receipt_id = set_aside(ledger_db)
    ledger_db.transact(
        lambda conn: actions.reject_quarantine(conn, ledger_db.books, act(), receipt_id)
    )
    again = ledger_db.transact(
        lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e")])
    )
    assert again == [Seen(receipt_id, "rejected")]
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(receipt_rows.c.settled_at)).scalar() is not None


def test_that_somebody_looked_at_a_payload_is_an_act(ledger_db):
    receipt_id = set_aside(ledger_db)
    body = ledger_db.transact(
        lambda conn: actions.reveal_payload(conn, ledger_db.books, act(), receipt_id)
    )
    assert body == b'{"cents": 1200}'
    with ledger_db.engine.connect() as conn:
        row = conn.execute(select(action_rows)).one()
    assert (row.verb, row.subject) == ("payload.reveal", f"receipt/{receipt_id}")
    assert "1200" not in row.before + row.after


def queued(db, key="k", seqs=(1, 2), other=True):
    """Two rows of one order group and one of another, in lane relay:d."""
    messages = [
        outbox.Message(
            kind="event",
            destination="d",
            message_id=f"{name}-{seq}",
            cause_kind="local",
            cause_id=None,
            type="t",
            body=b"",
            lane="relay:d",
            order_domain="o",
            order_key=name,
            order_seq=seq,
        )
        for name, seq in [*((key, seq) for seq in seqs), *([("z", 1)] if other else [])]
    ]
    return db.transact(lambda conn: outbox.add(conn, db.books, messages))


def claimed(db):
    from landed.records import schedule as scheduling

    with db.engine.begin() as conn:
        claims = scheduling.claim(conn, db.books, lane="relay:d", owner="w", limit=10)
        names = sorted(row.message_id for row in outbox.rows(conn, [c.subject_id for c in claims]))
        for one in claims:
            scheduling.rearm(conn, db.books, one, delay_us=0)
    return names


@pytest.mark.scenario("AS-39")
def test_a_parked_head_blocks_its_group_and_no_other(ledger_db):
    head, _, _ = queued(ledger_db)
    assert claimed(ledger_db) == ["k-1", "z-1"]
    ledger_db.transact(lambda conn: outbox.park(conn, ledger_db.books, head, error="500"))
    assert claimed(ledger_db) == ["z-1"]
    done = ledger_db.transact(lambda conn: actions.retry_outbox(conn, ledger_db.books, act(), head))
    assert done.after == {"state": "queued"}
    assert claimed(ledger_db) == ["k-1", "z-1"]


@pytest.mark.scenario("AS-39")
def test_under_skip_the_group_goes_on_and_the_skipped_row_never_goes_out(ledger_db):
    head, _, _ = queued(ledger_db)
    ledger_db.transact(
        lambda conn: outbox.park(conn, ledger_db.books, head, error="500", is_skipping=True)
    )
    assert claimed(ledger_db) == ["k-2", "z-1"]
    with pytest.raises(ActionRefusedError, match="it is cancelled"):
        ledger_db.transact(lambda conn: actions.retry_outbox(conn, ledger_db.books, act(), head))
    with ledger_db.engine.connect() as conn:
        (row,) = outbox.rows(conn, [head])
    assert (row.state, row.last_error) == ("cancelled", "skipped: 500")


@pytest.mark.scenario("AS-39")
def test_a_person_may_skip_a_parked_row_or_cancel_a_queued_one(ledger_db):
    head, second, other = queued(ledger_db)
    with pytest.raises(ActionRefusedError, match="a parked row can be skipped"):
        ledger_db.transact(lambda conn: actions.skip_outbox(conn, ledger_db.books, act(), head))
    ledger_db.transact(lambda conn: outbox.park(conn, ledger_db.books, head, error="500"))
    ledger_db.transact(lambda conn: actions.skip_outbox(conn, ledger_db.books, act(), head))
    assert claimed(ledger_db) == ["k-2", "z-1"]
    ledger_db.transact(lambda conn: actions.cancel_outbox(conn, ledger_db.books, act(), other))
    ledger_db.transact(lambda conn: outbox.mark_done(conn, ledger_db.books, [second], proof="ack"))
    with pytest.raises(ActionRefusedError, match="it is done"):
        ledger_db.transact(lambda conn: actions.cancel_outbox(conn, ledger_db.books, act(), second))


@pytest.mark.scenario("AS-26")
def test_a_parked_handling_keeps_no_place_on_the_schedule_until_it_is_retried(ledger_db):
    kept = ledger_db.transact(
        lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e")])
    )[0]
    with ledger_db.engine.connect() as conn:
        (handling,) = conn.execute(select(outbox_rows.c.outbox_id)).scalars().all()
    for _ in range(3):
        ledger_db.transact(lambda conn: outbox.note_failure(conn, handling, "boom"))
    ledger_db.transact(lambda conn: outbox.park(conn, ledger_db.books, handling, error="boom"))
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(schedule.c.work_id)).all() == []
    ledger_db.transact(lambda conn: actions.retry_outbox(conn, ledger_db.books, act(), handling))
    with ledger_db.engine.connect() as conn:
        (row,) = outbox.rows(conn, [handling])
        assert conn.execute(select(schedule.c.lane)).scalars().all() == ["handle"]
    assert (row.state, row.tries, row.cause_id) == ("queued", 0, kept.receipt_id)
