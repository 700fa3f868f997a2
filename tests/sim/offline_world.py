"""Two devices, one server and a seed: saved without a network, killed at any moment, synced at last.

The production queue, drain loop, pool, server and engine run on the simulated loop. A device's disk
outlives its processes; a transaction that a death cuts off is rolled back, as a file would do it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from landed.client.embedded import EmbeddedLog
from landed.client.options import PoolOptions
from landed.client.pool import Pool
from landed.engines.lane import Lane
from landed.errors import AggregateMissingError, LandedError, SequenceRegressedError, StorageError
from landed.facts import forget
from landed.ids import AggregateKey
from landed.log import Event, Read
from landed.offline import AsyncQueue, DrainPolicy, QueueLimits, Synced
from landed.offline.store import Store
from landed.server.listener import serve
from landed.sim import SimLoop, on_host, sim_loop
from landed.sim.disk import Disk
from landed.sim.plan import draw

SERVER = "server"
ADDRESS = "server:10000"
DEVICES = 2
HORIZON_S = 7_200.0


@dataclass
class Saying:
    """What one device told its user was saved, by aggregate, in order."""

    client_id: UUID
    saved: dict[AggregateKey, list[tuple[int, UUID, bytes]]] = field(default_factory=dict)
    must: dict[UUID, AggregateKey] = field(default_factory=dict)
    """Events that the disk has or had when it was last backed up and put back, in order."""


@dataclass
class Outcome:
    """What is left of a world."""

    seed: int
    sayings: list[Saying]
    truth: dict[AggregateKey, list[tuple[UUID, Event]]] = field(default_factory=dict)
    synced: list[Synced] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)


class Device:
    """A disk, and the process that runs over it until it is killed."""

    def __init__(self, number: int, seed: int, outcome: Outcome, *, is_restored: bool) -> None:
        self._is_restored = is_restored
        self._backup: tuple[sqlite3.Connection, dict[UUID, AggregateKey]] | None = None
        rng = Random(f"{seed}/device/{number}")
        self.name = f"device-{number + 1}"
        self.saying = Saying(UUID(int=0xDE71CE00 + number))
        self.rng = rng
        self.outcome = outcome
        outcome.sayings.append(self.saying)
        self._disk = sqlite3.connect(":memory:", check_same_thread=False)
        self._limits = QueueLimits(
            run_events_max=rng.choice((1, 2, 3, 100)),
            run_bytes_max=rng.choice((8, 100, 10_000)),
            synced_kept=rng.choice((0, 2, 100)),
        )
        self._policy = DrainPolicy(
            attempt_timeout_s=rng.choice((0.05, 0.5, 5.0)),
            backoff_first_s=rng.choice((0.05, 0.5)),
            backoff_max_s=rng.choice((3.0, 60.0)),
        )
        self._depth = rng.choice((1, 2, 16))
        self._lives = 0
        self.start()

    def start(self) -> None:
        self._lives += 1
        rng = sim_loop().stream(f"{self.name}/{self._lives}")
        with on_host(self.name):
            store = Store.over(
                self._disk,
                clock=sim_loop().clock(self.name),
                limits=self._limits,
                client_id=self.saying.client_id,
            )
            self.queue = AsyncQueue(store, policy=self._policy, rng=rng, note=self._note)
            options = PoolOptions(addresses=(ADDRESS,), pipeline_depth=self._depth)
            self.pool = Pool(options, jitter=rng, note=forget)

    def _note(self, name: str, fields) -> None:
        self.outcome.marks[name + (f".{fields['how']}" if "how" in fields else "")] += 1
        if name == "offline.held":
            self.outcome.marks["held: " + fields["reason"].partition(":")[0][:30]] += 1

    async def use(self, keys: list[AggregateKey], pause_s: float) -> None:
        """A user saves, syncs now and then, and kills the application at any moment."""
        rng = self.rng
        number = 0
        for _ in range(rng.randint(2, 4)):
            syncing = None
            if rng.random() < 0.7:
                with on_host(self.name):
                    syncing = asyncio.create_task(self.queue.keep_syncing(self.pool))
            for _ in range(rng.randint(0, 3)):
                number += 1
                await self._save(keys, number)
                await asyncio.sleep(pause_s * rng.random())
                if rng.random() < 0.2:
                    self.queue.connected()
            if rng.random() < 0.3:
                await self.queue.prune()
            await self._kill(syncing)

    async def _save(self, keys: list[AggregateKey], number: int) -> None:
        """One event or several in one transaction, and now and then one that is undone."""
        rng = self.rng
        wanted = [
            (rng.choice(keys), UUID(int=rng.getrandbits(127) | 1), f"{number}/{n}".encode())
            for n in range(rng.choice((1, 1, 1, 3)))
        ]
        is_undone = rng.random() < 0.1

        def work(saving):
            saved = [saving.enqueue(key, 1, value, event_id=one) for key, one, value in wanted]
            if is_undone:
                raise KeyError("the application changed its mind")
            return saved

        try:
            saved = await self.queue.save(work)
        except KeyError:
            return
        for (key, one, value), entry in zip(wanted, saved, strict=True):
            self.saying.saved.setdefault(key, []).append((entry.client_seq, one, value))
            self.saying.must[one] = key

    async def _kill(self, syncing: asyncio.Task[None] | None) -> None:
        if syncing is not None:
            syncing.cancel()
            await asyncio.wait([syncing])
            if not syncing.cancelled():
                error = syncing.exception()
                if not (self._is_restored and isinstance(error, SequenceRegressedError)):
                    syncing.result()
        sim_loop().network.reset_host(self.name)
        await self.pool.close()
        self.queue.let_go()
        self.outcome.marks["killed"] += 1
        if self._is_restored:
            self._back_up_or_put_back()
        self.start()
        if self._is_restored and self.rng.random() < 0.5:
            with suppress(LandedError):
                await self._recover()

    def _back_up_or_put_back(self) -> None:
        """The disk of a device whose owner trusts backups."""
        if self._disk.in_transaction:
            self._disk.execute("ROLLBACK")
        if self._backup is None or self.rng.random() < 0.3:
            copy = sqlite3.connect(":memory:", check_same_thread=False)
            self._disk.backup(copy)
            self._backup = (copy, dict(self.saying.must))
        elif self.rng.random() < 0.5:
            copy, must = self._backup
            copy.backup(self._disk)
            self.saying.must = dict(must)
            self.outcome.marks["put back"] += 1

    async def _recover(self) -> None:
        """What a user does: recover, and save again whatever nobody can tell about."""
        with on_host(self.name):
            recovered = await self.queue.recover(self.pool)
        self.outcome.marks["renumbered"] += bool(recovered.renumbered)
        self.outcome.marks["stuck"] += bool(recovered.stuck)
        pending = {entry.client_seq: (key, entry) for key, entry in await self.queue.pending()}
        for seq in recovered.stuck:
            key, entry = pending[seq]
            await self.queue.abandon(seq, "nobody can tell")
            del self.saying.must[entry.event_id]
            one = UUID(int=self.rng.getrandbits(127) | 1)
            await self.queue.enqueue(key, 1, entry.value, event_id=one)
            self.saying.must[one] = key

    async def finish(self) -> Synced:
        """The network is calm at last."""
        while True:
            try:
                with on_host(self.name):
                    synced = await self.queue.sync(self.pool)
                break
            except SequenceRegressedError:
                if not self._is_restored:
                    raise
                with suppress(LandedError):
                    await self._recover()
                await asyncio.sleep(1)
        await self.pool.close()
        self.queue.let_go()
        self._disk.close()
        return synced


async def live(seed: int, outcome: Outcome, *, is_restored: bool) -> None:
    plan = draw(seed)
    rng = Random(f"{seed}/offline")
    keys = [
        AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in range(rng.choice((1, 2, 3)))
    ]
    disk = Disk("memory")
    with on_host(SERVER):
        clock = sim_loop().clock()
        engine = await disk.open(clock=clock, note=forget)
        server = await serve(engine, host=SERVER, port=10_000, clock=clock, note=forget)
    devices = [Device(number, seed, outcome, is_restored=is_restored) for number in range(DEVICES)]
    disturbing = asyncio.create_task(disturb(engine, devices, plan.disturb_every_s, rng))
    async with asyncio.TaskGroup() as users:
        for device in devices:
            users.create_task(device.use(keys, plan.pause_s))
    disturbing.cancel()
    await asyncio.wait([disturbing])
    sim_loop().calm()
    engine.gate.slow_s = 0.0
    engine.gate.fails_next = None
    outcome.synced = [await device.finish() for device in devices]
    await asyncio.sleep(60)  # late copies arrive
    await server.close()
    reader = EmbeddedLog(engine)
    for key in keys:
        outcome.truth[key] = []
        try:
            async for batch in reader.read_all(Read(key)):
                outcome.truth[key] += [(batch.client_id, event) for event in batch.events]
        except AggregateMissingError:
            pass
    await engine.close()


async def disturb(engine: Lane, devices: list[Device], every_s: float, rng: Random) -> None:
    while every_s:
        await asyncio.sleep(rng.expovariate(1 / every_s))
        match rng.choice(("reset", "fail_flush", "slow_flush", "wall_step")):
            case "reset":
                host = rng.choice([SERVER, *(device.name for device in devices)])
                sim_loop().network.reset_host(host)
            case "fail_flush":
                engine.gate.fails_next = StorageError("the seed says so")
            case "slow_flush":
                engine.gate.slow_s = rng.choice((0.0, 0.3, 3.0))
            case "wall_step":
                sim_loop().clock(rng.choice(devices).name).step_wall(
                    rng.choice((-86_400_000, 60_000))
                )


def run_world(seed: int, *, is_restored: bool = False) -> Outcome:
    """Live one world to its end."""
    outcome = Outcome(seed, [])
    loop = SimLoop(seed, dials=draw(seed).dials, horizon_s=HORIZON_S)
    try:
        loop.run(live(seed, outcome, is_restored=is_restored))
    finally:
        loop.close()
    return outcome


def wrong_with(outcome: Outcome) -> list[str]:
    """Every saved event is in the log exactly once, in its order, under its number."""
    wrong = []
    for saying in outcome.sayings:
        for key, events in outcome.truth.items():
            found = [
                (event.client_seq, event.event_id, event.value)
                for client_id, event in events
                if client_id == saying.client_id
            ]
            saved = saying.saved.get(key, [])
            if found != saved:
                wrong.append(f"{saying.client_id} on {key}: saved {saved}, found {found}")
    wrong += [f"left behind: {synced}" for synced in outcome.synced if synced.left]
    clients = {saying.client_id for saying in outcome.sayings}
    strangers = [
        one for events in outcome.truth.values() for one, _ in events if one not in clients
    ]
    return wrong + [f"by nobody we know: {one}" for one in strangers]


def lost_by(outcome: Outcome) -> list[str]:
    """After backups were put back: nothing on the disk is missing in the log, out of order or twice."""
    wrong = [f"left behind: {synced}" for synced in outcome.synced if synced.left]
    for saying in outcome.sayings:
        for key, events in outcome.truth.items():
            own = [event.event_id for client_id, event in events if client_id == saying.client_id]
            if len(own) != len(set(own)):
                wrong.append(f"{saying.client_id} on {key}: twice in {own}")
            must = [one for one, where in saying.must.items() if where == key]
            if [one for one in own if one in saying.must] != must:
                wrong.append(f"{saying.client_id} on {key}: must {must}, found {own}")
    return wrong
