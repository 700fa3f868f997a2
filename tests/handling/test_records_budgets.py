"""Statement budgets, plans of the timed queries, and settings that would lose commits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, select, text

from landed.deliveries.classify import QuarantinedEvent, QuarantineReason
from landed.effects.answer import Absent, Ambiguous, NotSent, Present, Success
from landed.effects.order import OrderPolicy
from landed.effects.state import Method, State
from landed.errors import ConfigurationError
from landed.records import (
    attempts,
    effects,
    evidence,
    meta,
    outbox,
    quarantine,
    receipts,
    reconcile,
    retention,
    schedule,
    settle,
)
from landed.records.session import transact
from tests.handling import lives

TABLE = Path(__file__).parents[2] / "docs/reference/statements.md"


def budgets() -> dict[str, tuple[int, int]]:
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \| (\d+) \|", TABLE.read_text(), re.MULTILINE)
    return {path: (int(statements), int(transactions)) for path, statements, transactions in rows}


class Counted:
    """Runs the paths of one ledger and counts what each takes."""

    def __init__(self, db):
        self.db = db
        self.books = db.books
        self.seen: dict[str, tuple[int, int]] = {}

    def path(self, name, *works):
        with lives.statements(self.db.engine) as ran:
            results = [self.db.transact(work) for work in works]
        assert name not in self.seen
        self.seen[name] = (len(ran), len(works))
        return results[-1]

    def do(self, work):
        return self.db.transact(work)


@pytest.mark.scenario("AS-117")
def test_every_path_takes_the_statements_that_the_table_states(ledger_db):
    counted = Counted(ledger_db)
    _receive(counted)
    _handle(counted)
    _attempt(counted)
    assert counted.seen == budgets()


def _receive(c):
    keep = lambda *arrivals: lambda conn: receipts.keep(conn, c.books, arrivals)  # noqa: E731
    aside = QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, "new")
    c.path("new event, one handler", keep(*(lives.arrival(f"e{n}") for n in range(5))))
    c.path(
        "new event, handlers with a serial key",
        keep(*(lives.arrival(f"s{n}", serial_key=f"k{n}") for n in range(5))),
    )
    c.path("repeat", keep(*(lives.arrival(f"e{n}") for n in range(5))))
    c.path("same event with another payload, first time", keep(lives.arrival("e0", b"{}")))
    c.path("the same conflict again", keep(lives.arrival("e0", b"{}")))
    c.path("quarantined event", keep(lives.arrival("q", disposition=aside)))


def _handle(c):
    def handling(intent):
        claim = c.do(lambda conn: schedule.claim(conn, c.books, lane="handle", owner="w", limit=1))

        def work(conn):
            effects.request(conn, c.books, intent)
            assert len(outbox.mark_done(conn, c.books, [claim[0].subject_id])) == 1
            assert schedule.finish(conn, claim) == 1

        return work

    order = effects.Ordered(domain="d", key="k", version=None, policy=OrderPolicy.STRICT)
    c.path("handling with one effect", handling(lives.intent("plain")))
    c.path("handling with one ordered effect", handling(lives.intent("ordered", order=order)))
    c.path("handling that meets a known effect", handling(lives.intent("plain")))

    messages = [
        outbox.Message(
            kind="event",
            destination="d",
            message_id=f"m{n}",
            cause_kind="local",
            cause_id=None,
            type="t",
            body=b"",
            lane="relay:d",
        )
        for n in range(5)
    ]
    c.do(lambda conn: outbox.add(conn, c.books, messages))
    held = []

    def take(conn):
        held.extend(schedule.claim(conn, c.books, lane="relay:d", owner="w", limit=9))
        assert len(outbox.rows(conn, [claim.subject_id for claim in held])) == 5

    def hand_on(conn):
        assert len(outbox.mark_done(conn, c.books, [h.subject_id for h in held], proof="ack")) == 5
        schedule.finish(conn, held)

    c.path("batch to hand on", take, hand_on)


def _attempt(c):
    def asked(key):
        made = c.do(lambda conn: effects.request(conn, c.books, lives.intent(key)))
        return c.do(lambda conn: lives.seen(conn, made.effect_id))

    def begun(effect):
        return c.do(lambda conn: attempts.begin(conn, c.books, effect, lives.REPLAYS, worker="w"))

    def end(key, answer, delays=lives.DELAYS):
        effect = begun(asked(key)).effect
        return lambda conn: attempts.end(
            conn, c.books, effect, lives.REPLAYS, answer, delays=delays
        )

    first = asked("first")
    c.path(
        "attempt begins",
        lambda conn: attempts.begin(conn, c.books, first, lives.REPLAYS, worker="w"),
    )
    success = Success(b"ok", "r", "200")
    told = replace(lives.DELAYS, settled_handlers=("paid",))
    c.path("attempt ends in success", end("a", success))
    c.path("attempt ends in success, one settlement handler", end("b", success, told))
    c.path("attempt ends in doubt", end("c", Ambiguous("reset")))
    c.path("attempt proven not to have acted", end("d", NotSent("refused")))
    open_one = begun(asked("e")).effect
    c.path(
        "reaped",
        lambda conn: attempts.reap(conn, c.books, open_one, lives.REPLAYS, delays=lives.DELAYS),
    )

    def lookup(key, answer):
        doubted = c.do(lambda conn: lives.doubted(conn, c.books, key))
        return lambda conn: reconcile.record_lookup(
            conn,
            c.books,
            doubted,
            lives.REPLAYS,
            answer,
            evidence=reconcile.Evidence(method=Method.LOOKUP),
            delays=lives.DELAYS,
        )

    c.path("look-up that finds it", lookup("f", Present(b"ok")))
    c.path("look-up that finds nothing", lookup("g", Absent()))


@pytest.mark.scenario("AS-117")
def test_an_effect_makes_three_versions_of_its_row_in_a_good_life(ledger_db):
    with lives.statements(ledger_db.engine) as ran:
        ledger_db.transact(lambda conn: lives.confirmed(conn, ledger_db.books, "k"))
    writes = [s for s in ran if re.match(r"(INSERT INTO|UPDATE) landed_effects ", s)]
    assert len(writes) == 3


_MANY = {
    "landed_receipts": (
        (
            "receipt_id, namespace, identity_digest, identity_rule, type, received_at,"
            " fingerprint_form, fingerprint, size_bytes, auth_method, auth_key_id, auth_result,"
            " transport, disposition, settled_at, settled_mark, scrub_tier"
        ),
        (
            "{id}, 'shop', {digest}, 'webhook-id', 't', n, 'jcs-1', {digest}, 1, 'hmac', 'k',"
            " 'verified', 'http', 'accepted', n, 0, 2"
        ),
    ),
    "landed_outbox": (
        (
            "outbox_id, kind, destination, message_id, cause_kind, cause_id, type, created_at, state,"
            " done_at"
        ),
        "{id}, 'handle', 'handler:bill', 'm' || n, 'receipt', {id}, 't', n, 'done', n",
    ),
    "landed_effects": (
        (
            "effect_id, recipient, effect_type, key_digest, payload_form, fingerprint,"
            " idempotency_key, contract_digest, order_domain, order_key, version, is_behind_head,"
            " state, is_absence_final, has_late_success, is_contradicted, is_cancel_requested,"
            " created_at, settled_at, settled_mark, scrub_tier, send_deadline"
        ),
        (
            "{id}, 'acme', 'collect', {digest}, 'jcs-1', {digest}, {id}, {digest}, 'd', 'k', n, {no},"
            " 'confirmed', {no}, {no}, {no}, {no}, n, n, 0, 2, n"
        ),
    ),
    "landed_effect_causes": (
        "effect_id, cause_kind, cause_id, requested_at",
        "{id}, 'receipt', 'c' || n, n",
    ),
    "landed_quarantine": (
        "receipt_id, reason, detail, owner, opened_at, decision",
        "{id}, 'r', 'd', 'o', n, 'rejected'",
    ),
    "landed_reviews": (
        "review_id, kind, subject_kind, subject_id, severity, owner, note, opened_at, state",
        "{id}, 'k', 'receipt', 's' || n, 'warning', 'o', '', n, 'closed'",
    ),
    "landed_schedule": (
        "work_id, lane, kind, subject_id, ready_at",
        "{id}, 'elsewhere', 'outbox', {id}, n",
    ),
}


def fill(db, rows):
    """Terminal rows in every table that grows, and as many waiting rows of another lane."""
    if db.is_postgres:
        words = {
            "id": "md5('id' || n)::uuid",
            "no": "false",
            "digest": "decode(md5('d' || n) || md5('e' || n), 'hex')",
        }
        source = f"generate_series(1, {rows}) AS t(n)"
    else:
        words = {
            "id": "printf('%032x', n)",
            "no": "0",
            "digest": "CAST(printf('%032d', n) AS BLOB)",
        }
        source = (
            f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows})"
            " SELECT n FROM c)"
        )
    with db.engine.begin() as conn:
        for table, (columns, values) in _MANY.items():
            conn.exec_driver_sql(
                f"INSERT INTO {table} ({columns}) SELECT {values.format(**words)} FROM {source}".replace(
                    "%", "%%" if db.is_postgres else "%"
                )
            )
        conn.exec_driver_sql("ANALYZE")


def plans(db, work):
    """The plans of every statement that a transaction runs."""
    ran = []

    def note(_conn, _cursor, statement, parameters, *_rest):
        ran.append((statement, parameters))

    with db.engine.connect() as conn, conn.begin() as transaction:
        event.listen(conn, "before_cursor_execute", note)
        work(conn)
        event.remove(conn, "before_cursor_execute", note)
        word = "EXPLAIN " if db.is_postgres else "EXPLAIN QUERY PLAN "
        found = []
        for statement, parameters in ran:
            if re.match(r"\s*(SELECT|UPDATE|WITH|DELETE)", statement):
                rows = conn.exec_driver_sql(word + statement, parameters)
                found.append("\n".join(str(row[-1]) for row in rows))
        transaction.rollback()
    return found


_WALKS = re.compile(
    r"Seq Scan on (landed_(?:receipts|outbox|effects|effect_causes|quarantine|reviews|schedule))"
    r"|SCAN (landed_(?:receipts|outbox|effects|effect_causes|quarantine|reviews|schedule)|other|older)"
    r"(?! USING INDEX)"
)
_TIMED = {
    "claim": lambda books: (
        lambda conn: schedule.claim(conn, books, lane="handle", owner="w", limit=10)
    ),
    "begin": lambda books: (
        lambda conn: attempts.begin(
            conn,
            books,
            effects.view_by_key(conn, books, lives.RECIPIENT, "t"),
            lives.REPLAYS,
            worker="w",
        )
    ),
    "supersede": lambda books: (
        lambda conn: settle.after_move(
            conn,
            books,
            effects.view_by_key(conn, books, lives.RECIPIENT, "t")._replace(
                order_policy=OrderPolicy.LATEST_WINS.value
            ),
            lives.REPLAYS,
            State.CONFIRMED,
            delays=lives.DELAYS,
        )
    ),
    "overdue": lambda books: lambda conn: attempts.overdue(conn, books, limit=10),
    "settle receipts": lambda books: lambda conn: retention.settle_receipts(conn, books),
    "scrub": lambda books: (
        lambda conn: retention.scrub_due(
            conn,
            books,
            retention.Policy(payload_us=1, receipts_us={"shop": 1}, effects_us={"acme": 1}),
        )
    ),
    "quarantine": lambda books: quarantine.open_events,
    "evidence": lambda books: (
        lambda conn: evidence.proof_of(conn, _doubted(conn, books), ("paid",))
    ),
}


def _doubted(conn, books):
    found = effects.view_by_key(conn, books, lives.RECIPIENT, "d")
    return found._replace(recipient="shop")


def walks(db, rows):
    books = db.books

    def some(conn):
        receipts.keep(conn, books, [lives.arrival(f"e{n}") for n in range(20)])
        lives.doubted(conn, books, "d")
        order = effects.Ordered(domain="d", key="k", version=10**7, policy=OrderPolicy.STRICT)
        asked = effects.request(conn, books, lives.intent("s", order=order))
        lives.begun(conn, books, asked.effect_id)
        lives.confirmed(conn, books, "c")
        later = replace(order, version=10**7 + 1)
        effects.request(conn, books, lives.intent("t", order=later))

    db.transact(some)
    fill(db, rows)
    return {
        name: [plan for plan in plans(db, timed(books)) if _WALKS.search(plan)]
        for name, timed in _TIMED.items()
    }


@pytest.mark.scenario("AS-119", "SQ-8")
def test_timed_queries_never_walk_through_terminal_rows(ledger_db):
    assert walks(ledger_db, 20_000) == {name: [] for name in _TIMED}


@pytest.mark.scenario("SQ-8")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["begin", "supersede"])
def test_older_versions_are_looked_for_in_the_index_of_what_is_open(ledger_db, name):
    walks(ledger_db, 10)
    found = "\n".join(plans(ledger_db, _TIMED[name](ledger_db.books)))
    assert "effects_open_order" in found, found


@pytest.mark.long
@pytest.mark.scenario("AS-119", "SQ-8")
def test_timed_queries_never_walk_through_a_million_terminal_rows(ledger_db):
    assert walks(ledger_db, 1_000_000) == {name: [] for name in _TIMED}


@pytest.mark.scenario("AS-120")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_a_sqlite_engine_that_loses_commits_is_refused_unless_asked_for_by_name(ledger_db, level):
    engine = create_engine(ledger_db.url)

    @event.listens_for(engine, "connect")
    def weaken(connection, _record):
        connection.execute(f"PRAGMA synchronous = {level}")

    with pytest.raises(ConfigurationError, match="may lose acknowledged commits"):
        meta.prepare(engine, ledger_db.books)
    meta.prepare(engine, ledger_db.books, is_relaxed=True)
    engine.dispose()


@pytest.mark.scenario("AS-120")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_a_postgres_without_fsync_is_refused_unless_asked_for_by_name(ledger_db):
    with ledger_db.engine.connect() as conn:
        conn.execution_options(isolation_level="AUTOCOMMIT")
        conn.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        try:
            conn.exec_driver_sql("SELECT pg_reload_conf()")
            _until(conn, "fsync", "off")
            with pytest.raises(ConfigurationError, match="fsync=off"):
                meta.prepare(ledger_db.open(), ledger_db.books)
            meta.prepare(ledger_db.open(), ledger_db.books, is_relaxed=True)
        finally:
            conn.exec_driver_sql("ALTER SYSTEM RESET fsync")
            conn.exec_driver_sql("SELECT pg_reload_conf()")
            _until(conn, "fsync", "on")


def _until(conn, setting, value):
    for _ in range(1000):
        shown = conn.exec_driver_sql(f"SELECT current_setting('{setting}'), pg_sleep(0.01)").one()
        if shown[0] == value:
            return
    raise AssertionError(f"{setting} never became {value}")


@pytest.mark.scenario("AS-120")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
@pytest.mark.parametrize("weak", ["off", "local"])
def test_a_weak_synchronous_commit_is_raised_for_our_transactions_alone(ledger_db, weak):
    name = ledger_db.engine.url.database
    with ledger_db.engine.connect() as conn:
        conn.execution_options(isolation_level="AUTOCOMMIT")
        conn.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = {weak}")
    engine = ledger_db.open()
    show = text("SHOW synchronous_commit")
    assert transact(engine, lambda conn: conn.execute(show).scalar()) == "on"
    with engine.connect() as conn:
        assert conn.execute(show).scalar() == weak
    assert transact(engine, lambda conn: conn.execute(select(1)).scalar(), is_durable=False) == 1
