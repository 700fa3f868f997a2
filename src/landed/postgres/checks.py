"""What a server must be before anything is entrusted to it, and what its commits are worth."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

from landed.errors import ConfigurationError, StorageError
from landed.postgres.dsn import Dsn
from landed.postgres.faults import Phase, storage_error

VERSION_MIN: Final = 14
"""The oldest major version that the project's own tests could still be run on by its vendor."""


class Server(NamedTuple):
    """Facts of the server, as one session of ours sees them."""

    version: int
    """The major version."""
    is_read_only: bool
    """A standby, or set read-only."""
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    standby_names: str
    """``synchronous_standby_names``; empty: a commit waits for no standby."""

    @property
    def losing(self) -> tuple[str, ...]:
        """The settings with which an acknowledged commit may be lost; empty if there are none."""
        weak = [
            f"{name}={value}"
            for name, value in (("fsync", self.fsync), ("full_page_writes", self.full_page_writes))
            if value == "off"
        ]
        if self.synchronous_commit == "off":
            weak.append("synchronous_commit=off")
        return tuple(weak)


def open_connection(dsn: Dsn, *, is_autocommit: bool = True) -> psycopg.Connection[Any]:
    """Open one connection, within ``connect_timeout`` for each host.

    Raises:
        StorageError: no server took it; the message is the server's or libpq's own, on one line.
    """
    try:
        return psycopg.connect(dsn.conninfo, autocommit=is_autocommit)
    except psycopg.Error as e:
        raise storage_error(e, Phase.CONNECTING, doing=dsn.place) from e


def look(connection: psycopg.Connection[Any]) -> Server:
    """Ask for the facts, in one statement.

    Raises:
        StorageError: the server did not answer.
    """
    try:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int / 10000,"
            " pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on',"
            " current_setting('fsync'), current_setting('full_page_writes'),"
            " current_setting('synchronous_commit'), current_setting('synchronous_standby_names')"
        ).fetchone()
    except psycopg.Error as e:
        raise storage_error(e, Phase.WORKING) from e
    if row is None:
        raise StorageError("the server did not say what it is")
    return Server(*row)


def check(server: Server) -> None:
    """Refuse a server that cannot do the work. What its commits are worth is not judged here.

    Raises:
        ConfigurationError: it is too old, or takes no writes.
    """
    if server.version < VERSION_MIN:
        raise ConfigurationError(
            f"PostgreSQL {server.version} is too old: {VERSION_MIN} or newer is needed"
        )
    if server.is_read_only:
        raise ConfigurationError(
            "this server takes no writes, it is a standby perhaps: name the primary, or all hosts "
            "(host1,host2) and the one that takes writes is found"
        )
