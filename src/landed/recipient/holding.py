"""Holding one key (and one order key) still while it is decided; where the databases differ.

PostgreSQL: transaction locks by number, which also tell a question that somebody is at it. SQLite:
one writer at a time, so the transaction becomes the writer before it reads anything.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, delete, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from landed.clock import Clock
from landed.errors import NotInTransactionError
from landed.fingerprint import digest_parts
from landed.recipient.refusals import Reason, RequestRefusedError
from landed.recipient.tables import keys

_LOCK_NOT_AVAILABLE: Final = "55P03"


def connection_of(target: Connection | Session) -> Connection:
    """The connection under a session, or the connection itself."""
    return target.connection() if isinstance(target, Session) else target


def now_us(conn: Connection, clock: Clock) -> int:
    """Now by the database's clock, microseconds since 1970; on SQLite this process is the database."""
    if conn.dialect.name == "postgresql":
        micros = text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        return int(conn.execute(micros).scalar_one())
    return int(clock.wall_ms()) * 1000


def hold(conn: Connection, *names: bytes, wait_s: float) -> None:
    """Keep everybody else from deciding about these names until the transaction ends.

    Raises:
        RequestRefusedError: somebody else did not let go in time (reason IN_PROGRESS).
        NotInTransactionError: the connection is in autocommit, so nothing can be held.
    """
    if conn.dialect.name == "postgresql":
        _hold_on_postgres(conn, names, wait_s)
        return
    try:
        # Changes nothing; makes this transaction the writer, and thus the only one that decides.
        conn.execute(delete(keys).where(keys.c.state == ""))
    except DBAPIError as e:
        if "locked" not in str(e.orig):
            raise
        raise _in_progress() from e
    driver: Any = conn.connection.driver_connection
    if not driver.in_transaction:
        raise NotInTransactionError("begin a transaction first; this connection is in autocommit")


def is_free(conn: Connection, name: bytes) -> bool:
    """Say whether nobody is deciding about a name now; then nobody will before this transaction ends."""
    if conn.dialect.name == "postgresql":
        return bool(
            conn.execute(
                text("SELECT pg_try_advisory_xact_lock_shared(:number)"), {"number": _number(name)}
            ).scalar_one()
        )
    try:
        hold(conn, name, wait_s=0)
    except RequestRefusedError:
        return False
    return True


def _hold_on_postgres(conn: Connection, names: tuple[bytes, ...], wait_s: float) -> None:
    driver: Any = conn.connection.driver_connection
    if getattr(driver, "autocommit", False) is True:
        raise NotInTransactionError("begin a transaction first; this connection is in autocommit")
    before = conn.execute(text("SELECT current_setting('lock_timeout')")).scalar_one()
    try:
        # A savepoint: a wait that ends does not spoil the caller's transaction.
        with conn.begin_nested():
            _set_lock_timeout(conn, f"{max(1, int(wait_s * 1000))}ms")
            for number in sorted(map(_number, names)):
                conn.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})
            _set_lock_timeout(conn, before)
    except DBAPIError as e:
        if getattr(e.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise _in_progress() from e


def _set_lock_timeout(conn: Connection, value: str) -> None:
    conn.execute(text("SELECT set_config('lock_timeout', :value, true)"), {"value": value})


def _number(name: bytes) -> int:
    """The lock's number, 64 bits. Two names that share one only wait for each other."""
    return int.from_bytes(digest_parts(b"landed.recipient", name)[:8], "big", signed=True)


def _in_progress() -> RequestRefusedError:
    return RequestRefusedError(Reason.IN_PROGRESS, "this key is being worked on; ask again later")


def make_durable(conn: Connection) -> None:
    """See that the commit is durable before anybody is answered: success here is a promise."""
    if conn.dialect.name == "postgresql":
        conn.execute(
            text(
                "SELECT set_config('synchronous_commit', 'on', true)"
                " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
            )
        )
