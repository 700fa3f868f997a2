"""The socket that listens, the sweep over its sessions, and the way to end them all."""

from __future__ import annotations

import asyncio
from typing import Final

from landed.clock import Clock, WallMs
from landed.engines.port import Engine
from landed.errors import ListenFailedError
from landed.facts import Note, forget
from landed.limits import Limits
from landed.server.admission import Admission
from landed.server.counters import Counters
from landed.server.session import Session
from landed.server.shared import Shared

BACKLOG: Final = 4096
"""Connections the kernel completes before we accept them. A short queue drops the dials of a
connection storm, and each of those waits a second before it tries again."""
_SWEEP_MAX_S: Final = 0.5
_SWEEP_MIN_S: Final = 0.02


class Server:
    """A log that answers on a port. Made by ``serve``."""

    def __init__(self, engine: Engine, limits: Limits, clock: Clock, note: Note) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._note = note
        self._shared = Shared(
            engine,
            limits,
            note,
            self._loop,
            on_first=self._start_sweeping,
            on_empty=self._nobody_left,
            on_engine_stopped=self._engine_stopped,
        )
        self._listening: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        shortest = min(limits.idle_timeout_s, limits.send_timeout_s, limits.drain_timeout_s)
        self._sweep_s = min(max(shortest / 4, _SWEEP_MIN_S), _SWEEP_MAX_S)
        self.started_at: WallMs = clock.wall_ms()
        self.host = ""
        self.port = 0

    @property
    def counters(self) -> Counters:
        """What it counted since the start."""
        return self._shared.counters

    @property
    def admission(self) -> Admission:
        """How many request bytes it holds."""
        return self._shared.admission

    @property
    def connections(self) -> int:
        """Connections now, those included that are gone but still carried out."""
        return len(self._shared.sessions)

    @property
    def log_position(self) -> int:
        """Of the newest feed entry."""
        return self._shared.engine.position

    @property
    def unsent_bytes(self) -> int:
        """Answers that clients have not taken yet."""
        return sum(session.unsent_bytes for session in self._shared.sessions)

    @property
    def is_ready(self) -> bool:
        """It accepts connections, and the engine takes changes."""
        return self._listening is not None and not self._shared.engine.is_stopped

    async def listen(self, host: str, port: int) -> None:
        """Begin to accept connections.

        Raises:
            ListenFailedError: the address is taken, not ours or not allowed.
        """
        try:
            self._listening = await self._loop.create_server(
                lambda: Session(self._shared), host, port, backlog=BACKLOG
            )
        except OSError as error:
            raise ListenFailedError.of(host, port, error) from error
        name = self._listening.sockets[0].getsockname()
        self.host, self.port = name[0], name[1]
        self._note("server.listening", {"host": self.host, "port": self.port})

    async def wait_stopped(self) -> None:
        """Return when the engine stopped, so that nothing can be served any more (log rule C7)."""
        await self._stopped.wait()

    async def close(self, grace_s: float | None = None) -> None:
        """Stop accepting, answer what was received whole, and close every connection.

        What is not answered after ``grace_s`` seconds (default: ``shutdown_grace_s``) is cut off;
        the engine still carries it out. The engine stays open. Idempotent.
        """
        self._shared.is_closing = True
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for session in list(self._shared.sessions):
            session.finish()
        try:
            async with asyncio.timeout(self._grace(grace_s)):
                await self._empty.wait()
        except TimeoutError:
            self._cut_off()
            await asyncio.sleep(0)  # the transports say goodbye in the next turn
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if listening is not None:
            self._note("server.closed", {"port": self.port, "cut_off": self.connections})

    def _grace(self, grace_s: float | None) -> float:
        return self._limits.shutdown_grace_s if grace_s is None else grace_s

    def _cut_off(self) -> None:
        for session in list(self._shared.sessions):
            session.abort()

    def _start_sweeping(self) -> None:
        self._empty.clear()
        self._shared.now = self._loop.time()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    def _sweep(self) -> None:
        now = self._shared.now = self._loop.time()
        for session in list(self._shared.sessions):
            session.sweep(now)
        self._sweeper = None
        if self._shared.sessions:
            self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    def _nobody_left(self) -> None:
        self._empty.set()

    def _engine_stopped(self) -> None:
        """Nobody may be told anything: the outcome of what they wait for is not known."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._note("server.engine_stopped", {"connections": self.connections})
        self._shared.is_closing = True
        if self._listening is not None:
            self._listening.close()
        self._cut_off()


async def serve(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits | None = None,
    clock: Clock,
    note: Note = forget,
) -> Server:
    """Serve an engine on a port; 0 picks one. The engine is the caller's: closing it as well.

    There is neither authentication nor encryption in this version: whoever reaches the port may
    do everything. The command line therefore listens on loopback only.

    Raises:
        ListenFailedError: the address is taken, not ours or not allowed.
    """
    server = Server(engine, limits or Limits(), clock, note)
    await server.listen(host, port)
    return server
