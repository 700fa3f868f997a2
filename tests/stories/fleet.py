"""A fleet in one process: replicas that share nothing but the log, and a story to put them through.

Every fleet ends with the ledger check.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from random import Random
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit, Order, Transfer, Withdrawal, account_key
from landed.client.embedded import EmbeddedLog
from landed.clock import Clock
from landed.commands import (
    Applied,
    Done,
    How,
    Outcome,
    Policy,
    SafeLoop,
    ServiceIdentity,
    Unresolved,
)
from landed.conformance.trial import Levered
from landed.engines.memory import open_memory
from landed.ids import AggregateKey, ClientId, EventId
from landed.limits import Limits
from landed.log import ANY, Batch, Delete, DeleteLeg, Event, Read, ReadFilters, Trim, Write
from landed.projections import Advance, MemoryProjection
from landed.projections.port import Domain, Projection
from landed.sim import HostClock, sim_loop
from tests.stories import ledger
from tests.stories.faulty import FaultyLog, Pause

SERVICE = "0d9e9cd1-0000-4000-8000-000000000001"
REPLICAS_MAX = 5
"""Every story ends on a fleet of so many."""
ASKED_AGAIN_MAX = 12
"""Of the answers that newcomers give again, the newest."""
FOREIGNER = ClientId(UUID("0d9e9cd1-0000-4000-8000-00000000000f"))
"""Another service that writes to the same accounts."""

Result = Outcome[Any, Any]


def key(name: str) -> UUID:
    """A caller's key, the same for the same name."""
    return uuid5(NAMESPACE_OID, name)


X = key("account X")
Y = key("account Y")


MakeProjection = Callable[["Fleet", "Replica"], Projection[Any]]
"""Makes the projection of a replica that starts; ``conftest.py`` chooses one for each test."""
OpenLane = Callable[[Limits, Clock], Awaitable[Levered]]
"""Opens an empty log of its own; ``conftest.py`` chooses the engine."""


def in_memory(fleet: Fleet, replica: Replica) -> Projection[Any]:
    return MemoryProjection(clock=replica.clock, aggregates_max=fleet.aggregates_max)


async def on_memory(limits: Limits, clock: Clock) -> Levered:
    return await open_memory(limits=limits, clock=clock)


class Stage:
    """What all fleets of the test that runs now stand on."""

    make_projection: MakeProjection = staticmethod(in_memory)
    open_lane: OpenLane = staticmethod(on_memory)


class StoryProjection:
    """A projection whose ``record`` can be stopped, and any step made to fail."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.record_script: deque[Exception | None] = deque()
        """Raised instead of recording."""
        self.advance_script: deque[Exception | None] = deque()
        self.load_script: deque[Exception | None] = deque()
        self.before_record: deque[Pause] = deque()

    async def load(self, keys: Any, event_id: EventId | None, domain: Domain[Any], /) -> Any:
        _raise_next(self.load_script)
        return await self.inner.load(keys, event_id, domain)

    async def advance(self, step: Advance[Any], /) -> bool:
        _raise_next(self.advance_script)
        return bool(await self.inner.advance(step))

    async def record(self, steps: Sequence[Advance[Any]], /) -> None:
        if self.before_record:
            await self.before_record.popleft().stop()
        _raise_next(self.record_script)
        await self.inner.record(steps)

    async def raise_floor(self, key: AggregateKey, client_seq: int, /) -> None:
        await self.inner.raise_floor(key, client_seq)

    async def meet(self, *, log_id: UUID, restore_epoch: int) -> None:
        await self.inner.meet(log_id=log_id, restore_epoch=restore_epoch)


def done(outcome: Result | None) -> Done[Any]:
    """Insist on a success."""
    assert isinstance(outcome, Done), outcome
    return outcome


async def until(condition: Callable[[], object]) -> None:
    """Let virtual time pass until something is true."""
    async with asyncio.timeout(3600):
        while not condition():
            await asyncio.sleep(0.001)


def _raise_next(script: deque[Exception | None]) -> None:
    error = script.popleft() if script else None
    if error is not None:
        raise error


class Replica:
    """One instance of the service, with its own way to the log, clock and projection."""

    def __init__(self, fleet: Fleet, name: str, *, seed: int) -> None:
        self.name = name
        self.fleet = fleet
        self.clock = HostClock(sim_loop().time)
        self.log = FaultyLog(fleet.log)
        self._rng = Random(seed)
        self.shares = ""
        """Replicas with the same text here share their projection, if it can be shared."""
        self.facts: list[tuple[str, dict[str, object]]] = []
        self.restart()

    def restart(self) -> None:
        """Lose everything that was only in memory."""
        self.use(StoryProjection(self.make_projection()))

    def forget(self) -> None:
        """Start over on a projection that nobody has folded into yet, shared or not."""
        self.shares = self.name
        self.restart()

    def make_projection(self) -> Projection[Any]:
        return Stage.make_projection(self.fleet, self)

    def use(self, projection: StoryProjection) -> None:
        """Start over on another projection."""
        fleet = self.fleet
        self.projection = projection
        self.loop = SafeLoop(
            self.log,
            identity=fleet.identity,
            projection=self.projection,
            domain=fleet.domain,
            policy=fleet.policy,
            rng=self._rng,
            note=lambda name, fields: self.facts.append((name, dict(fields))),
        )

    def key_of(self, account: UUID) -> AggregateKey:
        return account_key(account)

    def pause_record(self) -> Pause:
        pause = Pause()
        self.projection.before_record.append(pause)
        return pause

    async def do(self, order: Order, key: UUID) -> Result:
        began_at = asyncio.get_running_loop().time()
        try:
            outcome = await self.loop.execute(command_of(order, EventId(key)))
        except asyncio.CancelledError:
            # Nobody was told anything, so it may be in the log.
            unknown = Unresolved(Applied.UNKNOWN, "cancelled")
            self.fleet.calls.append(ledger.Answered(order, key, unknown, began_at))
            raise
        self.fleet.calls.append(ledger.Answered(order, key, outcome, began_at))
        return outcome

    async def deposit(self, account: UUID, cents: int, key: UUID) -> Result:
        return await self.do(Deposit(account, cents), key)

    async def withdraw(self, account: UUID, cents: int, key: UUID) -> Result:
        return await self.do(Withdrawal(account, cents), key)

    async def transfer(self, source: UUID, target: UUID, cents: int, key: UUID) -> Result:
        return await self.do(Transfer(source, target, cents), key)

    def start(self, order: Order, key: UUID) -> asyncio.Task[Result]:
        """Begin a request without waiting for it."""
        return asyncio.ensure_future(self.do(order, key))

    def start_deposit(self, account: UUID, cents: int, key: UUID) -> asyncio.Task[Result]:
        return self.start(Deposit(account, cents), key)

    def start_withdrawal(self, account: UUID, cents: int, key: UUID) -> asyncio.Task[Result]:
        return self.start(Withdrawal(account, cents), key)

    def start_transfer(
        self, source: UUID, target: UUID, cents: int, key: UUID
    ) -> asyncio.Task[Result]:
        return self.start(Transfer(source, target, cents), key)

    def sent_seqs(self) -> list[int]:
        """The lowest sequence of each write that was sent, first leg."""
        return [write.legs[0].events[0].client_seq for write in self.log.writes]

    def owners_asked(self) -> list[object]:
        return [fields["owner"] for name, fields in self.facts if name == "loop.asked_owner"]

    def reads_of_owner(self) -> int:
        return sum(read.filters.min_client_seq is not None for read in self.log.reads)


class Fleet:
    """Replicas over one log."""

    def __init__(
        self,
        lane: Levered,
        *,
        size: int,
        policy: Policy,
        domain: Domain[Any],
        identity: ServiceIdentity,
        aggregates_max: int,
        clock: HostClock,
    ) -> None:
        self.lane = lane
        self.clock = clock
        """The server's."""
        self.log = EmbeddedLog(lane)
        self.policy = policy
        self.domain = domain
        self.identity = identity
        self.aggregates_max = aggregates_max
        self.calls: list[ledger.Answered] = []
        self.accounts: set[UUID] = {X}
        self.expired: set[UUID] = set()
        self.unreadable: set[UUID] = set()
        self.last: Result | None = None
        self.shared: dict[str, str] = {}
        """Names of projections that are shared, by what replicas share."""
        self.replicas = [Replica(self, "ABCDE"[i], seed=i) for i in range(size)]

    async def ask_newcomers(self) -> None:
        """Replicas that join until there are five give every answer of this window once more."""
        now = asyncio.get_running_loop().time()
        first_at = {call.key: call.began_at for call in reversed(self.calls)}
        answered = [
            call
            for call in self.calls
            if isinstance(call.outcome, Done)
            and now - first_at[call.key] < self.policy.window_s
            and call.key not in self.expired
            and not self.unreadable & set(ledger.accounts_of(call.order))
        ]
        newcomers = [
            Replica(self, "ABCDE"[i], seed=i) for i in range(len(self.replicas), REPLICAS_MAX)
        ]
        if newcomers:
            for call, replica in zip(answered[-ASKED_AGAIN_MAX:], cycle(newcomers), strict=False):
                again, told = done(await replica.do(call.order, call.key)), done(call.outcome)
                assert again.how is not How.FRESH, f"{replica.name} did it again"
                assert How.REBUILT in {again.how, told.how} or again.results == told.results
        self.replicas += newcomers

    async def give(self, account: UUID, cents: int, name: str = "opening") -> None:
        """Put money into an account, by the service itself, behind everybody's back."""
        batches = await self.history(account)
        seqs = [
            e.client_seq
            for b in batches
            if b.client_id == self.identity.client_id
            for e in b.events
        ]
        event = deposit_event(cents, max(seqs, default=0) + 1, key(f"{name} {account}"))
        await self.log.write(
            Write.to(
                account_key(account),
                [event],
                client_id=self.identity.client_id,
                expected_version=ANY,
            )
        )

    async def write_foreign(
        self, account: UUID, cents: int, *, client_seq: int = 1, event_id: UUID | None = None
    ) -> None:
        """Another service deposits, under its own client id."""
        event = deposit_event(cents, client_seq, event_id or key(f"foreign {client_seq}"))
        await self.log.write(
            Write.to(account_key(account), [event], client_id=FOREIGNER, expected_version=ANY)
        )

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def trim(self, account: UUID, keep_from: int) -> None:
        self.unreadable.add(account)
        await self.log.trim(Trim(account_key(account), keep_from, FOREIGNER))

    async def delete(self, account: UUID, *, allow_recreate: bool) -> None:
        self.unreadable.add(account)
        leg = DeleteLeg(account_key(account), ANY, allow_recreate, False)
        await self.log.delete(Delete(FOREIGNER, (leg,)))

    async def history(self, account: UUID) -> list[Batch]:
        return await ledger.batches_of(self.log, account)

    async def count(self, key: UUID, account: UUID = X) -> int:
        """How many events of a key there are on an account, by our own client id."""
        filters = ReadFilters(include_client=self.identity.client_id)
        batches = [b async for b in self.log.read_all(Read(account_key(account), filters))]
        return sum(event.event_id == key for batch in batches for event in batch.events)

    async def check(self) -> None:
        """The ledger check of SW-134."""
        for replica in self.replicas:
            await replica.log.settle()
            replica.log.is_down = False
            assert not replica.log.write_script, "a scripted fault never happened"
            assert not replica.log.read_script, "a scripted fault never happened"
        self.accounts.update(a for call in self.calls for a in ledger.accounts_of(call.order))
        histories = {account: await self.history(account) for account in self.accounts}
        ledger.check(
            self.calls,
            histories,
            own=self.identity.own,
            expired=frozenset(self.expired),
            unreadable=frozenset(self.unreadable),
        )
        for account in self.accounts - self.unreadable:
            for replica in self.replicas:
                seen = await replica.loop.look(account_key(account))
                ledger.check_view(seen, histories[account])


def deposit_event(cents: int, client_seq: int, event_id: UUID) -> Event:
    """A deposit as any writer of this domain stores it."""
    return Event.new(1, b'{"AmountCents":%d}' % cents, client_seq=client_seq, event_id=event_id)


@asynccontextmanager
async def fleet(
    size: int = 2,
    *,
    holding: int | None = 100,
    policy: Policy | None = None,
    domain: Domain[Any] | None = None,
    identity: ServiceIdentity | None = None,
    limits: Limits | None = None,
    aggregates_max: int = 1000,
) -> AsyncIterator[Fleet]:
    """Run a story on a fleet; account X holds ``holding`` cents, None: it was never written."""
    clock = HostClock(sim_loop().time)
    lane = await Stage.open_lane(limits or Limits(), clock)
    it = Fleet(
        lane,
        size=size,
        policy=policy or Policy(),
        domain=domain or Accounts(),
        identity=identity or ServiceIdentity.from_config(SERVICE),
        aggregates_max=aggregates_max,
        clock=clock,
    )
    try:
        if holding is not None:
            await it.give(X, holding)
        yield it
        await it.check()
        await it.ask_newcomers()
        await it.check()
    finally:
        await it.log.close()
