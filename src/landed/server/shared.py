"""What the sessions of one server have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from landed.engines.port import Engine
from landed.facts import Note
from landed.limits import Limits
from landed.server.admission import Admission
from landed.server.counters import Counters

RECEIVE_BYTES: Final = 256 * 1024
"""What one read from a socket may bring; as much as a transport would allocate by itself."""
CROWDED_RECEIVE_BYTES: Final = 4 * 1024
"""The same once the server holds too much: a read brings bytes before anybody can stop it."""


class Served(Protocol):
    """A session, as far as the others of its server and the server itself deal with it."""

    @property
    def unsent_bytes(self) -> int: ...

    def flush(self) -> None: ...

    def sweep(self, now: float) -> None: ...

    def finish(self) -> None: ...

    def drop_slow(self, reason: str) -> None: ...

    def abort(self) -> None: ...


class Shared:
    """The engine, the bounds, the books, and one flush a loop turn.

    All sessions read into one buffer: a transport asks for it, fills it and hands it over in one
    step, and the session copies out of it at once. A buffer for each of 4,096 connections would
    be a gigabyte.
    """

    __slots__ = (
        "_loop",
        "_marked",
        "admission",
        "buffer",
        "choked",
        "counters",
        "crowded_buffer",
        "engine",
        "is_closing",
        "limits",
        "note",
        "now",
        "on_empty",
        "on_engine_stopped",
        "on_first",
        "sessions",
        "unsent",
    )

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        note: Note,
        loop: asyncio.AbstractEventLoop,
        *,
        on_first: Callable[[], None],
        on_empty: Callable[[], None],
        on_engine_stopped: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.note = note
        self.counters = Counters()
        self.admission = Admission(limits.admitted_bytes_max)
        self.sessions: dict[Served, None] = {}
        """Those with a connection, and those that still have to carry out what it had sent."""
        self.choked: dict[Served, None] = {}
        """Those whose clients do not take their answers fast enough, the longest so first."""
        self.now = loop.time()
        """Loop time of the last sweep: a coarse clock that costs nothing to read."""
        self.is_closing = False
        self.on_first = on_first
        self.on_empty = on_empty
        self.on_engine_stopped = on_engine_stopped
        self._loop = loop
        self._marked: list[Served] = []
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        """Where the next read of any session goes; to be copied before the one after it."""
        self.crowded_buffer = self.buffer[:CROWDED_RECEIVE_BYTES]
        """The same while ``admission.is_full``."""

    def joined(self, session: Served) -> None:
        """A connection begins."""
        if not self.sessions:
            self.on_first()
        self.sessions[session] = None

    def left(self, session: Served) -> None:
        """A connection is gone, and everything it had sent whole is carried out."""
        self.sessions.pop(session, None)
        if not self.sessions:
            self.on_empty()

    def mark(self, session: Served) -> None:
        """Flush a session at the end of this loop turn, once, with all that is ready by then."""
        if not self._marked:
            self._loop.call_soon(self._flush)
        self._marked.append(session)

    def relieve(self) -> None:
        """Drop clients that do not read, the longest choked first, while too much is unsent.

        Their answers take the memory that everybody's requests need.
        """
        while sum(session.unsent_bytes for session in self.choked) > self.limits.admitted_bytes_max:
            next(iter(self.choked)).drop_slow("too much unsent over all connections")

    def _flush(self) -> None:
        marked, self._marked = self._marked, []
        for session in marked:
            session.flush()
