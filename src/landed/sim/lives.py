"""A server that dies and is started again on the same disk, and the supervisor that does it.

A life ends with the machine (power, kernel), or because the engine stopped itself over a commit in
doubt. What a dead life still does reaches neither the disk nor the network nor the timeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from landed.engines.flush import FlushGate
from landed.engines.lane import Lane
from landed.server.listener import Server, serve
from landed.sim.disk import Disk
from landed.sim.history import History
from landed.sim.loop import on_host, sim_loop
from landed.sim.spindle import Flaw, SimStore
from landed.sim.watched import WatchedEngine

HOST: Final = "server"
PORT: Final = 10_000
ADDRESS: Final = f"{HOST}:{PORT}"


class _Life:
    """One process."""

    def __init__(self, lives: ServerLives) -> None:
        self._lives = lives
        self.ended = asyncio.Event()
        """The machine has crashed, or the engine has stopped itself."""
        self.store: SimStore = lives.disk.insert(on_crash=self._crashed, note=lives.noted)
        self.lane: Lane
        self._server: Server

    async def begin(self) -> None:
        """Open what is on the disk and serve it."""
        clock = sim_loop().clock(HOST)
        self.lane = Lane(self.store, limits=self._lives.disk.limits, clock=clock, note=self._note)
        await self.lane.open()
        watched = WatchedEngine(self.lane, self._lives.history, HOST, self.store)
        self._server = await serve(
            watched,
            host=HOST,
            port=PORT,
            limits=self._lives.disk.limits,
            clock=clock,
            note=self._note,
        )

    def _note(self, name: str, fields: Mapping[str, object]) -> None:
        if self.store.is_dead:
            return
        self._lives.noted(name, fields)
        if name == "lane.committed":
            self.store.published()
        elif name == "lane.stopped":
            self.ended.set()

    def _crashed(self) -> None:
        self.ended.set()
        self._lives.crashed()

    async def close(self, grace_s: float | None = None) -> None:
        """End it, in good order if it still lives."""
        await self._server.close(grace_s)
        await self.lane.close()


class ServerLives:
    """The server of a world, through all its lives."""

    def __init__(self, disk: Disk, history: History, rng: Random, *, down_s: float) -> None:
        """``down_s``: the longest time between two lives."""
        self.disk = disk
        self.history = history
        self.noted = history.noter(HOST)
        self._rng = rng
        self._down_s = down_s
        self._life: _Life | None = None
        self._up = asyncio.Event()
        self._burials: list[asyncio.Task[None]] = []
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def gate(self) -> FlushGate | None:
        """Of the present life's flushes; None between two lives."""
        return None if self._life is None else self._life.lane.gate

    async def start(self) -> None:
        """Begin the first life, and have a supervisor begin the next ones."""
        await self._begin()
        self._supervisor = asyncio.create_task(self._supervise())

    async def be_up(self) -> None:
        """Return once somebody serves.

        Raises:
            LandedError: the log cannot be opened any more.
        """
        assert self._supervisor is not None
        waiting = asyncio.create_task(self._up.wait())
        await asyncio.wait({waiting, self._supervisor}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._supervisor.done():
            await self._supervisor

    def crash(self) -> None:
        """The machine dies between two commits."""
        if self._life is not None:
            self._life.store.crash()

    def spoil(self, flaw: Flaw) -> None:
        """Let something happen to the next commit."""
        if self._life is not None:
            self._life.store.flaw = flaw

    def spare(self) -> None:
        """Take back whatever was to happen to a commit."""
        if self._life is not None:
            self._life.store.flaw = None
            self._life.lane.gate.slow_s = 0.0
            self._life.lane.gate.fails_next = None

    def crashed(self) -> None:
        """A machine has died this moment: from now on nothing of it is seen."""
        is_silent = self._rng.random() < 0.5
        self.history.note(HOST, "server.crashed", silent=is_silent)
        sim_loop().network.cut_off(HOST, is_silent=is_silent)
        life, self._life = self._life, None
        self._up.clear()
        if life is not None:
            with on_host(HOST):
                self._burials.append(asyncio.create_task(life.close(0)))

    async def close(self) -> None:
        """End the last life in good order, and see that nothing is left of the others."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        if self._life is not None:
            await self._life.close()
        for burial in self._burials:
            await burial

    async def _begin(self) -> None:
        with on_host(HOST):
            life = _Life(self)
            await life.begin()
        self._life = life
        self._up.set()

    async def _supervise(self) -> None:
        while True:
            life = self._life
            assert life is not None
            await life.ended.wait()
            if self._life is life:  # it stopped itself: `landed serve` exits then
                self._life = None
                self._up.clear()
                await life.close(0)
            await asyncio.sleep(self._down_s * self._rng.random())
            sim_loop().network.light(HOST)
            await self._begin()
            self.history.note(HOST, "server.started")
