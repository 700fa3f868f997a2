"""Replicas of the account service in one process, on one log, asked over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid5

import httpx

from landed.accounts import AccountService, Settings
from landed.accounts.domain import account_key
from landed.client.embedded import EmbeddedLog
from landed.client.log import Log
from landed.commands import Policy, ServiceIdentity
from landed.engines.memory import open_memory
from landed.errors import AggregateMissingError
from landed.limits import Limits
from landed.log import Event, Read
from landed.sim import HostClock

CLIENT_ID = UUID("0d9e9cd1-0000-4000-8000-000000000001")
X = uuid5(CLIENT_ID, "account X")
Y = uuid5(CLIENT_ID, "account Y")


class Stage:
    """Where the replicas of the test that runs now keep what they folded."""

    put: Callable[[AccountService, HostClock], None] = staticmethod(lambda _service, _clock: None)


class Shared:
    """A log that outlives the replicas that use it; its faults can be scripted."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def close(self) -> None:
        """Closing a replica closes only its own way to the log."""


class Replicas:
    """Some replicas and the log below them."""

    def __init__(self, log: Log, clock: HostClock, services: list[AccountService]) -> None:
        self.log = log
        self.clock = clock
        self.services = services
        self.clients = [
            httpx.AsyncClient(
                transport=httpx.ASGITransport(service.app, raise_app_exceptions=False),
                base_url="http://accounts",
            )
            for service in services
        ]

    async def post(
        self,
        path: str,
        body: object = None,
        *,
        on: int = 0,
        key: str | None = None,
        content: bytes | str | None = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
    ) -> httpx.Response:
        """Send a change to a replica: JSON of ``body``, or ``content`` as it is."""
        lines = list(headers.items() if isinstance(headers, dict) else headers or [])
        if key is not None:
            lines.append(("Idempotency-Key", key))
        if content is not None:
            lines.append(("Content-Type", "application/json"))
            return await self.clients[on].post(path, content=content, headers=lines)
        return await self.clients[on].post(path, json=body, headers=lines)

    async def deposit(self, account: UUID, cents: int, **options: Any) -> httpx.Response:
        return await self.post(
            f"/api/accounts/{account}/deposit", {"amountCents": cents}, **options
        )

    async def withdraw(self, account: UUID, cents: int, **options: Any) -> httpx.Response:
        return await self.post(
            f"/api/accounts/{account}/withdraw", {"amountCents": cents}, **options
        )

    async def transfer(
        self, source: UUID, target: UUID, cents: int, **options: Any
    ) -> httpx.Response:
        body = {"fromAccountId": str(source), "toAccountId": str(target), "amountCents": cents}
        return await self.post("/api/transfers", body, **options)

    async def get(self, path: str, *, on: int = 0, **options: Any) -> httpx.Response:
        return await self.clients[on].get(path, **options)

    async def events(self, account: UUID) -> list[Event]:
        """What the log really holds."""
        try:
            return [
                e async for b in self.log.read_all(Read(account_key(account))) for e in b.events
            ]
        except AggregateMissingError:
            return []


@asynccontextmanager
async def replicas(count: int = 1, **settings: Any) -> AsyncIterator[Replicas]:
    """Run replicas on a fresh log in memory for the time of the block."""
    clock = HostClock(asyncio.get_running_loop().time)
    log = Shared(EmbeddedLog(await open_memory(limits=Limits(), clock=clock)))

    async def open_log() -> Log:
        return log

    async with AsyncExitStack() as stack:
        stack.push_async_callback(log._log.close)
        services = []
        for number in range(count):
            options = {
                "identity": ServiceIdentity.from_config(CLIENT_ID),
                "policy": Policy(),
                "replica": f"replica-{number}",
                **settings,
            }
            service = AccountService(open_log, Settings(**options), clock=clock)
            Stage.put(service, clock)
            await stack.enter_async_context(service.running())
            services.append(service)
        fleet = Replicas(log, clock, services)
        for client in fleet.clients:
            await stack.enter_async_context(client)
        yield fleet
