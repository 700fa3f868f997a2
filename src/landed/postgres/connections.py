"""Connections for synchronous work in threads: at most one for each thread, kept between calls.

The executor's queue is the only queue: whoever waits there holds nothing, so a caller that is
cancelled at any moment leaves no connection behind (BC-11). A connection is lent to one function on
one thread and looked at when it comes back, so nobody inherits a transaction (BC-12).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from landed.errors import StorageError
from landed.postgres.checks import open_connection
from landed.postgres.dsn import Dsn
from landed.postgres.faults import Phase, storage_error

T = TypeVar("T")

Work = Callable[[psycopg.Connection[Any]], T]
Prepare = Callable[[psycopg.Connection[Any]], None]

SIZE: Final = 4
"""Connections of one process, unless told otherwise."""


class Connections:
    """A few connections and the threads that use them.

    Args:
        dsn: where to.
        size: threads, and connections at most. From 1.
        prepare: run once on every new connection, outside a transaction.
    """

    def __init__(self, dsn: Dsn, *, size: int = SIZE, prepare: Prepare | None = None) -> None:
        self._dsn = dsn
        self._prepare = prepare
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="landed-postgres")
        self._idle: list[psycopg.Connection[Any]] = []
        self._running: set[_Call] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    async def run(
        self, work: Work[T], *, timeout_s: float, phase: Phase, is_repeatable: bool = False
    ) -> T:
        """Run a function with a connection on a thread.

        Args:
            work: must leave no transaction open; it is run once, or twice if ``is_repeatable`` and
                the connection turned out to be dead. It may outlive a caller that is cancelled.
            timeout_s: waiting for a thread and for the server, together.
            phase: what a lost connection means: ``COMMITTING`` if the work commits anything.
            is_repeatable: doing it twice is the same as doing it once.

        Raises:
            StorageError: the database failed, or not in time. ``is_outcome_known`` is False if it
                may have been done.
        """
        call = _Call()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, self._run, work, call, phase, is_repeatable)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except asyncio.CancelledError:
            # What has begun may end, but not keep its thread for ever.
            loop.call_later(timeout_s, call.give_up)
            raise
        except TimeoutError as e:
            has_begun = call.give_up()
            raise StorageError(
                f"{self._dsn.place} gave no answer within {timeout_s:g} s",
                is_outcome_known=not (has_begun and phase is Phase.COMMITTING),
            ) from e

    def close(self) -> None:
        """Give up what is running, and close every connection."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for call in running:
            call.give_up()
        self._drop_idle()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, work: Work[T], call: _Call, phase: Phase, is_repeatable: bool) -> T:
        """On a thread."""
        self._running.add(call)
        try:
            return self._try(work, call, phase, is_repeatable)
        finally:
            self._running.discard(call)

    def _try(self, work: Work[T], call: _Call, phase: Phase, is_repeatable: bool) -> T:
        while True:
            connection, is_fresh = self._take(call)
            try:
                return work(connection)
            except psycopg.Error as e:
                if not connection.broken:
                    raise storage_error(e, phase) from e
                # Whatever cut this one off has cut off the others that wait with it.
                self._drop_idle()
                if is_fresh or not is_repeatable or call.is_given_up:
                    raise storage_error(e, phase) from e
            finally:
                self._put_back(connection, call)

    def _take(self, call: _Call) -> tuple[psycopg.Connection[Any], bool]:
        with self._lock:
            known = self._idle.pop() if self._idle else None
        connection = known or open_connection(self._dsn)
        call.hold(connection)
        if call.is_given_up:
            self._put_back(connection, call)
            raise StorageError("given up before it began")
        if known is None and self._prepare is not None:
            try:
                self._prepare(connection)
            except psycopg.Error as e:
                connection.close()
                raise storage_error(e, Phase.CONNECTING, doing=self._dsn.place) from e
        return connection, known is None

    def _put_back(self, connection: psycopg.Connection[Any], call: _Call) -> None:
        """Keep a connection that is as clean as a new one; close any other."""
        call.release()
        is_clean = connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            if is_clean and not call.is_given_up and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _Call:
    """One piece of work, and the way to pull its thread out of a silent socket."""

    __slots__ = ("_connection", "_lock", "is_given_up")

    def __init__(self) -> None:
        self.is_given_up = False
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()

    def hold(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            self._connection = connection

    def release(self) -> None:
        with self._lock:
            self._connection = None

    def give_up(self) -> bool:
        """Nobody waits any more. Says whether the work may have begun.

        A server that was stopped, not killed, keeps its sockets: nothing but closing our end brings
        the thread back.
        """
        with self._lock:
            self.is_given_up = True
            if self._connection is None:
                return False
            with suppress(OSError, psycopg.Error):
                ours = socket.socket(fileno=os.dup(self._connection.fileno()))
                ours.shutdown(socket.SHUT_RDWR)
                ours.close()
            return True
