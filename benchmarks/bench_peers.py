"""(h) What a Python team would use instead of the log, doing the nearest same job just as durably.

``eventsourcing`` on SQLite: one event a transaction, inserted under a unique (aggregate, version), by
as many threads as serve it best. UmaDB: one event a call, appended on the condition that nobody wrote
to its aggregate since, by 32 threads of one process against its own server; beside it 32 tasks of one
process, against ``landed serve`` and with the file in that process. Ours judge version and sequence of every write.

One that is not installed is not measured: pip install 'landed[bench]'.
"""

# ruff: noqa: PLC0415  # a peer that is not installed hinders nothing

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from benchmarks.bench_engine import check
from benchmarks.bench_server import started
from benchmarks.report import Figure, Plan, Report, interleaved, per_s, ratios
from benchmarks.workload import PAYLOAD, Aggregates, calm_collector

from landed import connect
from landed.clock import SystemClock
from landed.engines.ask import ask_all
from landed.engines.lane import Lane
from landed.engines.sqlite import open_sqlite
from landed.limits import Limits

THREADS: Final = (1, 8, 32)
WRITERS: Final = 32
IN_FLIGHT: Final = 64
AGGREGATES: Final = 4_096
START_S: Final = 20.0

Insert = Callable[[UUID, int], object]
"""Write one event to an aggregate, which then has this version; returns when it is durable."""


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 2 * plan.rounds


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    if find_spec("eventsourcing") is None:
        report.console.print("peers: eventsourcing is not installed: not measured")
    else:
        _beside_eventsourcing(plan, report)
    if find_spec("umadb") is None:
        report.console.print("peers: UmaDB is not installed: not measured")
    else:
        _beside_umadb(plan, report)


# --- eventsourcing, on SQLite


def recorder_on_sqlite(path: Path) -> Insert:
    """``eventsourcing``'s recorder on a file, with the settings it chooses itself."""
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    store = SQLiteDatastore(str(path), lock_timeout=60, pool_size=max(THREADS))
    recorder = SQLiteApplicationRecorder(store)
    recorder.create_table()
    return inserting(recorder)


def inserting(recorder: Any) -> Insert:
    """Make a function of a recorder of theirs."""
    from eventsourcing.persistence import StoredEvent

    def insert(aggregate: UUID, version: int) -> None:
        recorder.insert_events([StoredEvent(aggregate, version, "event", PAYLOAD)])

    return insert


def threaded_rate(insert: Insert, threads: int, writes: int) -> float:
    """Events a second by so many threads, each with aggregates of its own, ten events each."""
    each = max(1, writes // threads)

    def work(_: int) -> None:
        for at in range(each):
            if at % 10 == 0:
                aggregate = uuid4()
            insert(aggregate, at % 10 + 1)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: time.sleep(0.001), range(threads)))  # until all of them run
        began = time.perf_counter()
        list(pool.map(work, range(threads)))
        return each * threads / (time.perf_counter() - began)


def best_of(found: dict[str, list[float]], names: Sequence[str]) -> tuple[list[float], str]:
    """Round by round the best of several, and the name of the one with the best median."""
    medians = {name: sorted(found[name])[len(found[name]) // 2] for name in names}
    rounds = [max(rates) for rates in zip(*(found[name] for name in names), strict=True)]
    return rounds, max(medians, key=medians.__getitem__)


def _beside_eventsourcing(plan: Plan, report: Report) -> None:
    report.doing("peers: eventsourcing on SQLite")
    writes = 320 if plan.is_quick else 1_600
    insert = recorder_on_sqlite(plan.folder / "eventsourcing.sqlite")
    aggregates = Aggregates(AGGREGATES)
    with asyncio.Runner() as runner, calm_collector():
        lane = runner.run(_warm(plan.folder / "beside.sqlite", aggregates))

        def ours() -> float:
            return runner.run(waves_rate(lane, aggregates, IN_FLIGHT, writes // 8))

        theirs: dict[str, Callable[[], float]] = {
            f"{threads} threads": partial(threaded_rate, insert, threads, writes)
            for threads in THREADS
        }
        found = interleaved(plan.rounds, {"ours": ours, **theirs}, after=report.step)
        runner.run(lane.close())
    best, name = best_of(found, list(theirs))
    report.add(
        Figure(
            bench="peers",
            subject=f"SQLite, {IN_FLIGHT} in flight, against eventsourcing at its best ({name})",
            rounds=ratios(found["ours"], best),
            unit="x",
            measured=per_s(found["ours"]),
            against=per_s(best),
            target=6.0,
        )
    )


async def _warm(path: Path, aggregates: Aggregates) -> Lane:
    lane = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    check(await ask_all(lane, [aggregates.write(at) for at in range(len(aggregates.keys))]))
    return lane


async def waves_rate(engine: Any, aggregates: Aggregates, in_flight: int, waves: int) -> float:
    """Writes a second, so many sent at once, and as many again when all are answered."""
    batches = [aggregates.some(in_flight) for _ in range(max(2, waves))]
    began = time.perf_counter()
    for batch in batches:
        check(await ask_all(engine, batch))
    return in_flight * len(batches) / (time.perf_counter() - began)


# --- UmaDB


def _beside_umadb(plan: Plan, report: Report) -> None:
    report.doing("peers: UmaDB")
    writes = 640 if plan.is_quick else 6_400
    serve = [sys.executable, "-m", "landed", "serve", "--listen", "127.0.0.1:0"]
    serve += ["--log-format", "none", "--engine", f"sqlite:///{plan.folder}/writers.sqlite"]
    with ExitStack() as stack:
        port = stack.enter_context(started(serve)).port
        theirs = stack.enter_context(_umadb(plan.folder / "uma.db"))
        urls = {
            "served": f"landed://127.0.0.1:{port}",
            "SQLite in the process": f"sqlite:///{plan.folder}/own.sqlite",
        }
        ours: dict[str, Callable[[], float]] = {
            name: lambda url=url: asyncio.run(_writers_rate(url, writes))  # type: ignore[misc]
            for name, url in urls.items()
        }
        found = interleaved(
            plan.rounds,
            {
                **ours,
                "UmaDB": lambda: threaded_rate(theirs, WRITERS, writes),
            },
            after=report.step,
        )
    for name in ours:
        report.add(
            Figure(
                bench="peers",
                subject=f"{name}, {WRITERS} Python writers, against UmaDB with {WRITERS}",
                rounds=ratios(found[name], found["UmaDB"]),
                unit="x",
                measured=per_s(found[name]),
                against=per_s(found["UmaDB"]),
                target=1.5,
            )
        )


async def _writers_rate(url: str, writes: int) -> float:
    """Events a second by 32 tasks, each with aggregates of its own, ten events each."""
    each = writes // WRITERS
    async with await connect(url) as log:
        own = [Aggregates(each // 10 + 1, seed=uuid4().int) for _ in range(WRITERS)]

        async def work(aggregates: Aggregates) -> None:
            for at in range(each):
                await log.write(aggregates.write(at // 10))

        await log.write(Aggregates(1, seed=uuid4().int).write(0))
        began = time.perf_counter()
        await asyncio.gather(*map(work, own))
        return each * WRITERS / (time.perf_counter() - began)


@contextmanager
def _umadb(path: Path) -> Iterator[Insert]:
    """Its own server, as the wheel brings it, and one client for each thread that asks."""
    interrupted = signal.getsignal(signal.SIGINT)
    import umadb

    signal.signal(signal.SIGINT, interrupted)  # importing it takes this away
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from umadb.umadb_server_cli import main; main()"
    arguments = [sys.executable, "-c", code, "--listen", f"127.0.0.1:{port}", "--db-path", path]
    server = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        client = _client_of(f"http://127.0.0.1:{port}")
        positions: dict[UUID, int] = {}

        def insert(aggregate: UUID, _version: int) -> None:
            tag = f"id:{aggregate}"
            query = umadb.Query([umadb.QueryItem(tags=[tag])])
            condition = umadb.AppendCondition(query, positions.get(aggregate))
            event = umadb.Event("event", PAYLOAD, [tag], uuid4())
            positions[aggregate] = client.append([event], condition)

        yield insert
    finally:
        server.terminate()
        server.wait()


def _client_of(url: str) -> Any:
    """Connect, as soon as the server listens."""
    import umadb

    until = time.monotonic() + START_S
    while True:
        try:
            client = umadb.Client(url)
            client.head()
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return client
