"""(j) Requests a second over HTTP with one and with four replicas of the account service.

Every replica is a process of its own on one log in PostgreSQL, with its projection in memory. 64
connections, each with one deposit outstanding and eight accounts of its own, each deposit with a key
of its own. Clients, replicas and the database share the machine, so it is said how busy its cores
were: where one replica fills them, four have nothing to add.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote
from uuid import uuid4

import psutil
from benchmarks.report import Figure, Plan, Report, interleaved, per_s, ratios

from tests.handling import postgres
from tests.integration.accounts_process import CLIENT_ID, Process

REPLICAS: Final = (1, 4)
CONNECTIONS: Final = 64
ACCOUNTS: Final = 8
"""Of a connection."""
FULL: Final = 90.0
"""Per cent of the cores in use above which more processes cannot serve more."""
WARM_S: Final = 60.0


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return plan.rounds


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    report.doing("fleet: starting replicas")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="landed-bench-")))
        folder.chmod(0o755)  # the server is another user
        cluster = stack.enter_context(postgres.cluster(folder))
        fleets = {
            count: [stack.enter_context(_replica(url, at)) for at in range(count)]
            for count in REPLICAS
            for url in [_log_of(cluster)]
        }
        seconds = 0.5 if plan.is_quick else 2.0
        busy: dict[int, list[float]] = {count: [] for count in REPLICAS}

        def measured(count: int, seconds: float) -> float:
            ports = [process.port for process in fleets[count]]
            rate, percent = asyncio.run(_drive(ports, seconds))
            busy[count].append(percent)
            return rate

        report.doing("fleet: deposits")
        for count in REPLICAS:
            measured(count, 0.2)
            busy[count].clear()
        subjects: dict[str, Callable[[], float]] = {
            str(count): partial(measured, count, seconds) for count in REPLICAS
        }
        found = interleaved(plan.rounds, subjects, after=report.step)
    one, four = (statistics.median(busy[count]) for count in REPLICAS)
    full = "full" if one >= FULL else "not full"
    report.add(
        Figure(
            bench="fleet",
            subject=f"4 replicas against 1; cores {four:.0f} and {one:.0f} % busy: {full} with 1",
            rounds=ratios(found["4"], found["1"]),
            unit="x",
            measured=per_s(found["4"]),
            against=per_s(found["1"]),
            target=1.0 if one < FULL else None,
        )
    )


def _log_of(cluster: postgres.Cluster) -> str:
    return f"postgresql://postgres@/{cluster.create()}?host={quote(str(cluster.sockets))}"


def _replica(url: str, number: int) -> Process:
    return Process(
        *("accounts", "--listen", "127.0.0.1:0", "--log", url, "--client-id", CLIENT_ID),
        *("--replica", f"replica-{number}"),
        ready="landed accounts: listening on http://127.0.0.1:",
    )


class Caller(asyncio.Protocol):
    """One connection: a deposit, its answer, the next deposit."""

    def __init__(self, number: int) -> None:
        self._accounts = [
            f"{number:08x}-0000-4000-8000-{account:012x}" for account in range(ACCOUNTS)
        ]
        self._received = bytearray()
        self._stops = False
        self.answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) < length:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"refused: {bytes(self._received)!r}")
        self._received.clear()
        self.answered += 1
        if self._stops:
            self._transport.close()
        else:
            self._next()

    def stop(self) -> None:
        """Hang up after the next answer."""
        self._stops = True

    def _next(self) -> None:
        account = self._accounts[self.answered % ACCOUNTS]
        body = b'{"amountCents":5}'
        self._transport.write(
            f"POST /api/accounts/{account}/deposit HTTP/1.1\r\nHost: bench\r\n"
            f"Content-Type: application/json\r\nIdempotency-Key: {uuid4()}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )


async def _drive(ports: list[int], seconds: float) -> tuple[float, float]:
    """Requests a second once every account is warm, and how busy all cores were, in per cent."""
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(
            lambda at=at: Caller(at),  # type: ignore[misc]
            "127.0.0.1",
            ports[at % len(ports)],
        )
        for at in range(CONNECTIONS)
    ]
    callers = [caller for _, caller in opened]
    async with asyncio.timeout(WARM_S):
        while min(caller.answered for caller in callers) < ACCOUNTS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    before, began = sum(caller.answered for caller in callers), time.perf_counter()
    psutil.cpu_percent()
    await asyncio.sleep(seconds)
    percent = psutil.cpu_percent()
    answered = sum(caller.answered for caller in callers) - before
    took = time.perf_counter() - began
    for caller in callers:
        caller.stop()
    async with asyncio.timeout(WARM_S):
        while not all(transport.is_closing() for transport, _ in opened):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return answered / took, percent
