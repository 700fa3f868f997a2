"""One effect row per meaning, whoever asks, however often, and inside whose transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError

from landed.effects.answer import Ambiguous, Refused, Success
from landed.effects.order import OrderPolicy
from landed.effects.state import State
from landed.errors import OrderConflictError, PayloadMismatchError, PreviousStillOpenError
from landed.fingerprint import NotExactError
from landed.records import attempts, deadlines, effects, outbox, schedule
from landed.records.session import Books, as_retry, is_retryable, transact
from landed.records.tables import effect_causes, order_heads
from landed.records.tables import effects as effect_rows
from landed.records.tables import outbox as outbox_rows
from landed.records.tables import schedule as schedule_rows
from tests.handling import lives


def ask(db, key, payload=None, **more):
    return db.transact(
        lambda conn: effects.request(conn, db.books, lives.intent(key, payload, **more))
    )


def ordered(version=None, policy=OrderPolicy.STRICT, key="inv-1"):
    return effects.Ordered(domain="invoice", key=key, version=version, policy=policy)


@pytest.mark.scenario("AS-45")
def test_two_events_that_ask_for_one_effect_share_its_row(ledger_db):
    first = ask(ledger_db, "k", cause=effects.Cause(kind="receipt", id="r1"))
    second = ask(ledger_db, "k", cause=effects.Cause(kind="receipt", id="r2"))
    third = ask(ledger_db, "k", cause=effects.Cause(kind="receipt", id="r2"))
    assert (first.is_created, second.is_created, third.is_created) == (True, False, False)
    assert first.effect_id == second.effect_id == third.effect_id
    with ledger_db.engine.connect() as conn:
        assert sorted(conn.execute(select(effect_causes.c.cause_id)).scalars()) == ["r1", "r2"]


@pytest.mark.scenario("AS-46")
def test_one_event_may_ask_for_three_effects_and_a_repeat_adds_none(ledger_db):
    for _ in range(2):
        for key in ("a", "b", "c"):
            ask(ledger_db, key)
    with ledger_db.engine.connect() as conn:
        rows = lives.counts(conn)
    assert (rows["landed_effects"], rows["landed_effect_causes"]) == (3, 3)


@pytest.mark.scenario("AS-47")
@pytest.mark.parametrize("state", ["pending", "unknown", "confirmed"])
def test_another_payload_under_a_known_key_is_refused_before_any_write(ledger_db, state):
    make = {
        "pending": lambda conn: effects.request(conn, ledger_db.books, lives.intent("k")),
        "unknown": lambda conn: lives.doubted(conn, ledger_db.books, "k"),
        "confirmed": lambda conn: lives.confirmed(conn, ledger_db.books, "k"),
    }
    ledger_db.transact(make[state])
    with ledger_db.engine.connect() as conn:
        before = (lives.counts(conn), conn.execute(select(effect_rows)).all())
    with pytest.raises(PayloadMismatchError) as raised:
        ask(ledger_db, "k", {"cents": 1}, cause=effects.Cause(kind="receipt", id="other"))
    assert raised.value.recorded != raised.value.requested
    with ledger_db.engine.connect() as conn:
        assert (lives.counts(conn), conn.execute(select(effect_rows)).all()) == before


@pytest.mark.scenario("AS-48")
def test_spellings_of_one_payload_are_one_effect_and_inexact_numbers_are_refused(ledger_db):
    assert ask(ledger_db, "k", {"a": 1, "b": "é"}).is_created
    assert not ask(ledger_db, "k", {"b": "\u00e9", "a": 1.0}).is_created
    for number in (2**53, 2**53 + 1):
        with pytest.raises(NotExactError):
            lives.intent("n", {"n": number})
    assert ask(ledger_db, "t", {"n": str(2**53)}).is_created
    with pytest.raises(PayloadMismatchError):
        ask(ledger_db, "t", {"n": str(2**53 + 1)})


@pytest.mark.scenario("AS-49")
def test_a_revision_waits_until_the_one_before_can_act_no_more(ledger_db):
    books = ledger_db.books
    before = ledger_db.transact(lambda conn: lives.doubted(conn, books, "rev/1"))
    revision = lives.intent("rev/2", {"cents": 900})
    with pytest.raises(PreviousStillOpenError):
        ledger_db.transact(lambda conn: effects.revise(conn, books, before.effect_id, revision))
    refused = ledger_db.transact(
        lambda conn: lives.attempted(conn, books, before.effect_id, Refused(b"no", "402"))
    )
    assert refused.state is State.REFUSED
    made = ledger_db.transact(lambda conn: effects.revise(conn, books, before.effect_id, revision))
    with ledger_db.engine.connect() as conn:
        old, new = lives.seen(conn, before.effect_id), lives.seen(conn, made.effect_id)
    assert made.is_created
    assert old.superseded_by == new.effect_id
    assert new.supersedes == old.effect_id
    assert old.idempotency_key != new.idempotency_key


@pytest.mark.scenario("AS-51")
def test_keys_come_from_the_meaning_and_the_ledgers_name_alone(ledger_db):
    ours = ask(ledger_db, "invoice/1")
    elsewhere = Books("tests", b"another digest key")
    again = ledger_db.transact(
        lambda conn: effects.request(conn, elsewhere, lives.intent("invoice/1"))
    )
    renamed = ledger_db.transact(
        lambda conn: effects.request(
            conn, Books("renamed", b"a third digest key"), lives.intent("invoice/1")
        )
    )
    assert ours.idempotency_key == again.idempotency_key != renamed.idempotency_key


@pytest.mark.scenario("AS-29")
def test_a_rolled_back_transaction_leaves_nothing_at_all(ledger_db):
    with ledger_db.engine.connect() as conn:
        before = lives.counts(conn)
    with ledger_db.engine.connect() as conn, conn.begin() as transaction:
        effects.request(conn, ledger_db.books, lives.intent("k", order=ordered()))
        outbox.next_seq(conn, domain="d", key="k")
        transaction.rollback()
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn) == before


@pytest.mark.scenario("AS-30")
def test_a_rolled_back_savepoint_takes_its_effects_and_numbers_with_it(ledger_db):
    books = ledger_db.books
    with ledger_db.engine.begin() as conn:
        one = outbox.next_seq(conn, domain="d", key="k")
        kept = effects.request(conn, books, lives.intent("kept", order=ordered()))
        inner = conn.begin_nested()
        outbox.next_seq(conn, domain="d", key="k")
        effects.request(conn, books, lives.intent("gone", order=ordered()))
        inner.rollback()
        two = outbox.next_seq(conn, domain="d", key="k")
        after = effects.request(conn, books, lives.intent("after", order=ordered()))
    with ledger_db.engine.connect() as conn:
        keys = conn.execute(select(effect_rows.c.effect_key)).scalars().all()
        versions = [lives.seen(conn, e.effect_id).version for e in (kept, after)]
    assert (one, two) == (1, 2)
    assert sorted(keys) == ["after", "kept"]
    assert versions == [1, 2]


@pytest.mark.scenario("AS-84")
def test_one_version_under_two_keys_is_refused_and_writes_nothing(ledger_db):
    ask(ledger_db, "a", order=ordered(7))
    with ledger_db.engine.connect() as conn:
        before = lives.counts(conn)
    with pytest.raises(OrderConflictError):
        ask(ledger_db, "b", order=ordered(7))
    assert not ask(ledger_db, "a", order=ordered(7)).is_created
    with ledger_db.engine.connect() as conn:
        assert lives.counts(conn) == before


@pytest.mark.scenario("AS-80")
def test_an_old_decision_is_recorded_as_behind_the_head(ledger_db):
    new = ask(ledger_db, "new", order=ordered(5, OrderPolicy.LATEST_WINS))
    old = ask(ledger_db, "old", order=ordered(3, OrderPolicy.LATEST_WINS))
    with ledger_db.engine.connect() as conn:
        assert not lives.seen(conn, new.effect_id).is_behind_head
        assert lives.seen(conn, old.effect_id).is_behind_head
        assert conn.execute(select(order_heads.c.last_version)).scalar() == 5


def test_a_newer_strict_effect_begins_only_after_the_older_is_settled(ledger_db):
    books = ledger_db.books
    old = ask(ledger_db, "old", order=ordered())
    new = ask(ledger_db, "new", order=ordered())

    def begin(conn):
        return attempts.begin(
            conn, books, lives.seen(conn, new.effect_id), lives.REPLAYS, worker="w"
        )

    assert isinstance(ledger_db.transact(begin), attempts.NotBegun)
    ledger_db.transact(
        lambda conn: lives.attempted(conn, books, old.effect_id, Success(b"", None, "200"))
    )
    assert isinstance(ledger_db.transact(begin), attempts.Begun)


@pytest.mark.scenario("OG-7", "OR-8")
def test_what_is_newest_at_one_recipient_says_nothing_at_another(ledger_db):
    books = ledger_db.books

    def _asked(recipient, version):
        intent = lives.intent(recipient, order=ordered(version, OrderPolicy.LATEST_WINS))
        intent = replace(intent, recipient=recipient)
        return ledger_db.transact(lambda conn: effects.request(conn, books, intent)).effect_id

    older, newer = _asked("elsewhere", 1), _asked(lives.RECIPIENT, 2)
    ledger_db.transact(lambda conn: lives.attempted(conn, books, newer, Success(b"", None, "200")))
    with ledger_db.engine.connect() as conn:
        assert lives.seen(conn, older).state is State.PENDING
        assert deadlines.newer_confirmed_us(conn, lives.seen(conn, older)) is None


@pytest.mark.scenario("AS-85")
def test_latest_wins_cancels_older_ones_never_begun_and_asks_about_the_others(ledger_db):
    books = ledger_db.books
    asked = [
        ask(ledger_db, f"v{n}", order=ordered(n, OrderPolicy.LATEST_WINS)) for n in range(1, 6)
    ]
    ledger_db.transact(
        lambda conn: lives.attempted(conn, books, asked[1].effect_id, Ambiguous("reset"))
    )
    ledger_db.transact(
        lambda conn: lives.attempted(conn, books, asked[4].effect_id, Success(b"", None, "200"))
    )
    with ledger_db.engine.connect() as conn:
        views = [lives.seen(conn, e.effect_id) for e in asked]
        lanes = {
            row.subject_id: row.lane
            for row in conn.execute(select(schedule_rows.c.subject_id, schedule_rows.c.lane))
        }
    assert [v.state.value for v in views] == [
        "cancelled",
        "unknown",
        "cancelled",
        "cancelled",
        "confirmed",
    ]
    assert {v.reason for v in views if v.state is State.CANCELLED} == {"superseded"}
    assert lanes == {asked[1].effect_id: "reconcile:acme"}


@pytest.mark.scenario("AS-50")
def test_many_transactions_that_ask_for_one_new_key_share_one_row(ledger_db):
    writers, each = (10, 10) if ledger_db.is_postgres else (4, 5)
    engines = [ledger_db.open() for _ in range(writers)]

    def ask_many(number):
        return [
            transact(
                engines[number],
                lambda conn, n=n: effects.request(
                    conn,
                    ledger_db.books,
                    lives.intent("k", cause=effects.Cause(kind="local", id=f"{number}-{n}")),
                ),
            )
            for n in range(each)
        ]

    results = lives.together(*(lambda n=n: ask_many(n) for n in range(writers)))
    flat = [requested for result in results for requested in result]
    assert len({requested.effect_id for requested in flat}) == 1
    assert sum(requested.is_created for requested in flat) == 1
    with ledger_db.engine.connect() as conn:
        rows = lives.counts(conn)
    assert rows["landed_effects"] == rows["landed_schedule"] == 1
    assert rows["landed_effect_causes"] == writers * each


@pytest.mark.scenario("AS-32")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_two_user_transactions_that_ask_for_one_key_at_once(ledger_db, level):
    """The second waits for the first; under the stricter levels it must run again."""
    engine = ledger_db.open().execution_options(isolation_level=level)
    books = ledger_db.books
    with engine.connect() as first, engine.connect() as second:
        with first.begin() as one:
            second_begun = second.begin()
            second.execute(text("SELECT 1 FROM landed_effects"))
            made = effects.request(first, books, lives.intent("k"))

            def ask_second():
                try:
                    requested = effects.request(second, books, lives.intent("k"))
                    second_begun.commit()
                except DBAPIError as e:
                    second_begun.rollback()
                    return e
                return requested

            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(ask_second)
                _wait_for_a_lock(ledger_db)
                one.commit()
                result = waiting.result(30)
        if level == "READ COMMITTED":
            assert (result.effect_id, result.is_created) == (made.effect_id, False)
            return
        assert isinstance(result, DBAPIError)
        assert is_retryable(result)
        assert as_retry(result).__cause__ is result
        with second.begin():
            again = effects.request(second, books, lives.intent("k"))
    assert (again.effect_id, again.is_created) == (made.effect_id, False)


@pytest.mark.scenario("OR-6")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_who_asks_whether_it_is_overtaken_waits_for_a_newer_version_that_begins(ledger_db):
    """Without the lock it would not see the other's attempt, and both would be sent: the old one last.

    On SQLite there is one writer, so nobody asks meanwhile.
    """
    books = ledger_db.books
    older, newer = (
        ledger_db.transact(
            lambda conn, version=version: effects.request(
                conn, books, lives.intent(f"k{version}", order=ordered(version))
            )
        ).effect_id
        for version in (1, 2)
    )

    def is_overtaken(conn, effect_id):
        return deadlines.is_overtaken(conn, lives.seen(conn, effect_id), lives.SEALED)

    begins = (
        update(effect_rows)
        .where(effect_rows.c.effect_id == newer)
        .values(state=State.SENDING.value, first_sight_at=1)
    )
    with ledger_db.engine.connect() as one, ThreadPoolExecutor(1) as pool:
        assert not is_overtaken(one, newer)
        one.execute(begins)
        asked = pool.submit(
            transact, ledger_db.open(), lambda conn: is_overtaken(conn, older), is_durable=False
        )
        _wait_for_a_lock(ledger_db, unless=asked.done)
        one.commit()
        assert asked.result(30), "it saw the newer one"


def _wait_for_a_lock(db, *, unless=lambda: False) -> None:
    """Until somebody waits for a lock; asks the server again and again, for ten seconds at most."""
    with db.engine.connect() as conn:
        for _ in range(1000):
            waits = conn.execute(
                text(
                    "SELECT count(*), pg_sleep(0.01) FROM pg_stat_activity"
                    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
                )
            ).one()
            if waits[0] or unless():
                return
    raise AssertionError("nobody waits for a lock")


@pytest.mark.scenario("AS-75")
def test_of_two_workers_that_hold_one_effect_only_one_begins(ledger_db):
    books = ledger_db.books
    asked = ask(ledger_db, "k")
    with ledger_db.engine.connect() as conn:
        effect = lives.seen(conn, asked.effect_id)
    engines = [ledger_db.open() for _ in range(4)]
    results = lives.together(
        *(
            lambda engine=engine: transact(
                engine,
                lambda conn: attempts.begin(conn, books, effect, lives.REPLAYS, worker="w"),
            )
            for engine in engines
        )
    )
    assert sorted(type(r).__name__ for r in results) == ["Begun"] + ["NotBegun"] * 3


@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_effects_of_one_transaction_become_due_together_at_commit(ledger_db):
    books = ledger_db.books
    other = ledger_db.open()
    lane = effects.effect_lane(lives.RECIPIENT)
    with ledger_db.engine.begin() as conn:
        effects.request(conn, books, lives.intent("a"))
        effects.request(conn, books, lives.intent("b"))
        seen = transact(other, lambda c: schedule.claim(c, books, lane=lane, owner="w", limit=9))
        assert seen == []
    claimed = transact(other, lambda c: schedule.claim(c, books, lane=lane, owner="w", limit=9))
    assert len(claimed) == 2


def test_an_outbox_row_twice_under_one_message_id_is_an_error(ledger_db):
    message = outbox.Message(
        kind="event",
        destination="d",
        message_id="m",
        cause_kind="local",
        cause_id=None,
        type="t",
        body=b"",
        lane="relay:d",
    )
    ledger_db.transact(lambda conn: outbox.add(conn, ledger_db.books, [message]))
    from landed.errors import StorageError

    with pytest.raises(StorageError):
        ledger_db.transact(lambda conn: outbox.add(conn, ledger_db.books, [message]))
    with ledger_db.engine.connect() as conn:
        assert conn.execute(select(outbox_rows.c.state)).scalars().all() == ["queued"]


def test_what_is_written_together_reaches_the_database_as_it_was(ledger_db):
    """PostgreSQL is handed it as one document: nothing in it may be taken for something else."""
    texts = ['a"b\\c', "{1,NULL}", "é☃\N{GRINNING FACE}", " ", "null", "\\x41", "line\nbreak\ttab"]
    payloads = [bytes(range(256)), b"", b"\\x41"]

    class Word(str):
        """A user's own kind of text."""

        __slots__ = ()

    asked = {
        Word(text): payloads[number % len(payloads)] for number, text in enumerate(texts, start=1)
    }
    gathered = effects.Gathered()

    def _write(conn):
        requested = [
            effects.request(
                conn, ledger_db.books, replace(lives.intent(key), payload=body), gathered=gathered
            )
            for key, body in asked.items()
        ]
        gathered.write(conn, ledger_db.books)
        return effects.views(conn, [one.effect_id for one in requested])

    found = {view.effect_key: (view.payload, view.not_after) for view in ledger_db.transact(_write)}
    assert found == {str(key): (body, None) for key, body in asked.items()}
