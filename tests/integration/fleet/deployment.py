"""A fleet of real processes on each of its four layouts, callers that load it, and what may befall it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import httpx

from landed.accounts.domain import Deposit, Order, Transfer, Withdrawal
from landed.sim.history import Request
from tests.integration.accounts_process import CLIENT_ID, Process
from tests.integration.fleet.recorded import Recorder
from tests.integration.fleet.servers import free_port
from tests.integration.process import Serving

WINDOW_S: Final = 900.0
"""Longer than any test, so that no answer may have expired."""
POLICY: Final = (
    *("--attempt-timeout", "0.7", "--deadline", "2.5"),
    *("--window", str(WINDOW_S), "--margin", "10"),
)
PATIENCE_S: Final = 3.5
"""A caller waits so long for an answer: a little more than a replica takes to give one."""
ANSWERED_WITHIN_S: Final = 90.0
CALLERS: Final = 6
ACCOUNTS: Final = tuple(UUID(int=number) for number in (1, 2, 3))


class Layout(NamedTuple):
    """Where the log lives, and where folded states live."""

    log: str
    """``sqlite``: with ``landed serve``. ``postgres``: every replica writes it itself."""
    projection: str
    """``memory`` or ``postgres``."""

    def __str__(self) -> str:
        return f"{self.log}-{self.projection}"


LAYOUTS: Final = tuple(
    Layout(log, projection)
    for log in ("sqlite", "postgres")
    for projection in ("memory", "postgres")
)


class Deployment:
    """The processes of one fleet."""

    def __init__(self, layout: Layout, folder: Path, hosts: str = "") -> None:
        """``hosts``: of PostgreSQL, comma-separated, where the layout needs it."""
        self.layout = layout
        self.path = folder / "log.sqlite"
        self.server: Serving | None = None
        self.replicas: list[Process] = []
        database = f"postgresql://postgres@{hosts}/postgres?connect_timeout=2"
        self.projection = database if layout.projection == "postgres" else "memory"
        self.log = f"{database}&lock_wait_s=0.5&commit_wait_s=1"
        """The URL that replicas find the log by."""
        self._port = 0
        if layout.log == "sqlite":
            self._port = free_port()
            self.log = f"landed://127.0.0.1:{self._port}"
        self._names = 0

    async def start(self, count: int) -> None:
        """Start everything."""
        if self.layout.log == "sqlite":
            await self.serve()
        self.replicas = list(await asyncio.gather(*[self.replica() for _ in range(count)]))

    async def serve(self) -> None:
        """Start the log server, at the address it always has."""
        listen = ("--listen", f"127.0.0.1:{self._port}")
        self.server = await asyncio.to_thread(Serving, f"sqlite:///{self.path}", *listen)

    async def replica(self) -> Process:
        """Start one more replica."""
        self._names += 1
        return await asyncio.to_thread(
            Process,
            *("accounts", "--listen", "127.0.0.1:0", "--log", self.log, *POLICY),
            *("--projection", self.projection, "--client-id", CLIENT_ID),
            *("--replica", f"replica-{self._names}"),
            ready="landed accounts: listening on http://127.0.0.1:",
        )

    async def kill_server(self) -> None:
        """The log server is killed and started again."""
        assert self.server is not None
        self.server.kill()
        await self.serve()

    async def kill_replica(self, number: int) -> None:
        """A replica is killed, and another one takes its place."""
        self.replicas[number].kill()
        self.replicas[number] = await self.replica()

    def end(self) -> None:
        """Kill whatever is left."""
        for process in (*self.replicas, *([self.server] if self.server else [])):
            process.__exit__()


class Load:
    """Callers that ask for one thing after the other, each until it is answered for good."""

    def __init__(self, deployment: Deployment, recorder: Recorder, rng: random.Random) -> None:
        self._deployment = deployment
        self._recorder = recorder
        self._rng = rng
        self._is_over = False
        self.orders: Callable[[], Order] = self._any_order
        self.looks = 0.2
        """How often a caller looks at a balance between two requests."""

    async def until_acknowledged(self, count: int) -> None:
        """Wait for so many more successes."""
        wanted = len(self._recorder.acknowledged) + count
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while len(self._recorder.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Callers call all the while that the block runs; afterwards each of them has its answer."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._call())
            try:
                yield
            finally:
                self.stop()

    def stop(self) -> None:
        """Ask for nothing new."""
        self._is_over = True

    async def settle(self) -> None:
        """When all is calm, everything that was ever asked for is asked for once more."""
        requests = iter(list(self._recorder.history.requests))
        await asyncio.gather(*[self._ask_again(requests) for _ in range(CALLERS)])
        for replica in self._deployment.replicas:
            for account in self._recorder.accounts:
                look = await self._recorder.look(replica, account, timeout_s=ANSWERED_WITHIN_S)
                assert look is not None

    async def _ask_again(self, requests: Iterable[Request]) -> None:
        for request in requests:
            on = self._rng.choice(self._deployment.replicas)
            await self._recorder.call(on, request, timeout_s=ANSWERED_WITHIN_S, is_last=True)

    async def _call(self) -> None:
        rng, recorder = self._rng, self._recorder
        while not self._is_over:
            request = recorder.request(UUID(int=rng.getrandbits(127) | 1), self.orders())
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await self._until_answered(request)
            if rng.random() < self.looks:
                on = rng.choice(self._deployment.replicas)
                await recorder.look(on, rng.choice(recorder.accounts), timeout_s=PATIENCE_S)

    async def _until_answered(self, request: Request) -> None:
        """Now and then a caller does not hear the answer, or asks again although it did."""
        while True:
            on = self._rng.choice(self._deployment.replicas)
            patience = self._rng.choice((0.02, PATIENCE_S, PATIENCE_S, PATIENCE_S))
            call = await self._recorder.call(on, request, timeout_s=patience)
            is_answered = call.outcome is not None and not call.outcome.is_retryable
            if is_answered and self._rng.random() < 0.8:
                return
            await asyncio.sleep(0.01)

    def _any_order(self) -> Order:
        source, target = self._rng.sample(self._recorder.accounts, 2)
        cents = self._rng.randint(1, 100)
        kind = self._rng.random()
        if kind < 0.5:
            return Deposit(source, cents)
        return Withdrawal(source, cents) if kind < 0.7 else Transfer(source, target, cents)


Blow = Callable[[], Awaitable[None]]


async def live(
    deployment: Deployment,
    blows: dict[str, Blow],
    *,
    replicas: int,
    order: Iterable[str],
    rng: random.Random,
    between: int = 12,
) -> tuple[Recorder, Counter[str]]:
    """Load a fleet while blow after blow comes down on it, and let it settle.

    Args:
        deployment: not started yet; ended afterwards.
        blows: what may befall it, by name.
        replicas: how many.
        order: names of blows.
        rng: draws everything that callers do.
        between: successes to wait for between two blows, so that each finds the fleet at work.
    """
    struck: Counter[str] = Counter()
    async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as http:
        recorder = Recorder(http, ACCOUNTS, window_s=WINDOW_S)
        load = Load(deployment, recorder, rng)
        try:
            await deployment.start(replicas)
            async with load.on():
                for name in order:
                    await load.until_acknowledged(between)
                    await blows[name]()
                    struck[name] += 1
                await load.until_acknowledged(between)
            await load.settle()
        finally:
            deployment.end()
    return recorder, struck
