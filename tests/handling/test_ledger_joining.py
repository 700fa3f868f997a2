"""Effects and publications inside a transaction that the user owns (SQ-5, SQ-6, AS-29 to AS-33)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from landed.errors import NotInTransactionError, RetryTransactionError
from landed.ledger import Order
from landed.records.session import configure_sqlite
from landed.records.tables import effects, order_heads, outbox, schedule
from tests.handling.conftest import LedgerDb
from tests.handling.ledgers import Charge, Shop, bills, shop
from tests.handling.lives import counts

CHARGE = Charge("i1", 1200)


def write(made: Shop, tx: Any) -> None:
    tx.request(made.collect, "i1/collect", CHARGE)
    tx.request(made.ordered, "i1/remind/1", CHARGE, order=Order("i1", version=1))
    tx.publish("billing.invoice.opened", {"id": "i1"}, key="i1")


async def write_async(made: Shop, tx: Any) -> None:
    await tx.request(made.collect, "i1/collect", CHARGE)
    await tx.request(made.ordered, "i1/remind/1", CHARGE, order=Order("i1", version=1))
    await tx.publish("billing.invoice.opened", {"id": "i1"}, key="i1")


def async_url(db: LedgerDb) -> str:
    if db.is_postgres:
        return "postgresql+psycopg" + db.url[db.url.index("://") :]
    return db.url.replace("sqlite:", "sqlite+aiosqlite:")


@asynccontextmanager
async def users_transaction(made: Shop, kind: str, *, keeps: bool) -> AsyncIterator[Any]:
    """The user's own transaction of each kind, committed or rolled back by the user."""
    if kind.startswith("async"):
        engine = create_async_engine(async_url(made.db))
        try:
            async with engine.connect() as conn:
                await conn.begin()
                target: Any = conn
                if kind == "async session":
                    target = AsyncSession(bind=conn, join_transaction_mode="control_fully")
                    await target.begin()
                await conn.execute(insert(bills).values(id="i1", cents=1))
                tx = await made.ledger.join(target)
                yield tx
                await (target.commit() if keeps else target.rollback())
                await target.close()
        finally:
            await engine.dispose()
        return
    engine = made.db.open()
    with engine.connect() as conn:
        conn.begin()
        target = conn
        if kind == "session":
            target = Session(bind=conn, join_transaction_mode="control_fully")
            target.begin()
        conn.execute(insert(bills).values(id="i1", cents=1))
        yield made.ledger.join(target)
        target.commit() if keeps else target.rollback()
        target.close()


KINDS = ["connection", "session", "async connection", "async session"]


@pytest.mark.scenario("AS-29")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_written_in_a_users_transaction_vanishes_with_it(
    ledger_db: LedgerDb, kind: str
):
    with shop(ledger_db) as made:
        before = ledger_db.transact(counts)
        async with users_transaction(made, kind, keeps=False) as tx:
            await write_async(made, tx) if kind.startswith("async") else write(made, tx)
        assert ledger_db.transact(counts) == before
        assert made.billed() == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_written_in_a_users_transaction_is_kept_with_it(
    ledger_db: LedgerDb, kind: str
):
    with shop(ledger_db) as made:
        async with users_transaction(made, kind, keeps=True) as tx:
            await write_async(made, tx) if kind.startswith("async") else write(made, tx)
        assert made.billed() == {"i1": 1}
        with made.engine.connect() as conn:
            kept = list(conn.execute(select(effects.c.effect_key).order_by("effect_key")).scalars())
            assert kept == ["i1/collect", "i1/remind/1"]
            sent = conn.execute(select(outbox.c.kind, outbox.c.order_seq)).all()
            assert sent == [("event", 1)]
            assert len(conn.execute(select(schedule)).all()) == 3


@pytest.mark.scenario("AS-30")
def test_a_savepoint_takes_its_effects_and_numbers_with_it(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        with made.engine.begin() as conn:
            tx = made.ledger.join(conn)
            tx.request(made.collect, "kept", CHARGE)
            tx.publish("a", {}, key="i1")
            nested = conn.begin_nested()
            tx.request(made.collect, "gone", CHARGE)
            tx.publish("b", {}, key="i1")
            nested.rollback()
            tx.publish("c", {}, key="i1")
        with made.engine.connect() as conn:
            assert list(conn.execute(select(effects.c.effect_key)).scalars()) == ["kept"]
            sent = conn.execute(select(outbox.c.type, outbox.c.order_seq).order_by("order_seq"))
            assert sent.all() == [("a", 1), ("c", 2)]
            assert conn.execute(select(order_heads.c.last_seq)).scalar_one() == 2


@dataclass
class Heard:
    """What an engine was told to do, and every statement it ran."""

    statements: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)


@contextmanager
def listening(engine: Any):
    heard = Heard()

    def statement(_conn, _cursor, text, *_rest):
        heard.statements.append(text)

    handlers = [("before_cursor_execute", statement)]
    for name in (
        "begin",
        "commit",
        "rollback",
        "savepoint",
        "rollback_savepoint",
        "release_savepoint",
    ):

        def end(*_args, name=name):
            heard.ends.append(name)

        handlers.append((name, end))
    for name, handler in handlers:
        event.listen(engine, name, handler)
    try:
        yield heard
    finally:
        for name, handler in handlers:
            event.remove(engine, name, handler)


@pytest.mark.scenario("AS-31")
def test_joining_begins_and_ends_nothing(ledger_db: LedgerDb):
    with shop(ledger_db) as made, made.engine.connect() as conn:
        transaction = conn.begin()
        with listening(made.engine) as heard:
            write(made, made.ledger.join(conn))
        assert heard.ends == []
        assert heard.statements, "the listener hears"
        words = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET ", "SELECT SET_CONFIG")
        assert [s for s in heard.statements if s.upper().startswith(words)] == []
        assert transaction.is_active
        transaction.rollback()


@pytest.mark.scenario("AS-31")
async def test_joining_outside_a_transaction_is_refused(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        with made.engine.connect() as conn, pytest.raises(NotInTransactionError, match="begin"):
            made.ledger.join(conn)
        with Session(made.engine) as session, pytest.raises(NotInTransactionError, match="begin"):
            made.ledger.join(session)
        engine = create_async_engine(async_url(ledger_db))
        async with engine.connect() as conn:
            with pytest.raises(NotInTransactionError, match="begin"):
                await made.ledger.join(conn)
        await engine.dispose()


@pytest.mark.scenario("AS-31")
async def test_joining_a_connection_in_autocommit_is_refused(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        engine = create_engine(async_url(ledger_db).replace("+aiosqlite", ""))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.begin()
            with pytest.raises(NotInTransactionError, match="autocommit"):
                made.ledger.join(conn)
        engine.dispose()
        there = create_async_engine(async_url(ledger_db), isolation_level="AUTOCOMMIT")
        async with there.connect() as conn:
            await conn.begin()
            with pytest.raises(NotInTransactionError, match="autocommit"):
                await made.ledger.join(conn)
        await there.dispose()


@pytest.mark.scenario("AS-32")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_two_transactions_that_request_one_key_share_one_effect(ledger_db: LedgerDb, level: str):
    """The second meets the first one's row after its own snapshot was taken."""
    with shop(ledger_db) as made:
        engine = create_engine(async_url(ledger_db), isolation_level=level)
        first, second = engine.connect(), engine.connect()
        first.begin()
        second.begin()
        second.execute(select(bills)).all()  # takes its snapshot
        ours = made.ledger.join(first).request(made.collect, "one", CHARGE)
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.append(made.ledger.join(second).request(made.collect, "one", CHARGE))
            except RetryTransactionError as e:
                answers.append(e)

        waiting = threading.Thread(target=ask)
        waiting.start()
        wait_for_lock(ledger_db)
        first.commit()
        waiting.join(20)
        if level == "READ COMMITTED":
            assert answers[0].effect_id == ours.effect_id
            second.commit()
        else:
            assert isinstance(answers[0], RetryTransactionError)
            assert answers[0].__cause__ is not None, "the original is inside"
            second.rollback()
            with engine.begin() as again:
                found = made.ledger.join(again).request(made.collect, "one", CHARGE)
            assert found.effect_id == ours.effect_id
        first.close()
        second.close()
        engine.dispose()
        with made.engine.connect() as conn:
            assert len(conn.execute(select(effects)).all()) == 1


def wait_for_lock(db: LedgerDb) -> None:
    """Until somebody waits for somebody's transaction."""
    for _ in range(10_000):
        with db.engine.connect() as conn:
            if conn.exec_driver_sql("SELECT 1 FROM pg_locks WHERE NOT granted").first():
                return
    raise AssertionError("nobody waits")


@pytest.mark.scenario("AS-33")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_a_deferred_transaction_that_read_first_must_begin_again(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        deferred = create_engine(ledger_db.url)

        @event.listens_for(deferred, "connect")
        def _plain(connection, _entry):
            connection.isolation_level = None

        @event.listens_for(deferred, "begin")
        def _begin(conn):
            conn.exec_driver_sql("BEGIN")

        with deferred.connect() as conn:
            conn.begin()
            conn.execute(select(bills)).all()
            with made.engine.begin() as other:
                other.execute(insert(bills).values(id="other", cents=1))
            with pytest.raises(RetryTransactionError, match="BEGIN IMMEDIATE"):
                made.ledger.join(conn).request(made.collect, "one", CHARGE)
            conn.rollback()
        deferred.dispose()
        with made.engine.connect() as conn:
            assert conn.execute(select(effects)).all() == []


@pytest.mark.scenario("AS-33")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_an_immediate_transaction_waits_and_succeeds(ledger_db: LedgerDb):
    with shop(ledger_db) as made:
        mine = create_engine(ledger_db.url)
        configure_sqlite(mine)
        begun = threading.Event()
        done: list[Any] = []

        def ask() -> None:
            begun.set()
            with mine.begin() as conn:
                conn.execute(select(bills)).all()
                done.append(made.ledger.join(conn).request(made.collect, "one", CHARGE))

        with made.engine.begin() as other:
            other.execute(insert(bills).values(id="other", cents=1))
            waiting = threading.Thread(target=ask)
            waiting.start()
            begun.wait(20)
            assert done == []
        waiting.join(20)
        assert done[0].is_created
        mine.dispose()
