"""(c) The safe write loop against the same reads and writes of the log, done by hand.

By hand means: the caller already knows state and version, reads what is new, and writes with the
right guard and sequence. What the loop adds is looking for the request, deciding, folding, and
keeping the answer. One HTTP deposit on a warm replica is counted, not timed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import httpx
from benchmarks.bench_server import started
from benchmarks.report import Figure, Plan, Report, interleaved, per_s, ratios
from benchmarks.workload import calm_collector

from landed import connect
from landed.accounts import AccountService, Settings
from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit, Kind, Movement, account_key, encode
from landed.client.log import Log, for_decisions
from landed.commands import Done, Policy, SafeLoop, ServiceIdentity
from landed.ids import EventId
from landed.log import Event, Read, ReadFilters, Write
from landed.projections import MemoryProjection

CENTS: Final = 5
TASKS: Final = (1, 64)
IDENTITY: Final = ServiceIdentity.from_config("00000000-0000-4000-8000-00000000c11e")
HTTP_DEPOSITS: Final = 20


class Place(NamedTuple):
    """Where a log is, for both sides of the ratio."""

    name: str
    url: str
    target: float | None


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return plan.rounds * 3 * len(TASKS) + 1


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    seconds = 0.3 if plan.is_quick else 0.8
    serve = [sys.executable, "-m", "landed", "serve", "--listen", "127.0.0.1:0"]
    serve += ["--log-format", "none", "--engine", f"sqlite:///{plan.folder}/loop-served.sqlite"]
    with asyncio.Runner() as runner, calm_collector(), started(serve) as process:
        for place in (
            Place("memory in the process", "memory:", None),
            Place("SQLite in the process", f"sqlite:///{plan.folder}/loop.sqlite", 0.80),
            Place("a served SQLite", f"landed://127.0.0.1:{process.port}", 0.80),
        ):
            log = runner.run(connect(place.url))
            for tasks in TASKS:
                report.doing(f"loop: {place.name}, {tasks} at once")
                found = _measured(plan, report, runner, log, tasks, seconds)
                report.add(
                    Figure(
                        bench="loop",
                        subject=f"{place.name}, {tasks} at once, against by hand",
                        rounds=ratios(found["loop"], found["hand"]),
                        unit="x",
                        measured=per_s(found["loop"]),
                        against=per_s(found["hand"]),
                        target=place.target,
                    )
                )
            runner.run(log.close())
        runner.run(_count_http(report))
        report.step()


def _measured(
    plan: Plan, report: Report, runner: asyncio.Runner, log: Log, tasks: int, seconds: float
) -> dict[str, list[float]]:
    safe = SafeLoop(log, identity=IDENTITY, projection=MemoryProjection(), domain=Accounts())
    by_loop = [OneAccount(log, safe) for _ in range(tasks)]
    by_hand = [OneAccount(log, safe) for _ in range(tasks)]
    subjects: dict[str, Callable[[], float]] = {
        "loop": lambda: runner.run(_rate([one.deposit for one in by_loop], seconds)),
        "hand": lambda: runner.run(_rate([one.deposit_by_hand for one in by_hand], seconds)),
    }
    for subject in subjects.values():
        subject()  # so that both are warm
    return interleaved(plan.rounds, subjects, after=report.step)


async def _rate(deposits: list[Callable[[], Any]], seconds: float) -> float:
    """Deposits a second, each caller making one after the other."""
    ends_at = time.perf_counter() + seconds
    made = 0

    async def keep_on(deposit: Callable[[], Any]) -> None:
        nonlocal made
        while time.perf_counter() < ends_at:
            await deposit()
            made += 1

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for deposit in deposits:
            group.create_task(keep_on(deposit))
    return made / (time.perf_counter() - began)


class OneAccount:
    """An account and whoever deposits into it, in one way or the other."""

    def __init__(self, log: Log, safe: SafeLoop[int]) -> None:
        self._log = for_decisions(log)
        self._safe = safe
        self._account = uuid4()
        self._key = account_key(self._account)
        self._version = 0
        self._timeout_s = safe.policy.attempt_timeout_s

    async def deposit(self) -> None:
        """Through the loop, as a route does it."""
        command = command_of(Deposit(self._account, CENTS), EventId(uuid4()))
        outcome = await self._safe.execute(command)
        if not isinstance(outcome, Done):
            raise SystemExit(f"not done: {outcome!r}")

    async def deposit_by_hand(self) -> None:
        """One read of what is new, one write behind it: the calls that the loop makes."""
        version = self._version
        if version:
            filters = ReadFilters(from_version=version + 1)
            page = await self._log.read(Read(self._key, filters), timeout_s=self._timeout_s)
            assert not page.batches
        event = Event.new(
            Kind.DEPOSITED,
            encode(Movement(Kind.DEPOSITED, CENTS)),
            client_seq=version + 1,
            event_id=uuid4(),
        )
        write = Write.to(
            self._key,
            [event],
            client_id=IDENTITY.client_id,
            expected_version=version,
            allow_create=version == 0,
        )
        landed = await self._log.write(write, timeout_s=self._timeout_s)
        (self._version,) = landed.versions


# --- one HTTP deposit ------------------------------------------------------------------------------


class Counted:
    """A log that counts what is asked of it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._log, name)
        if name not in {"read", "write", "details", "trim", "delete", "info"}:
            return method

        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **options)

        return counting


async def _count_http(report: Report) -> None:
    """Count what HTTP deposits on a warm replica ask of the log."""
    report.doing("loop: calls of an HTTP deposit")
    async with AsyncExitStack() as stack:
        log = Counted(await connect("memory:"))
        stack.push_async_callback(log._log.close)

        async def opened() -> Any:
            return log

        service = AccountService(opened, Settings(identity=IDENTITY, policy=Policy()))
        await stack.enter_async_context(service.running())
        transport = httpx.ASGITransport(service.app)
        client = httpx.AsyncClient(transport=transport, base_url="http://accounts")
        await stack.enter_async_context(client)
        path = f"/api/accounts/{UUID(int=1)}/deposit"

        async def deposit() -> None:
            headers = {"Idempotency-Key": f'"{uuid4()}"'}
            answer = await client.post(path, json={"amountCents": CENTS}, headers=headers)
            answer.raise_for_status()

        await deposit()
        log.calls.clear()
        for _ in range(HTTP_DEPOSITS):
            await deposit()
        counts = ", ".join(f"{n / HTTP_DEPOSITS:g} {name}" for name, n in sorted(log.calls.items()))
        report.add(
            Figure(
                bench="loop",
                subject="calls of the log for one HTTP deposit on a warm replica",
                rounds=(sum(log.calls.values()) / HTTP_DEPOSITS,),
                unit="calls",
                measured=counts,
                target=2.0,
                is_more_better=False,
            )
        )
