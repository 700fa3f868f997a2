"""A SQLite connection that another thread may take away from the one that uses it.

SQLite lets any thread interrupt a statement, but a connection must not be closed while a statement
runs on it: the thread that waits for the statement would go on in freed memory, and the process dies.
So every call that reaches SQLite is made under a lock of the connection, and whoever takes the
connection away closes it under the same lock; if a statement will not end, its own thread closes it
afterwards.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet

R = TypeVar("R")

SEVER_S: Final = 1.0
"""How long ``sever`` waits for a statement that it interrupted; then it is closed by its own thread."""
_AGAIN_S: Final = 0.05
"""An interrupt that came just before the statement began was lost, so it is repeated this often."""


class Severable(sqlite3.Connection):
    """A connection for one thread at a time, and for ``sever``. Needs ``check_same_thread=False``."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # Re-entrant: a function of the user's may be called by a statement and run another one.
        self._turn = threading.RLock()
        self._depth = 0
        self._is_severed = False
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def sever(self) -> None:
        """Take the connection away: what its transaction wrote is rolled back, later calls fail.

        From any thread but one that is within a call. Returns within about ``SEVER_S``.
        """
        self._is_severed = True
        until = time.monotonic() + SEVER_S
        while True:
            with suppress(sqlite3.ProgrammingError):  # its thread closed it in this moment
                self.interrupt()
            if self._turn.acquire(timeout=_AGAIN_S):
                self._turn.release()
                self._end()
                return
            if time.monotonic() >= until:
                return  # whoever is within a call sees the mark when it ends

    def call(self, work: Callable[..., R], *given: Any) -> R:
        """Make one call that reaches SQLite.

        Raises:
            sqlite3.ProgrammingError: the connection was taken away.
        """
        try:
            with self._turn:
                if self._is_severed:
                    raise sqlite3.ProgrammingError(
                        "this connection was taken away: it took too long"
                    )
                self._depth += 1
                try:
                    return work(*given)
                finally:
                    self._depth -= 1
        finally:
            # After the lock was let go: either this sees the mark, or ``sever`` finds the lock free.
            if self._is_severed:
                self._end()

    def _end(self) -> None:
        """Roll back and close, unless somebody is within a call; he does it then. Idempotent."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._depth > 0:
                return
            # While one of them has rows left, the interrupt stands and would break the rollback too;
            # and closing the connection alone would leave the transaction open as long.
            for cursor in list(self._cursors):
                with suppress(sqlite3.Error):
                    cursor.close()
            with suppress(sqlite3.Error):
                super().rollback()
            super().close()
        finally:
            self._turn.release()

    def cursor(self, factory: Any = None) -> Any:
        """See ``sqlite3.Connection``."""
        return self.call(self._made, _Cursor if factory is None else factory)

    def _made(self, factory: Any) -> Any:
        made = super().cursor(factory)
        self._cursors.add(made)
        return made

    def execute(self, *given: Any) -> Any:
        """See ``sqlite3.Connection``, whose own would not pass through the cursor's ``execute``."""
        return self.cursor().execute(*given)

    def executemany(self, *given: Any) -> Any:
        """See ``execute``."""
        return self.cursor().executemany(*given)

    def executescript(self, script: str, /) -> Any:
        """See ``execute``."""
        return self.cursor().executescript(script)

    def commit(self) -> None:
        """See ``sqlite3.Connection``."""
        self.call(super().commit)

    def rollback(self) -> None:
        """See ``sqlite3.Connection``."""
        self.call(super().rollback)

    def close(self) -> None:
        """See ``sqlite3.Connection``. Never fails on one that was taken away."""
        with self._turn:
            super().close()


class _Cursor(sqlite3.Cursor):
    """A cursor whose every step is a call of its connection."""

    connection: Severable

    def execute(self, *given: Any) -> Any:
        return self.connection.call(super().execute, *given)

    def executemany(self, *given: Any) -> Any:
        return self.connection.call(super().executemany, *given)

    def executescript(self, script: str, /) -> Any:
        return self.connection.call(super().executescript, script)

    def fetchone(self) -> Any:
        return self.connection.call(super().fetchone)

    def fetchmany(self, *given: Any, **named: Any) -> Any:
        return self.connection.call(lambda: super(_Cursor, self).fetchmany(*given, **named))

    def fetchall(self) -> Any:
        return self.connection.call(super().fetchall)

    def __next__(self) -> Any:
        return self.connection.call(super().__next__)

    def close(self) -> None:
        """See ``sqlite3.Cursor``. Never fails on a connection that was taken away."""
        with self.connection._turn:
            try:
                super().close()
            except sqlite3.ProgrammingError:
                if not self.connection._is_severed:
                    raise
