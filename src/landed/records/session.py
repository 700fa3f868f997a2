"""Where the databases differ, what time it is there, and the one place that commits."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, TypeVar
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Text,
    cast,
    create_engine,
    event,
    func,
    literal,
    literal_column,
    text,
    type_coerce,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from landed.clock import Clock, LedgerTime, SystemClock
from landed.errors import ConfigurationError, RetryTransactionError, StorageError
from landed.fingerprint import keyed_digest
from landed.records.severable import Severable

T = TypeVar("T")

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a SQLite writer waits for another; longer than any transaction of ours."""
RETRIES_MAX: Final = 5
"""Serialization failures and deadlocks of our own transactions are tried again this often."""
_MICROS: Final = 1_000
DATABASE_CLOCK: Final[ColumnElement[int]] = literal_column(
    "(extract(epoch from clock_timestamp()) * 1000000)::bigint", BigInteger
)
"""Microseconds since 1970, by PostgreSQL's own clock."""

_UUID_PARTS: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))

_RAISE: Final = (
    "SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit')"
    " IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, true)"
)
_RAISE_AND_BOUND: Final = (
    f"{_RAISE}, set_config('statement_timeout', %(ms)s, true),"
    " set_config('idle_in_transaction_session_timeout', %(ms)s, true)"
)

# SQLSTATE: serialization failure, deadlock. Nothing of the transaction was kept.
_RETRYABLE_STATES: Final = frozenset({"40001", "40P01"})


@dataclass(frozen=True, slots=True)
class Books:
    """What every record of one ledger needs: its name, its digest key, and a clock.

    The ledger's name is part of every derived key, and the digest key of every identity; both are
    checked at start against what the database remembers (design decisions 25 and 30).
    """

    ledger: str
    digest_key: bytes = field(repr=False)
    clock: Clock = field(default_factory=SystemClock)
    _time: LedgerTime = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_time", LedgerTime(self.clock))

    def at(self, conn: Connection) -> ColumnElement[int]:
        """Now, by the clock that orders leases and due times, as an SQL expression.

        PostgreSQL: the server's own clock at this statement (``now()`` stands still inside a
        transaction). SQLite: this process's clock, as a bound parameter (design decision 25).
        """
        if is_postgres(conn.dialect):
            return DATABASE_CLOCK
        return literal(self.now_us(), BigInteger)

    def now_us(self) -> int:
        """This process's clock, microseconds since 1970; never below what it said before (SQ-18).

        On SQLite nor below what another process stored before this one started.
        """
        return self._time.now_us()

    def wall_us(self) -> int:
        """The host's clock as it is, microseconds since 1970: to be compared with others' clocks."""
        return int(self.clock.wall_ms()) * _MICROS

    def not_below(self, stored_us: int) -> int:
        """Go on from a stored time; returns how far the host's clock is behind it (SQ-18)."""
        return self._time.not_below(stored_us)

    def identity_digest(self, *parts: str) -> bytes:
        """The keyed digest of an identity, over its parts as received (rule ID-2)."""
        return keyed_digest(self.digest_key, *(part.encode() for part in parts))

    def new_id(self) -> UUID:
        """A UUID of version 7: rising with time, so that rows of one time lie together."""
        stamp = (self.now_us() // _MICROS) & ((1 << 48) - 1)
        bits = int.from_bytes(os.urandom(10), "big")
        number = stamp << 80 | bits
        number = number & ~(0xF << 76) | 7 << 76
        number = number & ~(0x3 << 62) | 2 << 62
        return UUID(int=number)


def is_postgres(dialect: Dialect) -> bool:
    return dialect.name == "postgresql"


def uuid_text(conn: Connection, column: ColumnElement[UUID]) -> ColumnElement[str]:
    """A UUID column as the text that ``str(UUID)`` gives, for comparing with text columns."""
    if is_postgres(conn.dialect):
        return cast(column, Text)
    raw = type_coerce(column, Text)
    parts = [func.substr(raw, start, size) for start, size in _UUID_PARTS]
    return reduce(lambda text, part: text.concat("-").concat(part), parts[1:], parts[0])


def open_engine(url: str, *, pool_size: int = 5) -> Engine:
    """Make an engine whose connections are durable: WAL and full sync, or PostgreSQL's own."""
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
        raise ConfigurationError(
            f"records live in sqlite:///PATH or postgresql://…, not {url.partition(':')[0]!r}"
        )
    if url.startswith("postgresql://"):
        url = "postgresql+psycopg://" + url.removeprefix("postgresql://")
    # A handler that takes too long has its connection taken away.
    options = {"factory": Severable} if url.startswith("sqlite:") else {}
    try:
        engine = create_engine(
            url, pool_size=pool_size, max_overflow=pool_size, connect_args=options
        )
    except (ArgumentError, ValueError):
        # Neither the text nor the reason is shown: a password may stand in it.
        raise ConfigurationError(
            "this is no URL of a database; write sqlite:///PATH or "
            "postgresql://user@host:port/database"
        ) from None
    except ImportError as e:
        raise ConfigurationError(
            f"{url.partition(':')[0]} needs an extra: pip install 'landed[postgres]' ({e})"
        ) from None
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    return engine


def close_engine(engine: Engine) -> None:
    """Close its connections: those at rest now, and each that a thread still uses as it comes back.

    Nobody waits for such a thread, and without this its session would stay open at the server.
    """
    pool = engine.pool
    engine.dispose()  # and has a new pool, for whoever uses it again: that one keeps what it opens
    event.listen(pool, "checkin", _close_what_comes_late)
    pool.dispose()  # what came back in between


def _close_what_comes_late(_connection: object, entry: ConnectionPoolEntry) -> None:
    entry.invalidate()


def configure_sqlite(engine: Engine) -> None:
    """Set up a SQLite engine, ours or a user's: WAL, full sync, writers that wait (SQ-15, SQ-16).

    A transaction begins as a writer, because one that read first cannot become a writer after
    another commit: it fails at once, and no waiting helps.
    """

    @event.listens_for(engine, "connect")
    def _prepare(connection: object, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]  # the driver must not begin
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN IMMEDIATE")


def check_durability(conn: Connection, *, is_relaxed: bool = False) -> None:
    """Refuse a database that would lose an acknowledged commit (rule SQ-4).

    Raises:
        ConfigurationError: naming the setting, unless ``is_relaxed`` was asked for by name.
    """
    weak: list[str] = []
    if is_postgres(conn.dialect):
        for setting, losing in (("fsync", {"off"}), ("full_page_writes", {"off"})):
            value = conn.exec_driver_sql(f"SHOW {setting}").scalar_one()
            if value in losing:
                weak.append(f"{setting}={value}")
    else:
        level = conn.exec_driver_sql("PRAGMA synchronous").scalar_one()
        if int(level) < 2:
            weak.append(f"synchronous={level}")
    if weak and not is_relaxed:
        raise ConfigurationError(
            f"this database may lose acknowledged commits ({', '.join(weak)}); change that, or ask "
            "for the relaxed mode by name"
        )


def raise_durability(conn: Connection, *, limit_ms: int | None = None) -> None:
    """See that this transaction's commit is durable before it is answered (rule SQ-4).

    Args:
        conn: at the begin of the transaction.
        limit_ms: PostgreSQL ends a statement of it, or a pause between two, that takes longer.
    """
    if not is_postgres(conn.dialect):
        return
    if limit_ms is None:
        conn.exec_driver_sql(_RAISE)
    else:
        conn.exec_driver_sql(_RAISE_AND_BOUND, {"ms": str(limit_ms)})


def transact(
    engine: Engine,
    work: Callable[[Connection], T],
    *,
    is_durable: bool = True,
    tries_max: int = RETRIES_MAX,
) -> T:
    """Run one transaction and commit it: the only place in the product that commits records.

    Serialization failures and deadlocks are tried again, since nothing of them was kept. Anything
    else is translated and raised; after a commit whose answer was lost ``is_outcome_known`` is
    False, and the caller must look before it does anything again.

    Raises:
        StorageError: the database failed.
    """
    for attempt in range(1, tries_max + 1):
        is_committing = False
        try:
            with engine.connect() as conn, conn.begin() as transaction:
                if is_durable:
                    raise_durability(conn)
                result = work(conn)
                is_committing = True
                transaction.commit()
                return result
        except RetryTransactionError:
            if attempt == tries_max:
                raise
        except DBAPIError as e:
            is_lost = is_committing and _is_commit_answer_lost(e)
            if is_retryable(e) and not is_lost and attempt < tries_max:
                continue
            raise StorageError(
                f"the database failed: {_first_line(e)}",
                is_outcome_known=not is_lost,
            ) from e
    raise AssertionError("unreachable")


def is_retryable(error: DBAPIError) -> bool:
    """Say whether the database refused a whole transaction that may simply be run again."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _RETRYABLE_STATES
    return isinstance(error, OperationalError) and "locked" in str(error.orig)


def as_retry(error: DBAPIError) -> RetryTransactionError | None:
    """A user's own transaction must be run again by the user (rule SQ-6); None if it need not."""
    if not is_retryable(error):
        return None
    retry = RetryTransactionError(
        "the database refused the whole transaction; run it again. On SQLite begin it with "
        "BEGIN IMMEDIATE (landed.records.session.configure_sqlite does)"
    )
    retry.__cause__ = error
    return retry


def jittered_us(base_us: int, tries: int, cap_us: int, chance: random.Random) -> int:
    """A capped exponential delay with full jitter, microseconds (rules HN-6, AT-12)."""
    return chance.randint(0, min(cap_us, base_us * 2 ** min(tries, 32)))


def is_undefined_table(error: DBAPIError) -> bool:
    """Say whether the tables are not there yet."""
    return getattr(error.orig, "sqlstate", None) == "42P01" or "no such table" in str(error.orig)


def _is_commit_answer_lost(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    return getattr(error.orig, "sqlstate", None) is None and not is_retryable(error)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]


def ping(engine: Engine) -> None:
    """Ask the database anything.

    Raises:
        StorageError: it cannot be reached.
    """
    try:
        with engine.connect() as conn:
            conn.execute(text("SELECT 1"))
    except DBAPIError as e:
        raise StorageError(f"the database cannot be reached: {_first_line(e)}") from e
