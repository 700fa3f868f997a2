"""Acknowledged means durable: commits that are slow, lost, shared, or that cannot be."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import event, select, text

from landed.intake import Bounds
from landed.intake.groups import Sizes
from landed.ledger import Invalid
from landed.records.tables import receipts, rejections
from tests.handling.conftest import LedgerDb
from tests.handling.doors import TYPE, Door, door

pytestmark = pytest.mark.real_loop

INVOICE = {"type": TYPE, "data": {"id": "481", "cents": 1200}}


class Gate:
    """Holds up the commits of an engine."""

    def __init__(self, engine) -> None:
        self.commits = 0
        self._reached = threading.Event()
        self._opened = threading.Event()
        event.listen(engine, "commit", self._hold)

    def _hold(self, _conn) -> None:
        self.commits += 1
        self._reached.set()
        assert self._opened.wait(30)

    async def reached(self) -> None:
        await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._opened.set()


async def ready(at: Door) -> None:
    """What is done once per process is done."""
    await at.intake._door()
    at.intake._do_chores = lambda: None  # type: ignore[method-assign]


@contextmanager
def lost_commit(at: Door, *, takes_place: bool):
    """The connection dies during COMMIT, before it took place or after."""
    dialect = at.ledger.engine.dialect
    commit = dialect.do_commit

    def cut(connection) -> None:
        if takes_place:
            commit(connection)
        connection.close()
        raise dialect.dbapi.OperationalError("server closed the connection unexpectedly")

    dialect.do_commit = cut
    try:
        yield
    finally:
        dialect.do_commit = commit


@pytest.mark.scenario("AS-17")
async def test_no_answer_leaves_before_its_commit(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        await ready(at)
        gate = Gate(at.ledger.engine)
        posting = asyncio.create_task(at.post(at.webhook(INVOICE)))
        await gate.reached()
        # The loop goes on meanwhile: another request is answered.
        assert (await at.post(at.webhook(INVOICE, key=b"another's"))).status_code == 401
        assert not posting.done()
        gate.open()
        assert (await posting).status_code == 202


async def test_those_who_wait_together_share_one_commit(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        await ready(at)
        gate = Gate(at.ledger.engine)
        posting = [asyncio.create_task(at.post(at.webhook(INVOICE, id="m0")))]
        await gate.reached()
        posting += [
            asyncio.create_task(at.post(at.webhook(INVOICE, id=f"m{n % 15}"))) for n in range(1, 21)
        ]
        while len(at.intake._groups._waiting) < 20:
            await asyncio.sleep(0)
        gate.open()
        answers = await asyncio.gather(*posting)
        assert gate.commits == 2
        words = [answer.headers["landed-disposition"] for answer in answers]
        assert words.count("accepted") == 15
        assert words.count("duplicate") == 6
        by_id = {}
        for n, answer in enumerate(answers):
            by_id.setdefault(n % 15, set()).add(answer.headers["landed-receipt"])
        assert all(len(found) == 1 for found in by_id.values())


@pytest.mark.scenario("AS-18")
async def test_one_that_cannot_be_kept_does_not_cost_its_group(ledger_db: LedgerDb):
    check = "CHECK (event_id <> 'm7')"
    with ledger_db.engine.begin() as conn:
        if ledger_db.is_postgres:
            conn.execute(text(f"ALTER TABLE landed_receipts ADD CONSTRAINT late {check}"))
        else:
            conn.exec_driver_sql(
                "CREATE TRIGGER late BEFORE INSERT ON landed_receipts WHEN NEW.event_id = 'm7' "
                "BEGIN SELECT RAISE(ABORT, 'a limit found late'); END"
            )
    async with door(ledger_db) as at:
        await ready(at)
        gate = Gate(at.ledger.engine)
        first = asyncio.create_task(at.post(at.webhook(INVOICE, id="first")))
        await gate.reached()
        posting = [asyncio.create_task(at.post(at.webhook(INVOICE, id=f"m{n}"))) for n in range(20)]
        while len(at.intake._groups._waiting) < 20:
            await asyncio.sleep(0)
        gate.open()
        answers = [answer.status_code for answer in await asyncio.gather(*posting)]
        assert answers == [503 if n == 7 else 202 for n in range(20)]
        assert (await first).status_code == 202
        assert at.counts()["receipts"] == 20


@pytest.mark.scenario("AS-16")
@pytest.mark.parametrize("takes_place", [False, True])
async def test_a_lost_commit_answer_is_no_acknowledgement(ledger_db: LedgerDb, takes_place: bool):
    async with door(ledger_db) as at:
        await ready(at)
        with lost_commit(at, takes_place=takes_place):
            answer = await at.post(at.webhook(INVOICE))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        again = await at.post(at.webhook(INVOICE))
        expected = "duplicate" if takes_place else "accepted"
        assert (again.status_code, again.headers["landed-disposition"]) == (202, expected)
        assert at.counts()["receipts"] == 1


@pytest.mark.scenario("AS-15")
async def test_without_its_database_the_boundary_asks_to_come_again(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        await ready(at)
        engine = at.ledger.engine
        is_down = True

        @event.listens_for(engine, "do_connect")
        def _refuse(*_):
            if is_down:
                raise engine.dialect.dbapi.OperationalError("connection refused")

        engine.dispose()
        down = await at.post(at.webhook(INVOICE))
        assert (down.status_code, down.headers["retry-after"]) == (503, "1")
        assert (await at.client.get("/healthz")).status_code == 503
        assert (await at.client.get("/.well-known/landed")).status_code == 503
        unsigned = at.webhook(INVOICE, key=b"somebody else's secret")
        assert (await at.post(unsigned)).status_code == 401
        await at.intake.write_refusals()
        is_down = False
        assert (await at.post(at.webhook(INVOICE))).headers["landed-disposition"] == "accepted"
        await at.intake.write_refusals()
        with ledger_db.engine.connect() as conn:
            assert conn.execute(select(rejections.c.count)).scalar_one() == 1, "kept meanwhile"


async def test_more_than_may_wait_is_asked_to_come_again(ledger_db: LedgerDb):
    bounds = Bounds(sizes=Sizes(waiting=2))
    async with door(ledger_db, bounds=bounds) as at:
        await ready(at)
        gate = Gate(at.ledger.engine)
        posting = [asyncio.create_task(at.post(at.webhook(INVOICE, id="m0")))]
        await gate.reached()
        for n in (1, 2):
            posting.append(asyncio.create_task(at.post(at.webhook(INVOICE, id=f"m{n}"))))
            while len(at.intake._groups._waiting) < n:
                await asyncio.sleep(0)
        assert (await at.post(at.webhook(INVOICE, id="m3"))).status_code == 503
        gate.open()
        assert {answer.status_code for answer in await asyncio.gather(*posting)} == {202}


async def test_a_slow_check_holds_up_no_other_request(ledger_db: LedgerDb):
    entered, left = threading.Event(), threading.Event()

    def slow(document):
        if document["data"] == "slow":
            entered.set()
            assert left.wait(30)
        return document

    async with door(ledger_db, types={TYPE: slow}) as at:
        await ready(at)
        posting = asyncio.create_task(at.post(at.webhook({"type": TYPE, "data": "slow"}, id="m1")))
        await asyncio.to_thread(entered.wait, 30)
        quick = await at.post(at.webhook({"type": TYPE, "data": "quick"}, id="m2"))
        assert quick.status_code == 202
        assert not posting.done()
        left.set()
        assert (await posting).status_code == 202


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
async def test_nothing_of_a_receipt_runs_on_the_event_loop(ledger_db: LedgerDb):
    loop_thread = threading.get_ident()
    on_loop: list[str] = []

    def check(document):
        if threading.get_ident() == loop_thread:
            on_loop.append("check")
        raise Invalid("always")

    async with door(ledger_db, types={TYPE: check}) as at:

        @event.listens_for(at.ledger.engine, "before_cursor_execute")
        def _statement(_conn, _cursor, statement, *_):
            if threading.get_ident() == loop_thread:
                on_loop.append(statement)

        at.intake.start()
        assert (await at.post(at.webhook(INVOICE))).status_code == 202
        assert (await at.post(at.webhook(INVOICE, key=b"x" * 20))).status_code == 401
        await at.intake.write_refusals()
        await at.client.get("/healthz")
        await at.client.get("/.well-known/landed")
        assert on_loop == []


async def test_the_ingest_clock_is_told_that_we_can_receive(ledger_db: LedgerDb):
    async with door(ledger_db) as at:
        at.intake.start()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with ledger_db.engine.connect() as conn:
                beaten = conn.execute(text("SELECT count(*) FROM landed_ingest_clock")).scalar()
            if beaten:
                break
            await asyncio.sleep(0.01)
        assert beaten == 1
        with ledger_db.engine.connect() as conn:
            assert conn.execute(select(receipts)).first() is None
