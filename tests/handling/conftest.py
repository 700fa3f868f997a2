"""Databases for the tests of the handling wing: every test runs on SQLite and on PostgreSQL.

``ledger_db`` is a fresh, migrated database. A test of one database only says so:
``@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection, Engine

from landed.records.meta import prepare
from landed.records.session import Books, close_engine, open_engine, transact
from tests.handling import postgres

T = TypeVar("T")

LEDGER = "tests"
DIGEST_KEY = b"the tests' own digest key"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_named = any(
        "ledger_db" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")
    )
    if "ledger_db" in metafunc.fixturenames and not is_named:
        metafunc.parametrize("ledger_db", ["sqlite", "postgres"], indirect=True)


@dataclass
class LedgerDb:
    """One fresh database with our tables. ``url`` serves other processes as well."""

    dialect: str
    """``sqlite`` or ``postgres``."""
    url: str
    books: Books
    engine: Engine
    given: Engine | None = None
    """What a program hands to its ledger in place of the URL."""
    _opened: list[Engine] = field(default_factory=list)

    @property
    def is_postgres(self) -> bool:
        return self.dialect == "postgres"

    def open(self, *, pool_size: int = 5) -> Engine:
        """Another engine on the same database, closed with the test."""
        engine = open_engine(self.url, pool_size=pool_size)
        self._opened.append(engine)
        return engine

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run one transaction, as production code does."""
        return transact(self.engine, work)

    def close(self) -> None:
        for engine in [self.engine, *self._opened]:
            close_engine(engine)


@pytest.fixture
def books() -> Books:
    """The books that ``ledger_db`` was prepared for; ``ledger_db.books`` is the same value."""
    return Books(LEDGER, DIGEST_KEY)


@pytest.fixture(scope="session")
def postgres_template(postgres_cluster: postgres.Cluster) -> str:
    name = postgres_cluster.create(name="prepared")
    engine = open_engine(postgres_cluster.url(name))
    prepare(engine, Books(LEDGER, DIGEST_KEY))
    engine.dispose()
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "prepared.db"
    engine = open_engine(f"sqlite:///{path}")
    prepare(engine, Books(LEDGER, DIGEST_KEY))
    with engine.connect() as conn:
        conn.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@pytest.fixture
def ledger_db(request: pytest.FixtureRequest, books: Books) -> Iterator[LedgerDb]:
    dialect = request.param
    if dialect == "sqlite":
        path = request.getfixturevalue("tmp_path") / "ledger.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        url = f"sqlite:///{path}"
    else:
        assert dialect == "postgres"
        cluster = request.getfixturevalue("postgres_cluster")
        name = cluster.create(request.getfixturevalue("postgres_template"))
        url = cluster.url(name)
    db = LedgerDb(dialect, url, books, open_engine(url))
    yield db
    db.close()
    if dialect == "postgres":
        cluster.drop(name)


@pytest.fixture
def empty_postgres(postgres_cluster: postgres.Cluster) -> Iterator[str]:
    """The URL of a PostgreSQL database without our tables."""
    name = postgres_cluster.create()
    yield postgres_cluster.url(name)
    postgres_cluster.drop(name)
