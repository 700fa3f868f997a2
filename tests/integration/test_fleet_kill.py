"""A whole fleet of processes under everything at once, and the audit of its file.

A log server, two replicas and a proxy between them that loses requests and answers. Meanwhile
processes are killed (SIGKILL) and stopped (SIGSTOP), and the server's disk is full for a while
(RLIMIT_FSIZE). Callers ask until they are answered; then the file is read by itself.
"""

from __future__ import annotations

import asyncio
import random
import resource
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Self
from uuid import UUID

import httpx
import pytest

from landed.accounts.domain import account_key
from landed.engines.sqlite.check import verify
from tests.integration.accounts_process import Process, replica
from tests.integration.audit import audit
from tests.integration.process import Serving

CALLERS = 6
ACCOUNTS = [UUID(int=number) for number in (1, 2, 3)]
CENTS = 10
ASKED_AGAIN = 40
ANSWERED_WITHIN_S = 60.0
LOST = 0.03
"""How often the proxy loses what it just read, with the connection; either way."""
POLICY = ("--attempt-timeout", "0.5", "--deadline", "2", "--window", "600", "--margin", "10")
BLOWS = ("kill server", "kill replica", "stop server", "stop replica", "fill disk")


class LossyProxy:
    """Passes bytes to wherever the server is now, and loses some with their connection."""

    def __init__(self, rng: random.Random) -> None:
        self.target = 0
        self.port = 0
        self.lost = 0
        self._rng = rng
        self._is_calm = False
        self._server: asyncio.Server
        self._serving: set[asyncio.Task[None]] = set()

    def calm(self) -> None:
        """Lose nothing more."""
        self._is_calm = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await asyncio.sleep(0)  # the transports say goodbye in the next turn

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ways: list[asyncio.Task[None]] = []
        writers = [writer]
        try:
            with suppress(OSError):
                theirs, to_server = await asyncio.open_connection("127.0.0.1", self.target)
                writers.append(to_server)
                ways.append(asyncio.create_task(self._pass_on(reader, to_server)))
                ways.append(asyncio.create_task(self._pass_on(theirs, writer)))
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in writers:
                end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self._is_calm and self._rng.random() < LOST:
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()


class Fleet:
    """The processes, and what may befall them."""

    def __init__(self, folder: Path, proxy: LossyProxy) -> None:
        self.path = folder / "log.db"
        self._proxy = proxy
        self.server: Serving
        self.replicas: list[Process] = []
        self.blows: Counter[str] = Counter()

    async def start(self) -> None:
        """Start everything."""
        await self._serve()
        self.replicas = [await self._replica(number) for number in range(2)]

    def end(self) -> None:
        """Kill whatever is left."""
        for process in (self.server, *self.replicas):
            process.__exit__()

    async def _serve(self) -> None:
        self.server = await asyncio.to_thread(Serving, f"sqlite:///{self.path}")
        self._proxy.target = self.server.port

    async def _replica(self, number: int) -> Process:
        port = self._proxy.port
        return await asyncio.to_thread(replica, port, f"replica-{number}", *POLICY)

    async def suffer(self, blow: str, rng: random.Random) -> None:
        """One blow, and what makes up for it."""
        self.blows[blow] += 1
        number = rng.randrange(len(self.replicas))
        victim = self.server if blow.endswith("server") else self.replicas[number]
        match blow:
            case "kill server":
                self.server.kill()
                await self._serve()
            case "kill replica":
                victim.kill()
                self.replicas[number] = await self._replica(number)
            case "stop server" | "stop replica":
                victim.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(rng.uniform(0.1, 1.0))
                victim.process.send_signal(signal.SIGCONT)
            case "fill disk":
                await self._fill_disk()
            case _:
                raise AssertionError(blow)

    async def _fill_disk(self) -> None:
        """No file of the server grows any more, until it has ended over it and is started again."""
        pid = self.server.process.pid
        wal = self.path.with_name(self.path.name + "-wal")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (wal.stat().st_size, resource.RLIM_INFINITY))
        ended = asyncio.to_thread(self.server.process.wait, ANSWERED_WITHIN_S)
        assert await ended == 1, "a server whose commit is in doubt says so and ends"
        self.server.__exit__()
        await self._serve()


async def ask_until_answered(
    http: httpx.AsyncClient, fleet: Fleet, account: UUID, key: UUID, rng: random.Random
) -> dict[str, int]:
    """Ask for one deposit under one key, of any replica, until it is answered with a success."""
    async with asyncio.timeout(ANSWERED_WITHIN_S):
        while True:
            with suppress(httpx.HTTPError):
                answer = await http.post(
                    f"{rng.choice(fleet.replicas).url}/api/accounts/{account}/deposit",
                    json={"amountCents": CENTS},
                    headers={"Idempotency-Key": str(key)},
                    timeout=rng.choice((0.2, 3.0)),
                )
                if answer.status_code == 200:
                    return answer.json()
                assert answer.json()["retryable"] is True, answer.text
            await asyncio.sleep(0.01)


async def live(folder: Path, blows: list[str], seed: int) -> None:
    """Call all the while that the blows come down, then audit the file."""
    rng = random.Random(seed)
    answers: dict[UUID, tuple[UUID, dict[str, int]]] = {}
    is_over = asyncio.Event()
    async with LossyProxy(rng) as proxy, httpx.AsyncClient() as http:
        fleet = Fleet(folder, proxy)
        await fleet.start()

        async def call() -> None:
            while not is_over.is_set():
                account, key = rng.choice(ACCOUNTS), UUID(int=rng.getrandbits(127))
                answers[key] = account, await ask_until_answered(http, fleet, account, key, rng)

        try:
            async with asyncio.TaskGroup() as callers:
                for _ in range(CALLERS):
                    callers.create_task(call())
                for blow in blows:
                    seen = len(answers)
                    async with asyncio.timeout(ANSWERED_WITHIN_S):
                        while len(answers) < seen + CALLERS:
                            await asyncio.sleep(0.01)
                    await fleet.suffer(blow, rng)
                is_over.set()
            proxy.calm()
            for key in rng.sample(list(answers), min(len(answers), ASKED_AGAIN)):
                account, told = answers[key]
                assert told == await ask_until_answered(http, fleet, account, key, rng)
        finally:
            fleet.end()
    assert proxy.lost > 0
    check(fleet.path, answers)


def check(path: Path, answers: dict[UUID, tuple[UUID, dict[str, int]]]) -> None:
    """Every answered deposit is in the file once, where the answer says, and nothing else is."""
    found = audit(path)
    counts = Counter(event.event_id for event in found)
    assert counts == {key.bytes: 1 for key in answers}
    places = {(event.key, event.version): event.event_id for event in found}
    for key, (account, told) in answers.items():
        version = told["aggregateVersion"]
        assert places[account_key(account).packed, version] == key.bytes
        assert told["balanceCents"] == CENTS * version
    assert verify(path).is_sound


@pytest.mark.scenario("BC-17", "SC-70")
async def test_a_fleet_survives_kills_stops_a_full_disk_and_lost_answers(tmp_path: Path) -> None:
    await live(tmp_path, list(BLOWS), seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
async def test_a_fleet_survives_twenty_blows(tmp_path: Path, seed: int) -> None:
    order = random.Random(seed)
    await live(tmp_path, [order.choice(BLOWS) for _ in range(20)], seed)
