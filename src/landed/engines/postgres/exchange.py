"""Several statements in one round trip, prepared once a connection, with binary values both ways.

Straight on libpq's pipeline mode. The driver's own pipeline does the same with a cursor, an adapter
and a wait for each statement, which costs a lone write more than the server's work on it; and it
forgets all prepared statements after every rollback. Everything else here uses the driver as it is.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

LOST_STATEMENT: Final = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
)
"""What comes back when a pooler hands on a session that does not hold what this connection prepared."""
_FAILED: Final = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)


class Statement:
    """A statement with numbered parameters (``$1``)."""

    __slots__ = ("name", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = sql.encode()
        self.name = b"landed_" + blake2b(self.sql, digest_size=8).hexdigest().encode()
        """Under which it is prepared. Made of its text: behind a pooler that shares sessions, what
        another version of this code prepared must not be taken for it."""


class Call(NamedTuple):
    """A statement and the values of its parameters, encoded as PostgreSQL's binary formats."""

    statement: Statement
    values: Sequence[bytes | None] = ()


class Exchange:
    """Runs calls on one connection, which is in no transaction or in one that earlier calls began."""

    __slots__ = ("_connection", "_pgconn", "_poll", "_prepared", "_prepares")

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        """Without ``prepares`` every call is parsed anew, as some poolers need it."""
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepares = prepares
        self._prepared: set[bytes] = set()
        self._poll = select.poll()

    def run(
        self, calls: Sequence[Call], *, within_s: float | None = None
    ) -> list[list[tuple[Any, ...]]]:
        """Send all calls at once and wait for all results; the rows of each, in order.

        After the first that fails the server skips the rest.

        Args:
            calls: what to run.
            within_s: how long a server may keep silent before the connection is given up; None
                waits as long as it takes, as a commit must that may wait for a standby.

        Raises:
            psycopg.Error: of the first call that failed, or the connection is lost.
        """
        pgconn = self._pgconn
        if pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        pgconn.enter_pipeline_mode()
        try:
            expected = [self._send(call) for call in calls]
            pgconn.pipeline_sync()
            results = self._receive(sum(expected), within_s)
        except psycopg.Error:
            # Half an exchange is left in it.
            self._connection.close()
            raise
        pgconn.exit_pipeline_mode()
        rows: list[list[tuple[Any, ...]]] = []
        at = 0
        for call, count in zip(calls, expected, strict=True):
            if count == 2 and results[at].status == ExecStatus.COMMAND_OK:
                self._prepared.add(call.statement.name)
            at += count
        self._raise_first(results)
        at = -1
        for count in expected:
            at += count
            rows.append(self._rows(results[at]))
        return rows

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()

    def hang_up(self) -> None:
        """Shut the connection's socket under the thread that waits for it; from any thread.

        The server is not asked to cancel anything: what it was told to commit, it commits.
        """
        with (
            suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self._connection.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    def _send(self, call: Call) -> int:
        """Queue a call; how many results it brings."""
        statement, values = call
        name, sql = statement.name, statement.sql
        formats = [Format.BINARY] * len(values)
        if not self._prepares:
            self._pgconn.send_query_params(
                sql, values, param_formats=formats, result_format=Format.BINARY
            )
            return 1
        is_new = name not in self._prepared
        if is_new:
            self._pgconn.send_prepare(name, sql)
        self._pgconn.send_query_prepared(
            name, values, param_formats=formats, result_format=Format.BINARY
        )
        return 1 + is_new

    def _receive(self, count: int, within_s: float | None) -> list[PGresult]:
        """Wait for so many results and the end of the exchange."""
        pgconn = self._pgconn
        results: list[PGresult] = []
        while True:
            self._wait(within_s)
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    if pgconn.status != ConnStatus.OK:
                        self._raise_first(results)
                        raise psycopg.OperationalError(pgconn.get_error_message())
                    continue
                if result.status == ExecStatus.PIPELINE_SYNC:
                    return results
                results.append(result)
                if len(results) > count:
                    # The connection is lost: libpq tells so in results of its own.
                    self._raise_first(results)
                    raise psycopg.OperationalError(pgconn.get_error_message())

    def _wait(self, within_s: float | None) -> None:
        """Send what is queued and wait for something to come.

        Raises:
            psycopg.OperationalError: nothing went out or came in for ``within_s``.
        """
        pgconn = self._pgconn
        descriptor = pgconn.socket
        while True:
            is_flushed = not pgconn.flush()
            self._poll.register(
                descriptor, select.POLLIN if is_flushed else select.POLLIN | select.POLLOUT
            )
            ready = self._poll.poll(None if within_s is None else within_s * 1000)
            self._poll.unregister(descriptor)
            if not ready:
                raise psycopg.OperationalError(f"the server kept silent for {within_s:g} s")
            ((_, events),) = ready
            if events & ~select.POLLOUT:
                pgconn.consume_input()
                return

    def _rows(self, result: PGresult) -> list[tuple[Any, ...]]:
        if not result.ntuples:
            return []
        transformer = Transformer.from_context(self._connection)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def _raise_first(self, results: Sequence[PGresult]) -> None:
        for result in results:
            if result.status in _FAILED:
                raise error_from_result(result, encoding="utf-8")
