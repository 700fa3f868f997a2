"""Runs: approved plans, one bucket, ceilings that hold to the item, and gaps that are measured."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import select, update

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.errors import ActionRefusedError, ApprovalMissingError, CeilingReachedError
from landed.records import effects, gaps, origins, receipts, runs
from landed.records.session import transact
from landed.records.tables import gap_reports
from landed.records.tables import receipts as receipt_rows
from landed.records.tables import runs as run_rows
from tests.handling import lives


def plan(**more):
    return runs.Plan(
        **{
            "kind": "backfill",
            "label": "march",
            "namespace": "shop",
            "source": "march.jsonl",
            **more,
        }
    )


def draft(db, made=None):
    return db.transact(
        lambda conn: runs.create(conn, db.books, made or plan(), by="ann", why="lost a day")
    )


def approve(db, run_id, digest, by="bob"):
    db.transact(lambda conn: runs.approve(conn, db.books, run_id, by=by, plan_digest=digest))


def running(db, made=None):
    made = made or plan()
    run_id = draft(db, made)
    approve(db, run_id, made.digest())
    db.transact(lambda conn: runs.start(conn, db.books, run_id))
    return run_id


def loaded(db, run_id):
    with db.engine.connect() as conn:
        return runs.load(conn, run_id)


def take(db, run_id, arrivals, cursor):
    def work(conn):
        taken = receipts.keep(conn, db.books, arrivals)
        runs.count_items(
            conn,
            db.books,
            run_id,
            cursor_from=cursor,
            cursor_to=cursor + len(arrivals),
            taken=taken,
        )
        return taken

    return db.transact(work)


@pytest.mark.scenario("AS-97")
def test_nothing_runs_that_nobody_approved(ledger_db):
    made = plan(is_sensitive=True)
    run_id = draft(ledger_db, made)
    with pytest.raises(ApprovalMissingError, match="draft"):
        ledger_db.transact(lambda conn: runs.start(conn, ledger_db.books, run_id))
    with pytest.raises(ApprovalMissingError, match="somebody else than ann"):
        approve(ledger_db, run_id, made.digest(), by="ann")
    with pytest.raises(ApprovalMissingError, match="look at it again"):
        approve(ledger_db, run_id, plan(label="other").digest())
    approve(ledger_db, run_id, made.digest())
    changed = plan(is_sensitive=True, source="other.jsonl")
    ledger_db.transact(lambda conn: runs.replan(conn, ledger_db.books, run_id, changed))
    with pytest.raises(ApprovalMissingError, match="draft"):
        ledger_db.transact(lambda conn: runs.start(conn, ledger_db.books, run_id))


def test_a_run_without_a_reason_is_not_written_down(ledger_db):
    with pytest.raises(ActionRefusedError, match="say why"):
        ledger_db.transact(
            lambda conn: runs.create(conn, ledger_db.books, plan(), by="ann", why=" ")
        )


@pytest.mark.scenario("AS-96")
def test_items_and_their_counters_are_one_commit(ledger_db):
    run_id = running(ledger_db)
    origin = origins.origin_of(runs.BACKFILL, run_id)
    ledger_db.transact(
        lambda conn: receipts.keep(
            conn, ledger_db.books, [lives.arrival("held"), lives.arrival("other", b"{}")]
        )
    )
    broken = QuarantinedEvent(QuarantineReason.SCHEMA_INVALID, "x")
    batch = [
        lives.arrival("held", origin=origin),
        lives.arrival("other", b'{"changed":1}', origin=origin),
        lives.arrival("new", origin=origin),
        lives.arrival("broken", origin=origin, disposition=broken),
    ]
    take(ledger_db, run_id, batch, 0)
    row = loaded(ledger_db, run_id)
    assert (
        row["cursor"],
        row["accepted"],
        row["duplicates"],
        row["quarantined"],
        row["conflicts"],
    ) == (4, 1, 1, 1, 1)
    with ledger_db.engine.connect() as conn:
        labelled = conn.execute(
            select(receipt_rows.c.event_id).where(receipt_rows.c.origin == origin)
        ).scalars()
        assert sorted(labelled) == ["broken", "new"]


@pytest.mark.scenario("AS-100")
def test_two_workers_never_take_the_same_items(ledger_db):
    run_id = running(ledger_db)
    engines = [ledger_db.open() for _ in range(2)]

    def work(engine):
        def items(conn):
            taken = receipts.keep(conn, ledger_db.books, [lives.arrival("a")])
            runs.count_items(conn, ledger_db.books, run_id, cursor_from=0, cursor_to=1, taken=taken)

        return transact(engine, items)

    results = lives.together(*(lambda engine=engine: work(engine) for engine in engines))
    assert sorted(type(r).__name__ for r in results) == ["ActionRefusedError", "NoneType"]
    assert loaded(ledger_db, run_id)["cursor"] == 1


@pytest.mark.scenario("AS-99")
@pytest.mark.parametrize(
    ("ceilings", "taken_before"),
    [
        (runs.Ceilings(events=2), 2),
        (runs.Ceilings(receipts=3), 3),
        (runs.Ceilings(quarantines=0), 5),
    ],
)
def test_the_item_that_would_exceed_a_ceiling_is_not_taken(ledger_db, ceilings, taken_before):
    run_id = running(ledger_db, plan(ceilings=ceilings))
    aside = QuarantinedEvent(QuarantineReason.SCHEMA_INVALID, "x")
    items = [lives.arrival(f"e{n}") for n in range(5)] + [lives.arrival("q", disposition=aside)]
    for cursor, item in enumerate(items):
        if cursor == taken_before:
            with pytest.raises(CeilingReachedError):
                take(ledger_db, run_id, [item], cursor)
            break
        take(ledger_db, run_id, [item], cursor)
    assert loaded(ledger_db, run_id)["cursor"] == taken_before
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn)["landed_receipts"] == taken_before
    assert ledger_db.transact(
        lambda conn: runs.pause(conn, ledger_db.books, run_id, because="ceiling")
    )


@pytest.mark.scenario("AS-99")
def test_a_ceiling_of_new_effects_holds_where_effects_are_made(ledger_db):
    run_id = running(ledger_db, plan(ceilings=runs.Ceilings(effects=3)))
    cause = effects.Cause(kind="receipt", id="r", origin=origins.origin_of("backfill", run_id))

    def ask(key):
        return ledger_db.transact(
            lambda conn: effects.request(conn, ledger_db.books, lives.intent(key, cause=cause))
        )

    for key in ("a", "b", "a", "c"):
        ask(key)
    with pytest.raises(CeilingReachedError):
        ask("d")
    assert not ask("c").is_created
    assert loaded(ledger_db, run_id)["new_effects"] == 3
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn)["landed_effects"] == 3


@pytest.mark.scenario("AS-98")
def test_the_bucket_is_shared_and_a_restart_does_not_refill_it(ledger_db):
    run_id = running(ledger_db, plan(rate_per_s=20.0))

    def tokens(wanted, engine=None):
        return transact(
            engine or ledger_db.engine,
            lambda conn: runs.take_tokens(conn, ledger_db.books, run_id, wanted=wanted),
        )

    def passed(seconds):
        ledger_db.transact(
            lambda conn: conn.execute(
                update(run_rows).values(bucket_at=run_rows.c.bucket_at - int(seconds * 1e6))
            )
        )

    assert tokens(100) == 0
    passed(0.5)
    assert 10 <= tokens(100) <= 11
    passed(3600)
    engines = [ledger_db.open() for _ in range(2)]
    both = lives.together(*(lambda engine=engine: tokens(15, engine) for engine in engines))
    assert 20 <= sum(both) <= 25
    ledger_db.transact(lambda conn: runs.pause(conn, ledger_db.books, run_id, because="x"))
    passed(3600)
    assert tokens(5) == 0
    ledger_db.transact(lambda conn: runs.start(conn, ledger_db.books, run_id))
    assert tokens(5) == 5


def test_a_run_that_is_over_is_over(ledger_db):
    run_id = running(ledger_db)
    ledger_db.transact(lambda conn: runs.complete(conn, ledger_db.books, run_id))
    for act in (
        lambda conn: runs.start(conn, ledger_db.books, run_id),
        lambda conn: runs.abort(conn, ledger_db.books, run_id, because="x"),
        lambda conn: runs.replan(conn, ledger_db.books, run_id, plan()),
    ):
        with pytest.raises(ActionRefusedError, match="is completed"):
            ledger_db.transact(act)


@pytest.mark.scenario("AS-102")
def test_gaps_are_exact_against_a_manifest_and_not_measured_without(ledger_db):
    run_id = running(ledger_db)
    books = ledger_db.books
    keep = lambda *ids: ledger_db.transact(  # noqa: E731
        lambda conn: receipts.keep(conn, books, [lives.arrival(id) for id in ids])
    )
    keep("a", "b", "extra")
    manifest = [("/shop", id) for id in ("a", "b", "c", "d", "d")]
    window = (0, 2**62)

    def measure(phase, listed=manifest):
        return ledger_db.transact(
            lambda conn: gaps.measure(
                conn,
                books,
                namespace="shop",
                manifest=listed,
                phase=phase,
                run_id=run_id,
                window_us=window,
            )
        )

    before = measure("before")
    assert (before.expected, before.held, before.missing, before.unexpected) == (
        4,
        2,
        (("/shop", "c"), ("/shop", "d")),
        1,
    )
    keep("c")
    after = measure("after")
    assert (after.missing, after.recovered) == ((("/shop", "d"),), 1)
    assert measure("after", None).verdict == "gap not measured"
    with ledger_db.engine.connect() as conn:
        reports = conn.execute(select(gap_reports.c.report)).scalars().all()
    assert [json.loads(report)["expected"] for report in reports] == [4, 4, None]
