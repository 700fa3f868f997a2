"""A server over the engine in memory, on whatever loop the test runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from landed.clock import SystemClock
from landed.engines.lane import Lane
from landed.engines.memory import open_memory
from landed.limits import Limits
from landed.server import Server, serve


class Scene:
    """What a test holds: the server, its engine, and the facts both noted."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, Mapping[str, object]]] = []
        self.engine: Lane
        self.server: Server

    @property
    def port(self) -> int:
        return self.server.port

    def note(self, name: str, fields: Mapping[str, object]) -> None:
        self.facts.append((name, fields))

    def count(self, name: str) -> int:
        return sum(noted == name for noted, _ in self.facts)


@asynccontextmanager
async def running(limits: Limits | None = None) -> AsyncIterator[Scene]:
    limits = limits or Limits()
    scene = Scene()
    clock = SystemClock()
    scene.engine = await open_memory(limits=limits, clock=clock, note=scene.note)
    scene.server = await serve(scene.engine, limits=limits, clock=clock, note=scene.note)
    try:
        yield scene
    finally:
        scene.engine.gate.release()
        await scene.server.close(grace_s=1.0)
        await scene.engine.close()


async def until(condition) -> None:
    """Wait for a condition; virtual time makes the pauses free."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
