"""Receipts: one per event, the first payload stands, and groups are all or nothing."""

from __future__ import annotations

import unicodedata

import pytest
from sqlalchemy import select

from landed.deliveries.classify import IgnoredEvent, QuarantinedEvent, QuarantineReason
from landed.records import receipts, rejections, schedule
from landed.records.receipts import Conflicting, Kept, Seen
from landed.records.tables import outbox, quarantine, receipt_conflicts, reviews
from landed.records.tables import receipts as receipt_rows
from tests.handling import lives


def keep(db, *arrivals):
    return db.transact(lambda conn: receipts.keep(conn, db.books, arrivals))


@pytest.mark.scenario("BC-21")
def test_a_batch_with_a_repeat_reports_exactly_that_one(ledger_db):
    a = {name: lives.arrival(name) for name in ("m1", "m2", "m3", "m4")}
    keep(ledger_db, a["m2"])
    first = keep(ledger_db, a["m1"], a["m2"], a["m3"])
    second = keep(ledger_db, a["m3"], a["m2"], a["m4"])
    assert [type(t) for t in first] == [Kept, Seen, Kept]
    assert [type(t) for t in second] == [Seen, Seen, Kept]
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn)["landed_receipts"] == 4


def test_one_event_twice_in_one_group_is_kept_once(ledger_db):
    taken = keep(ledger_db, lives.arrival("m1"), lives.arrival("m1"))
    assert [type(t) for t in taken] == [Kept, Seen]
    assert taken[0].receipt_id == taken[1].receipt_id


@pytest.mark.scenario("AS-02")
def test_a_repeat_writes_no_row_in_any_table(ledger_db):
    kept = keep(ledger_db, lives.arrival("m1"))[0]
    with ledger_db.engine.connect() as conn:
        before = lives.counts(conn)
    assert keep(ledger_db, lives.arrival("m1")) == [Seen(kept.receipt_id, "accepted")]
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn) == before


@pytest.mark.scenario("AS-13")
def test_two_producers_with_equal_source_and_id_are_two_events(ledger_db):
    taken = keep(ledger_db, lives.arrival("e", namespace="a"), lives.arrival("e", namespace="b"))
    assert [type(t) for t in taken] == [Kept, Kept]
    assert type(keep(ledger_db, lives.arrival("e", namespace="a"))[0]) is Seen


@pytest.mark.scenario("AS-14")
def test_identities_that_only_look_alike_are_distinct(ledger_db):
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    pairs = [
        ("a", "bc"),
        ("ab", "c"),
        ("x", "E1"),
        ("x", "e1"),
        ("x", "e1 "),
        ("x", composed),
        ("x", decomposed),
    ]
    taken = keep(ledger_db, *(lives.arrival(id, source=source) for source, id in pairs))
    assert {type(t) for t in taken} == {Kept}
    assert len({t.receipt_id for t in taken}) == len(pairs)


@pytest.mark.scenario("AS-10")
def test_an_ignored_event_is_settled_and_leaves_neither_payload_nor_work(ledger_db):
    arrival = lives.arrival("e", disposition=IgnoredEvent("its type is ignored"))
    assert keep(ledger_db, arrival)[0].disposition == "ignored"
    assert type(keep(ledger_db, arrival)[0]) is Seen
    with ledger_db.engine.connect() as conn:
        rows = lives.counts(conn)
        assert conn.execute(select(receipt_rows.c.settled_at)).scalar() is not None
    assert (rows["landed_payloads"], rows["landed_outbox"], rows["landed_schedule"]) == (0, 0, 0)


@pytest.mark.scenario("AS-11")
def test_another_payload_under_one_identity_is_kept_once_as_evidence(ledger_db):
    first = keep(ledger_db, lives.arrival("e", b'{"a":1}'))[0]
    for _ in range(100):
        again = keep(ledger_db, lives.arrival("e", b'{"a":2}'))[0]
        assert again.receipt_id == first.receipt_id
        assert isinstance(again, Conflicting)
    with ledger_db.engine.connect() as conn:
        assert [bytes(b) for b in conn.execute(select(receipt_conflicts.c.body)).scalars()] == [
            b'{"a":2}'
        ]
        assert conn.execute(select(reviews.c.kind, reviews.c.severity)).all() == [
            ("receipt_conflict", "critical")
        ]
        kinds = conn.execute(select(outbox.c.kind)).scalars().all()
    assert sorted(kinds) == ["alert", "handle"]


def test_spellings_of_one_document_are_one_payload(ledger_db):
    keep(ledger_db, lives.arrival("e", b'{"a":1,"b":"\\u00e9"}'))
    assert isinstance(
        keep(ledger_db, lives.arrival("e", '{ "b": "é", "a": 1.0 }'.encode()))[0], Seen
    )


@pytest.mark.scenario("AS-07", "AS-09")
def test_a_quarantined_event_brings_its_review_and_alert_or_nothing(ledger_db):
    aside = lives.arrival(
        "e", disposition=QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "acme.unknown.v1")
    )

    def fails(conn):
        receipts.keep(conn, ledger_db.books, [aside])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger_db.transact(fails)
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn)["landed_receipts"] == 0
    keep(ledger_db, aside)
    keep(ledger_db, aside)
    with ledger_db.engine.connect() as conn:
        row = conn.execute(select(quarantine)).one()
        rows = lives.counts(conn)
        assert conn.execute(select(outbox.c.kind)).scalars().all() == ["alert"]
    assert (row.reason, row.owner, row.decision) == ("unsupported_type", "team-billing", "open")
    assert bytes(row.payload) == b'{"cents": 1200}'
    assert rows["landed_reviews"] == rows["landed_quarantine"] == 1


@pytest.mark.scenario("AS-01")
def test_many_deliveries_of_one_event_at_once_are_one_receipt(ledger_db):
    engines = [ledger_db.open() for _ in range(8)]
    from landed.records.session import transact

    results = lives.together(
        *(
            lambda engine=engine: transact(
                engine,
                lambda conn: receipts.keep(conn, ledger_db.books, [lives.arrival("e")])[0],
            )
            for engine in engines
        )
    )
    assert sorted(type(r).__name__ for r in results) == ["Kept"] + ["Seen"] * 7
    assert len({r.receipt_id for r in results}) == 1


@pytest.mark.scenario("AS-38")
def test_handlings_with_a_serial_key_wait_for_each_other_in_receipt_order(ledger_db):
    books = ledger_db.books
    keep(ledger_db, *(lives.arrival(f"e{n}", serial_key="inv-1") for n in range(3)))
    keep(ledger_db, lives.arrival("other", serial_key="inv-2"), lives.arrival("free"))

    def claim():
        return ledger_db.transact(
            lambda conn: schedule.claim(conn, books, lane="handle", owner="w", limit=10)
        )

    first = claim()
    assert len(first) == 3
    ledger_db.transact(lambda conn: schedule.finish(conn, first))
    seqs = []
    for _ in range(2):
        (only,) = claim()
        with ledger_db.engine.connect() as conn:
            seqs.append(
                conn.execute(
                    select(outbox.c.order_seq).where(outbox.c.outbox_id == only.subject_id)
                ).scalar()
            )
        ledger_db.transact(lambda conn, only=only: schedule.finish(conn, [only]))
    assert seqs == [2, 3]
    assert claim() == []


@pytest.mark.scenario("AS-03")
def test_refusals_are_counted_by_the_hour_and_bounded(ledger_db):
    for n in range(50):
        ledger_db.transact(
            lambda conn, n=n: rejections.count(
                conn,
                ledger_db.books,
                namespace=rejections.UNVERIFIED,
                reason="unauthenticated",
                sample=f"sample {n} " + "x" * 500,
            )
        )
    with ledger_db.engine.connect() as conn:
        counted = rejections.recent(conn)
    assert sum(row["count"] for row in counted) == 50
    assert len(counted) <= 2  # an hour may turn over meanwhile
    assert all(len(row["sample"]) == rejections.SAMPLE_CHARS_MAX for row in counted)


@pytest.mark.scenario("AS-38", "SQ-9")
def test_numbers_of_a_serial_key_go_on_without_gap_from_group_to_group(ledger_db):
    for group in range(3):
        keep(
            ledger_db,
            *(lives.arrival(f"{group}-{n}", serial_key="inv-1") for n in range(group + 1)),
        )
    with ledger_db.engine.connect() as conn:
        seqs = conn.execute(select(outbox.c.order_seq).order_by(outbox.c.order_seq)).scalars()
        assert seqs.all() == [1, 2, 3, 4, 5, 6]
