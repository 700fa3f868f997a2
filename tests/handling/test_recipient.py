"""The recipient's library: a request acts once under its key, whoever repeats, races or fails."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, func, insert, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from landed.errors import ConfigurationError, NotInTransactionError
from landed.recipient import (
    Answer,
    KeyState,
    Reason,
    RequestRefusedError,
    create_tables,
    guard,
    migrations,
    scrub,
    seal,
    status,
)
from landed.recipient.tables import fences, keys
from tests.handling import lives

pytestmark = pytest.mark.real_loop

SCOPE = "acct"
own = MetaData()
charges = Table("their_charges", own, Column("id", Integer, primary_key=True), Column("key", Text))


@pytest.fixture
def db(ledger_db):
    with ledger_db.engine.begin() as conn:
        create_tables(conn)
        own.create_all(conn)
    return ledger_db


def charge(conn, key, *, body=b"1200", answer=None, **more):
    """One request as a service would take it."""
    with guard(conn, scope=SCOPE, key=key, fingerprint=body, **more) as op:
        if not op.replayed:
            conn.execute(insert(charges).values(key=key))
            op.answer = answer or Answer(201, f"charged {key}".encode())
    return op


def charged(engine, key, **more):
    with engine.begin() as conn:
        return charge(conn, key, **more)


def refusal(engine, key, **more):
    with pytest.raises(RequestRefusedError) as caught:
        charged(engine, key, **more)
    return caught.value


def count(db, table=charges):
    with db.engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()


def fence(version, key="i1"):
    return {"fence": ("invoice", key, version)}


@pytest.mark.scenario("AS-112")
def test_fifty_guards_with_one_key_make_one_change_and_equal_answers(db):
    engine = db.open(pool_size=10)
    ops = lives.together(*[lambda: charged(engine, "k", wait_s=60)] * 50)
    assert count(db) == 1
    assert {op.answer for op in ops} == {Answer(201, b"charged k")}
    assert sorted(op.replayed for op in ops) == [False] + [True] * 49


@pytest.mark.scenario("AS-113")
def test_a_change_that_fails_leaves_no_key_and_no_fence_and_the_retry_acts(db):
    def fail():
        with (
            db.engine.begin() as conn,
            guard(conn, scope=SCOPE, key="k", fingerprint=b"1200", **fence(3)),
        ):
            conn.execute(insert(charges).values(key="k"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [count(db, table) for table in (charges, keys, fences)] == [0, 0, 0]
    assert charged(db.engine, "k", **fence(3)).replayed is False
    assert [count(db, table) for table in (charges, keys, fences)] == [1, 1, 1]


def test_a_guard_without_an_answer_keeps_nothing(db):
    with (
        pytest.raises(ConfigurationError, match=r"op\.answer"),
        db.engine.begin() as conn,
        guard(conn, scope=SCOPE, key="k", fingerprint=b"1"),
    ):
        conn.execute(insert(charges).values(key="k"))
    assert [count(db, table) for table in (charges, keys)] == [0, 0]


@pytest.mark.scenario("AS-114")
def test_a_repeat_of_what_acted_gets_its_own_answer_after_newer_versions_passed(db):
    first = charged(db.engine, "k1", **fence(1))
    charged(db.engine, "k2", **fence(2))
    again = charged(db.engine, "k1", **fence(1))
    assert again.replayed
    assert again.answer == first.answer
    late = refusal(db.engine, "k0", **fence(1))
    assert (late.status, late.reason, late.current_version) == (412, Reason.FENCED, 2)
    assert count(db) == 2


def test_a_fence_takes_higher_versions_only_and_for_each_order_key(db):
    charged(db.engine, "k5", **fence(5))
    for version in (4, 5):
        assert refusal(db.engine, f"other{version}", **fence(version)).reason is Reason.FENCED
    charged(db.engine, "k6", **fence(6))
    charged(db.engine, "elsewhere", **fence(1, key="i2"))
    with db.engine.connect() as conn:
        taken = conn.execute(select(fences.c.fence_key, fences.c.version)).all()
    assert sorted(map(tuple, taken)) == [("i1", 6), ("i2", 1)]


def test_versions_that_race_leave_the_highest_one(db):
    engine = db.open(pool_size=10)

    def at(version):
        return lambda: charged(engine, f"k{version}", wait_s=60, **fence(version))

    results = lives.together(*[at(version) for version in range(1, 11)])
    refused = [result for result in results if isinstance(result, Exception)]
    assert all(isinstance(r, RequestRefusedError) and r.reason is Reason.FENCED for r in refused)
    with db.engine.connect() as conn:
        assert conn.execute(select(fences.c.version)).scalar_one() == 10
    assert count(db) == 10 - len(refused)


@pytest.mark.scenario("AS-115")
@pytest.mark.parametrize("races", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_of_a_guard_and_a_seal_exactly_one_wins(db, races):
    engine = db.open(pool_size=2)

    def sealed(key):
        with engine.begin() as conn:
            return seal(conn, scope=SCOPE, key=key)

    won = {KeyState.ACTED: 0, KeyState.SEALED: 0}
    for number in range(races):
        key = f"k{number}"
        acted, found = lives.together(lambda k=key: charged(engine, k), lambda k=key: sealed(k))
        if found.state is KeyState.SEALED:
            assert isinstance(acted, RequestRefusedError)
            assert (acted.reason, acted.status) == (Reason.SEALED, 410)
        else:
            assert found == (KeyState.ACTED, acted.answer)
        won[found.state] += 1
    assert count(db) == won[KeyState.ACTED]
    assert count(db, keys) == races


def test_a_sealed_key_never_acts_and_sealing_again_changes_nothing(db):
    for _ in range(2):
        with db.engine.begin() as conn:
            assert seal(conn, scope=SCOPE, key="k").state is KeyState.SEALED
    assert refusal(db.engine, "k").reason is Reason.SEALED
    with db.engine.begin() as conn:
        assert seal(conn, scope="other", key="k").state is KeyState.SEALED
        assert charge(conn, "k2").replayed is False
    with db.engine.begin() as conn:
        assert seal(conn, scope=SCOPE, key="k2") == (KeyState.ACTED, Answer(201, b"charged k2"))


@pytest.mark.scenario("AS-116")
def test_an_open_guard_is_never_absent(db):
    asker = db.open(pool_size=1)
    if not db.is_postgres:
        from sqlalchemy import event

        event.listen(asker, "connect", lambda c, _: c.execute("PRAGMA busy_timeout = 30"))

    def state():
        try:
            with asker.begin() as conn:
                return status(conn, scope=SCOPE, key="k").state
        except OperationalError:  # SQLite: the question itself has to wait, and here it may not
            return KeyState.IN_PROGRESS

    assert state() is KeyState.ABSENT
    with db.engine.begin() as conn:
        with guard(conn, scope=SCOPE, key="k", fingerprint=b"1") as op:
            assert state() is KeyState.IN_PROGRESS
            op.answer = Answer(201)
        assert state() is KeyState.IN_PROGRESS, "it has not committed"
    assert state() is KeyState.ACTED


def test_a_question_waits_or_says_in_progress_and_then_knows(db):
    """The engine as it is: on SQLite the question waits for the writer, and then it knows."""
    entered, told = threading.Event(), []

    def ask():
        entered.wait(10)
        with db.engine.begin() as conn:
            told.append(status(conn, scope=SCOPE, key="k").state)

    asker = threading.Thread(target=ask)
    asker.start()
    with db.engine.begin() as conn:
        charge(conn, "k")
        entered.set()
        if db.is_postgres:
            asker.join(10)
    asker.join(10)
    assert told == [KeyState.IN_PROGRESS if db.is_postgres else KeyState.ACTED]


@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_a_wait_is_bounded_and_spoils_no_transaction(db):
    with db.engine.begin() as holder:
        charge(holder, "k")
        with db.engine.begin() as conn:
            before = conn.exec_driver_sql("SHOW lock_timeout").scalar_one()
            with pytest.raises(RequestRefusedError) as caught:
                charge(conn, "k", wait_s=0.05)
            assert (caught.value.reason, caught.value.status) == (Reason.IN_PROGRESS, 409)
            assert charge(conn, "another").replayed is False
            assert conn.exec_driver_sql("SHOW lock_timeout").scalar_one() == before
    assert count(db) == 2


def test_another_payload_under_a_key_is_refused(db):
    charged(db.engine, "k", body=b"1200")
    other = refusal(db.engine, "k", body=b"1300")
    assert (other.reason, other.status) == (Reason.KEY_CONFLICT, 422)
    assert count(db) == 1
    assert refusal(db.engine, "").status == 400


def test_a_deadline_comes_before_everything_and_keeps_its_own_status(db):
    charged(db.engine, "k", expires_us=2**60)
    for key in ("k", "new"):
        late = refusal(db.engine, key, expires_us=1)
        assert (late.reason, late.status) == (Reason.EXPIRED, 408)
    assert count(db) == 1


def test_a_scrub_empties_what_can_be_read_and_still_no_repeat_acts(db):
    charged(db.engine, "k")
    with db.engine.begin() as conn:
        assert scrub(conn, older_than_us=1, now_us=2) == 0
        assert scrub(conn, older_than_us=2**60, now_us=2) == 1
        row = conn.execute(select(keys)).one()
    assert (row.key, row.body) == (None, None)
    again = charged(db.engine, "k")
    assert (again.replayed, again.answer) == (True, Answer(201))
    assert count(db) == 1


def test_a_connection_in_autocommit_is_refused(db):
    engine = create_engine(db.engine.url)
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn,
        pytest.raises(NotInTransactionError),
    ):
        charge(conn, "k")
    engine.dispose()
    assert count(db) == 0


def test_sessions_are_guarded_as_connections_are(db):
    for expected in (False, True):
        with Session(db.engine) as session, session.begin():
            with guard(session, scope=SCOPE, key="k", fingerprint=b"1") as op:
                if not op.replayed:
                    session.execute(insert(charges).values(key="k"))
                    op.answer = Answer(201)
            assert op.replayed is expected
    assert count(db) == 1


async def test_asynchronous_connections_are_guarded_sealed_and_asked(db):
    url = db.url if db.is_postgres else db.url.replace("sqlite:", "sqlite+aiosqlite:")
    engine = create_async_engine(url)

    async def act():
        async with (
            engine.begin() as conn,
            guard(conn, scope=SCOPE, key="k", fingerprint=b"1", wait_s=30) as op,
        ):
            if not op.replayed:
                await conn.execute(insert(charges).values(key="k"))
                op.answer = Answer(201, b"once")
        return op.replayed

    assert sorted(await asyncio.gather(*[act() for _ in range(4)])) == [False, True, True, True]
    async with engine.begin() as conn:
        assert await status(conn, scope=SCOPE, key="k") == (KeyState.ACTED, Answer(201, b"once"))
        assert (await seal(conn, scope=SCOPE, key="k2")).state is KeyState.SEALED
    await engine.dispose()
    assert count(db) == 1


# --- Tables --------------------------------------------------------------------------------------


def test_numbered_steps_leave_exactly_the_tables_that_queries_are_written_against(ledger_db):
    from sqlalchemy.schema import CreateIndex, CreateTable

    from landed.recipient import metadata
    from tests.handling.test_records_migrations import _shape

    def shape():
        made = _shape(ledger_db.engine)
        return {name: of for name, of in made.items() if name.startswith("landed_r_")}

    ledger_db.transact(metadata.drop_all)
    ledger_db.transact(create_tables)
    by_steps = shape()
    ledger_db.transact(metadata.drop_all)

    def declared(conn):
        for table in metadata.sorted_tables:
            conn.execute(CreateTable(table))
            for index in table.indexes:
                conn.execute(CreateIndex(index))

    ledger_db.transact(declared)
    assert len(by_steps) == len(metadata.tables) == 3
    assert by_steps == shape()
    ledger_db.transact(create_tables)
    assert ledger_db.transact(migrations.version) == migrations.NEWEST, "tables without a number"


def test_replicas_that_make_the_tables_at_once_all_become_ready(ledger_db):
    engine = ledger_db.open(pool_size=4)

    def start():
        with engine.begin() as conn:
            create_tables(conn)

    assert lives.together(*[start] * 4) == [None] * 4
    assert ledger_db.transact(migrations.version) == migrations.NEWEST


def test_tables_of_a_newer_version_are_refused(db):
    from sqlalchemy import insert

    from landed.errors import StorageForeignError
    from landed.recipient.tables import migrations as steps

    db.transact(
        lambda conn: conn.execute(insert(steps).values(number=migrations.NEWEST + 1, name="later"))
    )
    with pytest.raises(StorageForeignError, match="Upgrade it"):
        db.transact(create_tables)
