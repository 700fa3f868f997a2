"""User handlers: one transaction each with their done-mark, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from landed.deliveries.event import Event, IdentityRule
from landed.effects.answer import Success
from landed.errors import RetryTransactionError, StorageError
from landed.ledger import Order
from landed.records import reviews, runs
from landed.records.origins import origin_of
from landed.records.outbox import OUTBOX
from landed.records.schedule import Work, put
from landed.records.settle import Delays
from landed.records.tables import effect_causes, effects, schedule
from landed.testing import no_sockets
from landed.workers import handling
from landed.workers.handling import Pace
from tests.handling.conftest import LedgerDb
from tests.handling.cut_short import cut_short, grow_by_ten
from tests.handling.ledgers import ACME, QUICK, Charge, Invoice, Shop, bill_row, bills, shop
from tests.handling.lives import attempted

CHARGE = Charge("i1", 1200)


class Killed(BaseException):
    """The process ends here, as far as this test is concerned."""


def killing(point: str) -> Any:
    def note(name, fields):
        if name == "kp" and fields["point"] == point:
            raise Killed(point)

    return note


def expire_leases(made: Shop) -> None:
    """As if every holder had been gone for long."""
    with made.engine.begin() as conn:
        conn.execute(update(schedule).values(lease_until=1, ready_at=1))


def work(made: Shop, **agent: Any) -> int:
    return asyncio.run(made.agent(**agent).run_once())


def row_of(made: Shop, kind: str = "handle") -> Any:
    (row,) = [row for row in made.outbox() if row.kind == kind]
    return row


def open_kinds(made: Shop) -> list[str]:
    with made.engine.connect() as conn:
        return [review["kind"] for review in reviews.open_reviews(conn)]


def request_and_bill(made: Shop, tx: Any, event: Any) -> None:
    bill_row(tx, event)
    tx.request(made.collect, f"{event.data.id}/collect", CHARGE)
    tx.publish("billing.opened", {"id": event.data.id}, key=event.data.id)


# --- Once, together ------------------------------------------------------------------------------


def test_a_handlers_rows_effects_and_done_mark_are_kept_together(ledger_db: LedgerDb):
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:
        receipt = made.receive("i1")
        assert work(made) == 1
        assert made.billed() == {"i1": 1200}
        assert row_of(made).state == "done"
        assert row_of(made, "event").order_key == "i1"
        with made.engine.connect() as conn:
            cause = conn.execute(select(effect_causes)).mappings().one()
            assert (cause["cause_kind"], cause["cause_id"], cause["handler"]) == (
                "receipt",
                str(receipt.receipt_id),
                "bill",
            )
            lanes = conn.execute(select(schedule.c.lane).order_by("lane")).scalars().all()
            assert list(lanes) == ["effect:acme", "relay:bus"], "its own work is off the schedule"
        assert work(made) == 0
        assert [event.data.id for event in made.seen] == ["i1"]


@pytest.mark.scenario("AS-45")
def test_two_events_that_mean_one_effect_share_it(ledger_db: LedgerDb):
    def handler(tx, event):
        tx.request(made.collect, f"{event.data.id}/collect", CHARGE)

    with shop(ledger_db, handler) as made:
        made.receive("e1", b'{"id":"i1","cents":1200}')
        made.receive("e2", b'{"cents":1200,"id":"i1"}')
        work(made)
        with made.engine.connect() as conn:
            assert len(conn.execute(select(effects)).all()) == 1
            assert len(conn.execute(select(effect_causes)).all()) == 2


@pytest.mark.scenario("AS-46")
def test_one_event_may_ask_for_three_effects_and_its_redelivery_adds_none(ledger_db: LedgerDb):
    def handler(tx, event):
        for what in ("collect", "notify", "file"):
            tx.request(made.collect, f"{event.data.id}/{what}", CHARGE)

    with shop(ledger_db, handler) as made:
        for _ in range(2):
            made.receive("i1")
            work(made)
        with made.engine.connect() as conn:
            assert len(conn.execute(select(effects)).all()) == 3
        assert len(made.seen) == 1


@pytest.mark.scenario("AS-27", "KP-7")
def test_a_handler_that_is_killed_before_its_commit_leaves_nothing_and_runs_again(
    ledger_db: LedgerDb,
):
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:
        made.receive("i1")
        with pytest.raises(Killed):
            work(made, note=killing("KP-7"))
        assert made.billed() == {}
        assert row_of(made).state == "queued"
        expire_leases(made)
        assert work(made) == 1
        assert made.billed() == {"i1": 1200}


@pytest.mark.scenario("AS-28", "KP-8")
def test_work_that_comes_up_again_after_its_commit_finds_the_done_mark(ledger_db: LedgerDb):
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:
        made.receive("i1")
        with pytest.raises(Killed):
            work(made, note=killing("KP-8"))
        again = Work("handle", OUTBOX, row_of(made).outbox_id)
        made.db.transact(lambda conn: put(conn, made.books, [again]))
        assert work(made) == 0
        with made.engine.connect() as conn:
            lanes = list(conn.execute(select(schedule.c.lane)).scalars())
            assert "handle" not in lanes, "it is off the schedule again"
        assert len(made.seen) == 1, "the handler does not run again"
        assert made.billed() == {"i1": 1200}
        with made.engine.connect() as conn:
            assert len(conn.execute(select(effects)).all()) == 1


@pytest.mark.scenario("HN-2", "CL-3")
def test_two_workers_that_hold_one_event_run_its_handler_once(ledger_db: LedgerDb):
    """The first one's lease ended while it was alive."""
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:
        made.receive("i1")

        async def both() -> None:
            first, second = made.agent(owner="w1"), made.agent(owner="w2")
            (mine,) = await first.take(9)
            expire_leases(made)
            (yours,) = await second.take(9)
            assert mine[0].row.outbox_id == yours[0].row.outbox_id
            await asyncio.gather(first.work(mine), second.work(yours))

        asyncio.run(both())
        assert len(made.seen) == 1
        assert made.billed() == {"i1": 1200}
        assert (row_of(made).state, row_of(made).tries) == ("done", 0)


@pytest.mark.scenario("AS-28", "KP-8")
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_up_and_not_counted(
    ledger_db: LedgerDb, monkeypatch, is_kept: bool
):
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:
        made.receive("i1")
        real = handling.transact

        def losing(engine, work, **options):
            if not isinstance(work, partial):  # only TX-HANDLE is one
                return real(engine, work, **options)
            if is_kept:
                real(engine, work, **options)
            else:
                with suppress(Killed), engine.begin() as conn:
                    work(conn)
                    raise Killed
            raise StorageError("the connection died at COMMIT", is_outcome_known=False)

        monkeypatch.setattr(handling, "transact", losing)
        work(made)
        monkeypatch.undo()
        assert made.billed() == ({"i1": 1200} if is_kept else {})
        expire_leases(made)
        work(made)
        assert made.billed() == {"i1": 1200}
        assert (row_of(made).state, row_of(made).tries) == ("done", 0)


@pytest.mark.scenario("BC-21", "KP-7", "KP-8")
@pytest.mark.parametrize("point", ["KP-7", "KP-8"])
def test_a_row_grows_by_ten_exactly_once_though_the_process_is_killed(
    ledger_db: LedgerDb, point: str
):
    """A real process, killed by the system after its statement, before and after the commit."""

    def grow(tx, _event):
        tx.conn.execute(update(bills).values(cents=bills.c.cents + 10))

    with shop(ledger_db, grow) as made:
        with made.engine.begin() as conn:
            conn.execute(insert(bills).values(id="row", cents=0))
        made.receive("m5")
        made.engine.dispose()
        assert cut_short(grow_by_ten, ledger_db.url, point, at=-1), f"{point} was never passed"
        assert made.billed() == {"row": 0 if point == "KP-7" else 10}
        expire_leases(made)
        work(made)
        assert made.billed() == {"row": 10}
        assert row_of(made).state == "done"


@pytest.mark.scenario("HN-3")
def test_one_handlers_failure_does_not_run_another_again(ledger_db: LedgerDb):
    others: list[str] = []

    def declare(made):
        made.ledger.on(made.producer, "invoice.finalized", name="tell")(
            lambda _tx, event: others.append(event.data.id)
        )

    def failing(_tx, _event):
        raise ValueError("not today")

    with shop(ledger_db, failing, declare=declare) as made:
        made.receive("i1")
        for _ in range(3):
            work(made)
        assert others == ["i1"]
        states = {row.destination: row.state for row in made.outbox() if row.kind == "handle"}
        assert states == {"handler:bill": "parked", "handler:tell": "done"}


def test_a_handlers_orm_session_writes_in_its_transaction(ledger_db: LedgerDb):
    class Base(DeclarativeBase):
        pass

    class Bill(Base):
        __tablename__ = "user_bills"
        id: Mapped[str] = mapped_column(primary_key=True)
        cents: Mapped[int]

    def handler(tx, event):
        tx.session.add(Bill(id=event.data.id, cents=event.data.cents))
        tx.session.commit()
        if len(made.seen) == 1:
            raise ValueError("after the session's own commit")

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(made)
        assert made.billed() == {}, "a session's commit commits nothing"
        work(made)
        assert made.billed() == {"i1": 1200}


# --- Failures ------------------------------------------------------------------------------------


def test_a_handler_that_fails_comes_again_and_its_writes_are_present_once(ledger_db: LedgerDb):
    def handler(tx, event):
        bill_row(tx, event)
        if len(made.seen) < 3:
            raise ValueError(f"not ready ({len(made.seen)})")

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(made)
        assert (row_of(made).tries, row_of(made).last_error) == (1, "ValueError: not ready (1)")
        assert made.billed() == {}
        work(made)
        work(made)
        assert made.billed() == {"i1": 1200}
        assert (row_of(made).state, row_of(made).last_error) == ("done", None)


def test_a_failed_handler_waits_longer_each_time(ledger_db: LedgerDb):
    def handler(_tx, _event):
        raise ValueError("no")

    slow = Pace(backoff_us=10_000_000, backoff_max_us=25_000_000, tries_max=9)
    with shop(ledger_db, handler) as made:
        made.receive("i1")
        longest = []
        for _ in range(5):
            with made.engine.connect() as conn:
                before = conn.execute(select(made.books.at(conn))).scalar_one()
            work(made, pace=slow)
            with made.engine.connect() as conn:
                ready = conn.execute(select(schedule.c.ready_at)).scalar_one()
            longest.append(ready - before)
            expire_leases(made)
        assert 0 <= longest[0] < 11_000_000 + 5_000_000
        assert all(delay < 25_000_000 + 5_000_000 for delay in longest)
        assert max(longest) > 1_000_000, "it waits"


@pytest.mark.scenario("QU-8")
def test_a_handler_that_always_fails_is_set_aside_with_review_and_alert(ledger_db: LedgerDb):
    def handler(tx, event):
        if event.id == "bad":
            raise ValueError("poison")
        bill_row(tx, event)

    with shop(ledger_db, handler) as made:
        made.receive("bad")
        for _ in range(QUICK.tries_max):
            assert work(made) == 1
        assert row_of(made).state == "parked"
        assert row_of(made).last_error == "handler_poison: ValueError: poison"
        assert open_kinds(made) == ["handler_poison"]
        assert row_of(made, "alert").type == "handler_poison"
        assert work(made) == 0, "it is not tried again by itself"
        made.receive("good")
        work(made)
        assert made.billed() == {"good": 1200}


@pytest.mark.scenario("QU-8")
def test_a_failure_whose_text_no_database_could_hold_is_counted_and_set_aside(ledger_db: LedgerDb):
    def handler(tx, event):
        raise ValueError("no customer '\0\ud800'")

    with shop(ledger_db, handler) as made:
        made.receive("bad")
        for _ in range(QUICK.tries_max):
            assert work(made) == 1
        assert row_of(made).state == "parked"
        assert row_of(made).last_error == "handler_poison: ValueError: no customer '??'"
        assert open_kinds(made) == ["handler_poison"]


def mismatching(made: Shop, tx: Any, event: Any) -> None:
    bill_row(tx, event)
    tx.request(made.collect, "known", Charge("i1", 1300))


def conflicting(made: Shop, tx: Any, event: Any) -> None:
    bill_row(tx, event)
    tx.request(made.ordered, "other", CHARGE, order=Order("i1", version=1))


@pytest.mark.scenario("AS-47", "HN-5")
@pytest.mark.parametrize(
    ("handler", "kind"), [(mismatching, "effect_payload_conflict"), (conflicting, "order_conflict")]
)
def test_a_conflict_of_effects_is_set_aside_at_once(ledger_db: LedgerDb, handler, kind: str):
    with shop(ledger_db, lambda tx, event: handler(made, tx, event)) as made:
        with made.ledger.begin() as tx:
            tx.request(made.collect, "known", CHARGE)
            tx.request(made.ordered, "first", CHARGE, order=Order("i1", version=1))
        made.receive("e1")
        work(made)
        assert row_of(made).state == "parked"
        assert row_of(made).last_error.startswith(f"{kind}: ")
        assert open_kinds(made) == [kind]
        assert made.billed() == {}
        assert work(made) == 0


def returns_a_number(_tx, _event):
    return 5


def returns_a_coroutine(_tx, _event):
    return asyncio.sleep(0)


def exits(_tx, _event):
    raise SystemExit(3)


def is_cancelled(_tx, _event):
    raise asyncio.CancelledError("stop")


def commits(tx, event):
    bill_row(tx, event)
    tx.conn.rollback()


def breaks_the_transaction(tx, event):
    """Swallows a database error; PostgreSQL then keeps nothing, and would say so to nobody."""
    bill_row(tx, event)
    with suppress(DBAPIError):
        bill_row(tx, event)
    if not tx.conn.dialect.name.startswith("postgres"):
        raise ValueError("SQLite goes on after a failed statement")


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (returns_a_number, "returned int"),
        (returns_a_coroutine, "returned coroutine"),
        (exits, "SystemExit: 3"),
        (is_cancelled, "CancelledError: stop"),
        (commits, "closed transaction"),
        (breaks_the_transaction, ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_event_stays_with_a_reason_whatever_its_handler_does(
    ledger_db: LedgerDb, handler, reason: str
):
    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(made)
        row = row_of(made)
        assert (row.state, row.tries) == ("queued", 1)
        assert row.last_error
        assert reason in row.last_error
        assert made.billed() == {}


@pytest.mark.scenario("HN-6")
def test_a_serialization_failure_runs_the_handler_again_at_once_and_counts_no_try(
    ledger_db: LedgerDb,
):
    def handler(tx, event):
        bill_row(tx, event)
        if len(made.seen) < 3:
            raise RetryTransactionError("run it again")

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        assert work(made) == 1
        assert len(made.seen) == 3
        assert made.billed() == {"i1": 1200}
        assert row_of(made).tries == 0


def test_a_handler_that_is_no_longer_declared_keeps_its_events(ledger_db: LedgerDb):
    def declare(made):
        made.ledger.on(made.producer, "invoice.finalized", name="gone")(lambda _tx, _event: None)

    with shop(ledger_db, declare=declare) as before:
        before.receive("i1")
    with shop(ledger_db) as made:
        assert work(made) == 1
        rows = {row.destination: row for row in made.outbox()}
        assert rows["handler:bill"].state == "done"
        left = rows["handler:gone"]
        assert (left.state, left.tries) == ("queued", 0)
        assert left.last_error == "no handler gone is declared"
        assert work(made) == 0, "it does not keep everybody busy"


@pytest.mark.scenario("HN-4")
def test_a_handler_that_was_renamed_handles_what_waits_under_its_old_name(ledger_db: LedgerDb):
    def declare(made):
        made.ledger.on(made.producer, "invoice.finalized", name="old")(lambda _tx, _event: None)

    seen: list[str] = []

    def renamed(made):
        made.ledger.on(made.producer, "invoice.finalized", name="new", aliases=["old"])(
            lambda _tx, event: seen.append(event.data.id)
        )

    with shop(ledger_db, declare=declare) as before:
        before.receive("i1")
    with shop(ledger_db, declare=renamed) as made:
        work(made)
        assert seen == ["i1"]
        assert {row.state for row in made.outbox()} == {"done"}


@pytest.mark.parametrize("writes", [False, True])
def test_a_handler_that_hangs_is_left_behind_and_can_write_nothing_later(
    ledger_db: LedgerDb, writes: bool
):
    release, ended = threading.Event(), threading.Event()

    def handler(tx, event):
        bill_row(tx, event)
        if len(made.seen) > 1:
            return
        try:
            release.wait(30)
            if writes:
                tx.conn.execute(insert(bills).values(id="late", cents=1))
        finally:
            ended.set()

    facts: list[Any] = []
    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(
            made,
            pace=Pace(backoff_us=0, limit_s=0.8),
            note=lambda name, fields: facts.append((name, fields)),
        )
        (measured,) = [fields for name, fields in facts if name == "handling.ended"]
        assert measured["outcome"] == "overdue"
        assert 0.8 <= measured["seconds"] < 20
        assert (row_of(made).tries, row_of(made).last_error) == (
            1,
            "handler ran longer than 0.8 s",
        )
        assert made.billed() == {}
        work(made)
        assert made.billed() == {"i1": 1200}, "another run does it"
        release.set()
        assert ended.wait(20)
        assert made.billed() == {"i1": 1200}, "the late one keeps nothing"
        assert row_of(made).state == "done"


def test_a_handler_in_a_statement_without_end_is_cut_off_and_the_worker_lives(ledger_db: LedgerDb):
    """Closing the connection under such a statement ends the process, so it is interrupted first."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    ended = threading.Event()

    def handler(tx, event):
        bill_row(tx, event)
        if len(made.seen) > 1:
            return
        try:
            tx.conn.execute(text(endless))
        finally:
            ended.set()

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(made, pace=Pace(backoff_us=0, limit_s=0.1))
        assert ended.wait(20)
        assert made.billed() == {}
        assert row_of(made).tries == 1
        work(made)
        assert made.billed() == {"i1": 1200}, "another run does it"


def test_claims_that_might_end_before_their_handlers_do_are_given_back(ledger_db: LedgerDb):
    """Claimed together, handled in turn: the last ones are left to whoever is free."""
    with shop(ledger_db) as made:
        for number in range(3):
            made.receive(f"i{number}")
        agent = made.agent(pace=Pace(limit_s=0.0, concurrency=1))
        assert asyncio.run(agent.run_once()) == 3
        with made.engine.connect() as conn:
            held = conn.execute(select(schedule).where(schedule.c.lease_owner.is_not(None))).all()
            assert held == []
        work(made)
        assert sorted(event.id for event in made.seen) == ["i0", "i1", "i2"]


@pytest.mark.scenario("BF-8")
def test_a_run_that_may_cause_no_more_effects_is_paused_and_its_item_kept(ledger_db: LedgerDb):
    with shop(ledger_db, lambda tx, event: request_and_bill(made, tx, event)) as made:

        def begin(conn):
            plan = runs.Plan(
                kind="backfill",
                label="november",
                namespace="shop",
                source="file",
                ceilings=runs.Ceilings(effects=1),
            )
            run_id = runs.create(conn, made.books, plan, by="ann", why="we were down")
            runs.approve(conn, made.books, run_id, by="bob", plan_digest=plan.digest())
            runs.start(conn, made.books, run_id)
            return run_id

        run_id = made.db.transact(begin)
        for id in ("i1", "i2"):
            made.receive(id, origin=origin_of("backfill", run_id))
        work(made)
        assert len(made.billed()) == 1
        with made.engine.connect() as conn:
            assert runs.load(conn, run_id)["state"] == "paused"
            assert len(conn.execute(select(effects)).all()) == 1
        left = [row for row in made.outbox() if row.kind == "handle" and row.state == "queued"]
        assert [(row.tries, "may cause no more" in row.last_error) for row in left] == [(0, True)]


@pytest.mark.scenario("AS-34", "HN-1")
def test_a_handler_that_opens_a_connection_is_found_and_set_aside(ledger_db: LedgerDb):
    with socket.create_server(("127.0.0.1", 0)) as bank:

        def handler(_tx, _event):
            with socket.socket() as opened:
                opened.connect(bank.getsockname())

        with shop(ledger_db, handler) as made:
            made.receive("i1")
            with no_sockets():
                for _ in range(QUICK.tries_max):
                    work(made)
            row = row_of(made)
            assert (row.state, "where none may be" in row.last_error) == ("parked", True)
            assert open_kinds(made) == ["handler_poison"]
        bank.setblocking(False)
        with pytest.raises(BlockingIOError):
            bank.accept()


# --- In turn -------------------------------------------------------------------------------------


@pytest.mark.scenario("OG-3")
async def test_events_of_one_serial_key_are_handled_one_at_a_time_in_receipt_order(
    ledger_db: LedgerDb,
):
    running: list[str] = []
    met: list[tuple[str, ...]] = []

    def handler(_tx, event):
        running.append(event.id)
        met.append(tuple(id for id in running if id[0] == event.id[0]))
        try:
            if event.id == "a1" and [e.id for e in made.seen].count("a1") == 1:
                raise ValueError("its turn is not over")
        finally:
            running.remove(event.id)

    def serial(data):
        return data.id[0]

    with shop(ledger_db, handler, serial=serial) as made:
        route = made.ledger.registry.routes("shop")
        for id in ("a1", "a2", "b1", "a3"):
            (to,) = route(arriving(id), Invoice(id, 1))
            made.receive(id, serial_keys={to.handler: to.serial_key})
        agents = [made.agent(owner=f"w{n}") for n in range(2)]

        # Nobody works yet, so whatever a second claim got would be worked on beside the first.
        held = await asyncio.gather(*(agent.take(16) for agent in agents))
        ids = sorted(job.event.id for groups in held for jobs in groups for job in jobs)
        assert ids == ["a1", "b1"], "the head of each key, and nothing behind it"
        await asyncio.gather(
            *(
                agent.work(jobs)
                for agent, groups in zip(agents, held, strict=True)
                for jobs in groups
            )
        )
        while sum(await asyncio.gather(*(agent.run_once() for agent in agents))):
            pass
        order = [event.id for event in made.seen if event.id.startswith("a")]
        assert order == ["a1", "a1", "a2", "a3"]
        assert all(len(together) == 1 for together in met), "two of one key at once"


def arriving(id: str) -> Any:
    return Event(
        source="/shop", id=id, identity_rule=IdentityRule.CLOUDEVENTS, type="invoice.finalized"
    )


@pytest.mark.scenario("OG-3", "QU-8")
def test_an_event_set_aside_holds_up_its_serial_key_and_no_other(ledger_db: LedgerDb):
    def handler(_tx, event):
        if event.id == "a1":
            raise ValueError("poison")

    with shop(ledger_db, handler, serial=lambda data: data.id[0]) as made:
        for id in ("a1", "a2", "b1"):
            made.receive(id, serial_keys={"bill": id[0]})
        for _ in range(6):
            work(made)
        states = {row.message_id: row.state for row in made.outbox() if row.kind == "handle"}
        assert sorted(states.values()) == ["done", "parked", "queued"]
        assert {event.id for event in made.seen} == {"a1", "b1"}


# --- Settlements ---------------------------------------------------------------------------------


@pytest.mark.scenario("AS-35", "HN-7")
def test_a_settlement_handler_that_crashes_three_times_writes_once(ledger_db: LedgerDb):
    seen: list[Any] = []

    def declare(made):
        @made.collect.settled
        def paid(tx, done):
            seen.append(done)
            tx.conn.execute(insert(bills).values(id=done.effect_key, cents=1))
            if len(seen) <= 3:
                raise ValueError("crash")

    with shop(ledger_db, declare=declare) as made:
        with made.ledger.begin() as tx:
            ref = tx.request(made.collect, "one", CHARGE)
        delays = Delays(settled_handlers=tuple(made.collect.settled_handlers))
        made.db.transact(
            lambda conn: attempted(
                conn, made.books, ref.effect_id, Success(b"receipt 7", "ch_1", "200"), ACME, delays
            )
        )
        for _ in range(4):
            assert work(made, pace=Pace(backoff_us=0, tries_max=9)) == 1
        assert work(made) == 0
        assert len(seen) == 4
        assert made.billed() == {"one": 1}
        assert (seen[0].state.value, seen[0].result, seen[0].recipient_ref) == (
            "confirmed",
            b"receipt 7",
            "ch_1",
        )


@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_a_handler_is_bounded_by_the_server_too(ledger_db: LedgerDb):
    """A worker that stands still cannot hold its locks for ever."""

    def handler(tx, _event):
        if len(made.seen) == 1:
            tx.conn.execute(text("SELECT pg_sleep(60)"))

    with shop(ledger_db, handler) as made:
        made.receive("i1")
        work(made, pace=Pace(backoff_us=0, limit_s=0.3))
        assert "statement timeout" in row_of(made).last_error
        work(made)
        assert row_of(made).state == "done"
