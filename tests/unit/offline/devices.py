"""A device and the log it syncs with, for tests of the queue."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

from landed.client.embedded import EmbeddedLog
from landed.engines.memory import open_memory
from landed.errors import AggregateMissingError, TrimmedError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Event, Read, ReadFilters
from landed.offline import AsyncQueue, QueueLimits
from landed.offline.store import Store
from landed.sim import HostClock, on_host, sim_loop
from tests.stories.faulty import FaultyLog

NOTES = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
OTHERS = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=4))
CLIENT = UUID("de71ce00-0000-4000-8000-000000000001")

__all__ = ["CLIENT", "NOTES", "OTHERS", "Device", "HostClock", "on_host", "sim_loop", "world"]


class Device:
    """A device whose disk outlives its processes."""

    def __init__(self, limits: QueueLimits | None = None, client_id: UUID | None = CLIENT) -> None:
        self.limits = limits
        self.client_id = client_id
        self.disk = sqlite3.connect(":memory:", check_same_thread=False)
        self.facts: list[tuple[str, dict[str, object]]] = []
        self.start()

    def start(self) -> None:
        """A new process over what the last one left on the disk."""
        store = Store.over(
            self.disk, clock=sim_loop().clock(), limits=self.limits, client_id=self.client_id
        )
        self.store = store
        self.queue = AsyncQueue(
            store, rng=Random(1), note=lambda name, fields: self.facts.append((name, dict(fields)))
        )

    def copy_of_disk(self) -> sqlite3.Connection:
        """A backup."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        self.disk.backup(copy)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Put a backup back, and start from it."""
        copy.backup(self.disk)
        self.start()

    def numbers(self, name: str) -> list[dict[str, object]]:
        return [fields for fact, fields in self.facts if fact == name]

    async def put(self, *values: str, key: AggregateKey = NOTES) -> list[int]:
        return [(await self.queue.enqueue(key, 1, value.encode())).client_seq for value in values]


@asynccontextmanager
async def world(**options) -> AsyncIterator[tuple[Device, FaultyLog]]:
    log = EmbeddedLog(await open_memory(limits=Limits(), clock=sim_loop().clock()))
    async with log:
        device = Device(**options)
        yield device, FaultyLog(log)
        device.disk.close()


async def landed(log: FaultyLog, key: AggregateKey = NOTES) -> list[tuple[int, str]]:
    """Number and value of everything in the log, in its order."""
    events: list[Event] = []
    try:
        async for batch in log.read_all(Read(key)):
            events += batch.events
    except AggregateMissingError:
        return []
    except TrimmedError as trimmed:
        read = Read(key, ReadFilters(from_version=trimmed.first_version or 1))
        events = [event async for batch in log.read_all(read) for event in batch.events]
    return [(event.client_seq, event.value.decode()) for event in events]
