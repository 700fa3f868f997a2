"""(c) The safe write loop against the same reads and writes of the log, done by hand.

By hand means: the caller already knows state and version, reads what is new, and writes with the
right guard and sequence. What the loop adds is looking for the request, deciding, folding, and
keeping the answer. One HTTP deposit on a warm replica is counted, and timed layer by layer.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from benchmarks.bench_server import started
from benchmarks.http_deposit import count_calls, measure_layers
from benchmarks.report import Figure, Plan, Report, interleaved, per_s, ratios
from benchmarks.workload import calm_collector

from landed import connect
from landed.accounts.decide import command_of
from landed.accounts.domain import Accounts, Deposit, Kind, Movement, account_key, encode
from landed.client.log import Log, for_decisions
from landed.commands import Done, SafeLoop, ServiceIdentity
from landed.ids import EventId
from landed.log import Event, Read, ReadFilters, Write
from landed.projections import MemoryProjection

CENTS: Final = 5
TASKS: Final = (1, 64)
IDENTITY: Final = ServiceIdentity.from_config("00000000-0000-4000-8000-00000000c11e")


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
                found, spent = _measured(plan, report, runner, log, tasks, seconds)
                report.add(
                    Figure(
                        bench="loop",
                        subject=f"{place.name}, {tasks} at once, against by hand",
                        rounds=ratios(found["loop"], found["hand"]),
                        unit="x",
                        measured=f"{per_s(found['loop'])}, {spent['loop']}",
                        against=f"{per_s(found['hand'])}, {spent['hand']}",
                        target=place.target,
                    )
                )
            runner.run(log.close())
        runner.run(count_calls(report, IDENTITY))
        runner.run(_http_layers(plan, report))
        report.step()


async def _http_layers(plan: Plan, report: Report) -> None:
    async with await connect("memory:") as log:
        safe = SafeLoop(log, identity=IDENTITY, projection=MemoryProjection(), domain=Accounts())
        by_hand, by_loop = OneAccount(log, safe).deposit_by_hand, OneAccount(log, safe).deposit
        await measure_layers(plan, report, IDENTITY, by_hand=by_hand, by_loop=by_loop)


def _measured(
    plan: Plan, report: Report, runner: asyncio.Runner, log: Log, tasks: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Rates by round, and the processor time of one deposit, to be read."""
    safe = SafeLoop(log, identity=IDENTITY, projection=MemoryProjection(), domain=Accounts())
    by_loop = [OneAccount(log, safe) for _ in range(tasks)]
    by_hand = [OneAccount(log, safe) for _ in range(tasks)]
    cpu_us: dict[str, list[float]] = {"loop": [], "hand": []}
    one_each = {
        "loop": [one.deposit for one in by_loop],
        "hand": [one.deposit_by_hand for one in by_hand],
    }

    def subject(name: str) -> Callable[[], float]:
        return lambda: runner.run(_rate(one_each[name], seconds, cpu_us[name]))

    subjects = {name: subject(name) for name in one_each}
    for name, measure in subjects.items():
        measure()  # so that both are warm
        cpu_us[name].clear()
    found = interleaved(plan.rounds, subjects, after=report.step)
    spent = {name: f"{statistics.median(each):.0f} us cpu" for name, each in cpu_us.items()}
    return found, spent


async def _rate(
    deposits: Sequence[Callable[[], Any]], seconds: float, cpu_us: list[float]
) -> float:
    """Deposits a second, each caller making one after the other; adds what one took of this process."""
    ends_at = time.perf_counter() + seconds
    made = 0

    async def keep_on(deposit: Callable[[], Any]) -> None:
        nonlocal made
        while time.perf_counter() < ends_at:
            await deposit()
            made += 1

    began, before = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for deposit in deposits:
            group.create_task(keep_on(deposit))
    cpu_us.append((time.process_time() - before) / made * 1e6)
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
