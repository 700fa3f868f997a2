"""Migrations: the tables they leave, four replicas at once, and databases that are not ours."""

from __future__ import annotations

import subprocess
import sys
from threading import Barrier, Thread

import pytest
from sqlalchemy import func, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError

from landed.errors import ConfigurationError, StorageForeignError
from landed.records import meta, migrations
from landed.records.session import Books, open_engine
from landed.records.tables import PREFIX, metadata, quarantine
from landed.records.tables import migrations as steps
from tests.lines import next_line

BOOKS = Books("tests", b"a key")


def _shape(engine) -> dict[str, object]:
    """Everything that reflection tells of our tables."""
    seen = inspect(engine)
    shape: dict[str, object] = {}
    for table in sorted(name for name in seen.get_table_names() if name.startswith(PREFIX)):
        shape[table] = {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c["default"])
                for c in seen.get_columns(table)
            ],
            "key": seen.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted(str(u["column_names"]) for u in seen.get_unique_constraints(table)),
            "indexes": sorted(
                (i["name"], str(i["column_names"]), i["unique"], _options(i))
                for i in seen.get_indexes(table)
                if not i.get("duplicates_constraint")
            ),
            "checks": sorted(c["sqltext"] for c in seen.get_check_constraints(table)),
        }
    return shape


def _options(index) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in index.get("dialect_options", {}).items())


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    return request.getfixturevalue("empty_postgres")


@pytest.mark.scenario("AS-123")
def test_migrations_leave_exactly_the_tables_that_queries_are_written_against(ledger_db, request):
    if ledger_db.is_postgres:
        engine = open_engine(request.getfixturevalue("empty_postgres"))
    else:
        engine = open_engine(f"sqlite:///{request.getfixturevalue('tmp_path')}/declared.db")
    metadata.create_all(engine)
    declared = _shape(engine)
    engine.dispose()
    assert len(declared) == len(metadata.tables)
    assert _shape(ledger_db.engine) == declared


@pytest.mark.scenario("BC-26")
def test_replicas_that_start_together_all_become_ready(empty_url):
    replicas = 4
    engines = [open_engine(empty_url) for _ in range(replicas)]
    together = Barrier(replicas)
    errors: list[BaseException] = []

    def start(engine):
        try:
            together.wait(10)
            meta.prepare(engine, BOOKS)
        except Exception as e:  # noqa: BLE001  # whatever it is, it must not be
            errors.append(e)

    for _ in range(3):
        threads = [Thread(target=start, args=(engine,)) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert errors == []
        with engines[0].connect() as conn:
            assert conn.execute(select(func.count()).select_from(steps)).scalar() == len(
                migrations.STEPS
            )
        _drop_everything(engines[0])
    for engine in engines:
        engine.dispose()


_START = """
import sys
from landed.records import meta
from landed.records.session import Books, open_engine
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
meta.prepare(open_engine(sys.argv[1]), Books("tests", b"a key"))
"""


@pytest.mark.scenario("BC-26")
def test_processes_that_start_together_all_become_ready_without_a_line_of_error(empty_url):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _START, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONHASHSEED": str(seed), "PATH": "/usr/bin"},
        )
        for seed in range(4)
    ]
    for process in processes:
        assert next_line(process) == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
    engine = open_engine(empty_url)
    with engine.connect() as conn:
        assert migrations.version(conn) == migrations.NEWEST
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(ledger_db):
    ledger_db.transact(
        lambda conn: conn.execute(
            insert(steps).values(number=migrations.NEWEST + 1, name="later", applied_at=0)
        )
    )
    with pytest.raises(StorageForeignError, match="newer version"):
        meta.prepare(ledger_db.engine, ledger_db.books)


def test_a_database_without_tables_is_refused_where_nothing_may_be_migrated(empty_url):
    engine = open_engine(empty_url)
    with pytest.raises(StorageForeignError, match="landed migrate"):
        meta.prepare(engine, BOOKS, is_migrating=False)
    engine.dispose()


def test_another_ledger_name_refuses_to_start(ledger_db):
    with pytest.raises(ConfigurationError, match="belongs to ledger 'tests'"):
        meta.prepare(ledger_db.engine, Books("renamed", ledger_db.books.digest_key))


def test_another_digest_key_refuses_to_start(ledger_db):
    with pytest.raises(ConfigurationError, match="digest key"):
        meta.prepare(ledger_db.engine, Books("tests", b"lost and made anew"))


@pytest.mark.scenario("AS-22")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("reason", "other"),
        ("detail", "other"),
        ("owner", "other"),
        ("opened_at", 2),
        ("payload", b"other"),
    ],
)
def test_what_a_quarantine_recorded_cannot_be_changed_by_raw_sql(ledger_db, column, value):
    receipt = ledger_db.books.new_id()
    ledger_db.transact(
        lambda conn: conn.execute(
            insert(quarantine).values(
                receipt_id=receipt, reason="r", detail="d", owner="o", opened_at=1, payload=b"p"
            )
        )
    )
    with pytest.raises(DBAPIError, match="what was recorded stands"), ledger_db.engine.begin() as c:
        c.execute(
            text(f"UPDATE landed_quarantine SET {column} = :value"),
            {"value": value},
        )
    with pytest.raises(DBAPIError, match="never deleted"), ledger_db.engine.begin() as c:
        c.execute(text("DELETE FROM landed_quarantine"))


@pytest.mark.scenario("AS-22")
def test_a_quarantined_payload_may_be_erased_and_a_decision_written(ledger_db):
    receipt = ledger_db.books.new_id()
    with ledger_db.engine.begin() as conn:
        conn.execute(
            insert(quarantine).values(
                receipt_id=receipt, reason="r", detail="d", owner="o", opened_at=1, payload=b"p"
            )
        )
        conn.execute(update(quarantine).values(decision="rejected", payload=None))
        row = conn.execute(select(quarantine)).one()
    assert (row.decision, row.payload, row.reason) == ("rejected", None, "r")


def _drop_everything(engine) -> None:
    metadata.drop_all(engine)
    if engine.dialect.name == "postgresql":
        with engine.begin() as conn:
            names = conn.execute(
                text("SELECT proname FROM pg_proc WHERE proname LIKE 'landed\\_%'")
            ).scalars()
            for name in names.all():
                conn.execute(text(f"DROP FUNCTION {name}()"))
