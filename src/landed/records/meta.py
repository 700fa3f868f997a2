"""What a database remembers about itself, and the checks before anybody works on it."""

from __future__ import annotations

import hmac
from typing import Final

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.errors import ConfigurationError
from landed.records.migrations import check_version, migrate
from landed.records.session import Books, check_durability, is_postgres, transact
from landed.records.tables import meta

LEDGER: Final = "ledger"
DIGEST_KEY_CHECK: Final = "digest_key_check"
INSTALLATION: Final = "installation"


def prepare(
    engine: Engine, books: Books, *, is_migrating: bool = True, is_relaxed: bool = False
) -> None:
    """Make a database ready for a ledger, or refuse to start on it.

    Any number of replicas may do so at once. The first start of a ledger writes down its name and a
    check value of its digest key; later starts must bring the same (design decisions 25 and 30).

    Args:
        engine: of the records.
        books: the ledger's.
        is_migrating: apply what is missing; else only check (``landed migrate`` is run apart).
        is_relaxed: accept a database that may lose acknowledged commits.

    Raises:
        ConfigurationError: another ledger's name, another digest key, or weak durability.
        StorageForeignError: tables of another version.
        StorageError: the database failed.
    """
    if is_migrating:
        migrate(engine, books)
    transact(engine, lambda conn: _check(conn, books, is_relaxed=is_relaxed))


def read(conn: Connection, name: str) -> str | None:
    """A value the database remembers under a name."""
    return conn.execute(select(meta.c.value).where(meta.c.name == name)).scalar()


def write(conn: Connection, name: str, value: str) -> None:
    """Remember a value under a name, in place of the one before."""
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    conn.execute(
        dialect.insert(meta)
        .values(name=name, value=value)
        .on_conflict_do_update(index_elements=["name"], set_={"value": value})
    )


def remember_once(conn: Connection, name: str, value: str) -> str:
    """Remember a value unless one is remembered already; returns what stands."""
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    conn.execute(dialect.insert(meta).values(name=name, value=value).on_conflict_do_nothing())
    stands = read(conn, name)
    assert stands is not None, "a row that hindered an insert can be read"
    return stands


def _check(conn: Connection, books: Books, *, is_relaxed: bool) -> None:
    check_durability(conn, is_relaxed=is_relaxed)
    check_version(conn)
    remember_once(conn, INSTALLATION, str(books.new_id()))
    ledger = remember_once(conn, LEDGER, books.ledger)
    if ledger != books.ledger:
        raise ConfigurationError(
            f"this database belongs to ledger {ledger!r}, not {books.ledger!r}: the name is part of "
            "every idempotency key, so another one would do every effect again"
        )
    check = books.identity_digest("landed digest key check").hex()
    if not hmac.compare_digest(remember_once(conn, DIGEST_KEY_CHECK, check), check):
        raise ConfigurationError(
            "the digest key is not the one this database was begun with: no repeat would be "
            "recognised. Bring back the key (LANDED_DIGEST_KEY, or its file)"
        )
