"""(a) The SQLite engine against SQLite itself, which appends the very same rows and checks nothing.

Both commit the same number of rows at a time, flushed. The raw side is one ``executemany`` of rows
made beforehand into a table without an index. The engine judges every write by version and
sequence, and keeps heads, marks and links besides.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.report import Figure, Plan, Report, interleaved, micros, per_s, ratios
from benchmarks.workload import Aggregates, calm_collector

from landed.clock import SystemClock
from landed.engines.ask import ask, ask_all
from landed.engines.lane import Lane
from landed.engines.port import Staged
from landed.engines.sqlite import SqliteStore, open_sqlite
from landed.engines.sqlite.file import WAL_PAGES
from landed.engines.sqlite.pack import Opened, newest_packs, whole_packs
from landed.engines.sqlite.schema import PAGE_BYTES
from landed.limits import Limits
from landed.log import Answer, Landed

AGGREGATES: Final = 100_000
COMMIT: Final = 1024
FRAME_BYTES: Final = PAGE_BYTES + 24
"""One page in the write-ahead log."""


class Stretch:
    """The wall and processor time of what happens since it was made."""

    def __init__(self) -> None:
        # The requests and rows that were made beforehand: to look through them is no part of either
        # side's work, and would be a tenth of a second in somebody's commit.
        gc.collect()
        gc.freeze()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def rate(self, count: int, cpu_us: list[float]) -> float:
        """So many a second; adds the processor time of one, of all threads."""
        took = time.perf_counter() - self._wall
        cpu_us.append((time.process_time() - self._cpu) / count * 1e6)
        return count / took


class Shape(NamedTuple):
    in_flight: int
    commits: int
    """In one round: enough for a checkpoint or two where commits are large."""


SHAPES: Final = (Shape(1, 300), Shape(64, 60), Shape(512, 24), Shape(4096, 6))
COMMITS: Final = {1024: 24, 128: 192}
"""Rows of a commit, and how many of them make a round."""
TAIL: Final = 65_536
"""Events that a kill leaves to be told anew."""


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 2 + len(COMMITS) + plan.rounds * (len(SHAPES) + len(COMMITS) + 1)


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    aggregates = Aggregates(8_192 if plan.is_quick else AGGREGATES)
    path = plan.folder / "engine.sqlite"
    with asyncio.Runner() as runner, calm_collector():
        report.doing("engine: warming aggregates")
        engine = Engine(runner.run(_warm(path, aggregates, Limits())), path, aggregates)
        report.step()
        raw = RawLog(plan.folder / "raw.sqlite", newest_rows(path))
        for shape in SHAPES:
            report.doing(f"engine: {shape.in_flight:,} in flight")
            subjects: dict[str, Callable[[], float]] = {
                "engine": lambda shape=shape: runner.run(engine.rate(shape)),
                "raw": partial(raw.rate, shape),
            }
            if shape.in_flight == 1:
                size = runner.run(engine.bytes_of_a_commit())
                flushed = Flushed(plan.folder / "flush.bin", size)
                subjects["flush"] = partial(flushed.rate, shape.commits)
                subjects["engine"] = lambda: runner.run(engine.lone_rate(300))
                subjects["raw"] = partial(raw.lone_rate, 300)
            found = interleaved(plan.rounds, subjects, after=report.step)
            _add(report, f"{shape.in_flight:,} writes in flight", found, engine, raw)
        runner.run(engine.lane.close())
        for rows, commits in COMMITS.items():
            report.doing(f"engine: commits of {rows:,}")
            limits = Limits(group_writes_max=rows)
            engine = Engine(runner.run(_warm(path, aggregates, limits)), path, aggregates)
            report.step()
            shape = Shape(rows, commits)
            found = interleaved(
                plan.rounds,
                {
                    "engine": lambda one=engine, shape=shape: runner.run(one.busy_rate(shape)),
                    "raw": partial(raw.rate, shape),
                },
                after=report.step,
            )
            subject = f"commits of {rows:,} over {len(aggregates.keys):,} warm aggregates"
            _add(report, subject, found, engine, raw, target=0.35)
            report.add(_longest(rows, engine))
            runner.run(engine.lane.close())
        _reopen(plan, report, runner, path, aggregates)
        raw.close()


def _add(
    report: Report,
    subject: str,
    found: dict[str, list[float]],
    engine: Engine,
    raw: RawLog,
    *,
    target: float | None = None,
) -> None:
    report.add(
        Figure(
            bench="engine",
            subject=subject,
            rounds=ratios(found["engine"], found["raw"]),
            unit="x",
            measured=f"{per_s(found['engine'])}, {_taken(engine.cpu_us)}",
            against=f"{per_s(found['raw'])}, {_taken(raw.cpu_us)}",
            target=target,
        )
    )
    if "flush" in found:
        report.add(
            Figure(
                bench="engine",
                subject="a lone write, in flushes of the same bytes",
                rounds=ratios(found["flush"], found["engine"]),
                unit="flushes",
                measured=micros([1 / rate for rate in found["engine"]]),
                against=micros([1 / rate for rate in found["flush"]]),
                target=1.5,
                is_more_better=False,
            )
        )


def _longest(rows: int, engine: Engine) -> Figure:
    longest, median = max(engine.commits_s), statistics.median(engine.commits_s)
    return Figure(
        bench="engine",
        subject=f"the longest commit of {rows:,}, in medians",
        rounds=(longest / median,),
        unit="x",
        measured=micros([longest]),
        against=micros([median]),
        target=30,
        is_more_better=False,
    )


def _reopen(
    plan: Plan, report: Report, runner: asyncio.Runner, path: Path, aggregates: Aggregates
) -> None:
    """Time the opening of what a kill leaves: the files, copied while the log is open."""
    report.doing("engine: opening after a kill")
    tail = TAIL // 16 if plan.is_quick else TAIL
    limits = Limits(group_writes_max=COMMIT, replayed_max=4 * TAIL)
    lane = runner.run(open_sqlite(path, limits=limits, clock=SystemClock()))
    runner.run(Engine(lane, path, aggregates).busy_rate(Shape(COMMIT, tail // COMMIT)))
    times, cpu = [], []
    killed = path.with_name("killed.sqlite")
    for _ in range(plan.rounds):
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{killed}{end}")
        store = SqliteStore(killed, limits=limits)
        began, spent = time.perf_counter(), time.thread_time()
        store.open()
        times.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - spent)
        store.close()
        report.step()
    runner.run(lane.close())
    report.add(
        Figure(
            bench="engine",
            subject=f"opening after a kill, {tail:,} events to tell anew",
            rounds=tuple(times),
            unit="s",
            measured=f"{statistics.median(cpu):.2f} s cpu",
            target=1,
            is_more_better=False,
        )
    )


def _taken(cpu_us: list[float]) -> str:
    """The median, to be read; and begin anew."""
    median = statistics.median(cpu_us)
    cpu_us.clear()
    return f"{median:.1f} us cpu"


async def _warm(path: Path, aggregates: Aggregates, limits: Limits) -> Lane:
    """Open the engine and write to every aggregate once."""
    lane = await open_sqlite(path, limits=limits, clock=SystemClock())
    for at in range(0, len(aggregates.keys), 4096):
        ends = range(at, min(at + 4096, len(aggregates.keys)))
        check(await ask_all(lane, [aggregates.write(one) for one in ends]))
    return lane


def check(answers: list[Answer]) -> None:
    """Stop where a write did not land: it would be too fast."""
    for answer in answers:
        if not isinstance(answer, Landed):
            raise SystemExit(f"refused: {answer!r}")


class Engine:
    """An engine on a file, with every aggregate warm."""

    def __init__(self, lane: Lane, path: Path, aggregates: Aggregates) -> None:
        self.lane = lane
        self._path = path
        self._aggregates = aggregates
        self.cpu_us: list[float] = []
        self.commits_s: list[float] = []
        """How long each commit of ``busy_rate`` took, on whatever thread."""

    async def rate(self, shape: Shape) -> float:
        """Writes a second, so many in flight: each of a batch is sent at once, then awaited."""
        batches = [self._aggregates.some(shape.in_flight) for _ in range(shape.commits)]
        stretch = Stretch()
        for batch in batches:
            check(await ask_all(self.lane, batch))
        return stretch.rate(shape.in_flight * shape.commits, self.cpu_us)

    async def lone_rate(self, writes: int) -> float:
        """One over the median time of a write that is alone."""
        lone = self._aggregates.some(writes)
        times, stretch = [], Stretch()
        for write in lone:
            began = time.perf_counter()
            answer = await ask(self.lane, write)
            times.append(time.perf_counter() - began)
            check([answer])
        stretch.rate(writes, self.cpu_us)
        return 1 / statistics.median(times)

    async def busy_rate(self, shape: Shape) -> float:
        """Writes a second while there is always a commit's worth waiting: a few in flight."""
        batches = [self._aggregates.some(shape.in_flight) for _ in range(shape.commits)]
        store = self.lane._store
        commit = store.commit

        def timed(group: Sequence[Staged]) -> None:
            began = time.perf_counter()
            commit(group)
            self.commits_s.append(time.perf_counter() - began)

        store.commit = timed  # type: ignore[method-assign]
        stretch = Stretch()
        pending: list[asyncio.Future[list[Answer]]] = []
        for batch in batches:
            pending.append(ask_all(self.lane, batch))
            if len(pending) == 3:
                check(await pending.pop(0))
        for rest in pending:
            check(await rest)
        store.commit = commit  # type: ignore[method-assign]
        return stretch.rate(shape.in_flight * shape.commits, self.cpu_us)

    async def bytes_of_a_commit(self) -> int:
        """What a lone write adds to the write-ahead log."""
        sizes = []
        shared = self._path.with_name(self._path.name + "-shm")
        for write in self._aggregates.some(32):
            before = _frames(shared)
            check([await ask(self.lane, write)])
            sizes.append(_frames(shared) - before)
        return int(statistics.median(sizes)) * FRAME_BYTES


def _frames(shared: Path) -> int:
    """How many frames the write-ahead log holds, from its index (SQLite's file format, 4.5)."""
    return int.from_bytes(shared.read_bytes()[16:20], "little")


def newest_rows(path: Path) -> list[tuple[Any, ...]]:
    """What the engine appended last, a row for each write and a column for each field of it."""
    connection = sqlite3.connect(path)
    try:
        first = next(newest_packs(connection)).first - 4096
        found = [one for row in whole_packs(connection, first) for one in Opened(row).after(first)]
        return [(*entry[1:], body) for entry, body in found]
    finally:
        connection.close()


_RAW_TABLE: Final = """
    CREATE TABLE entries (
      position INTEGER PRIMARY KEY,
      aggregate INTEGER NOT NULL,
      kind INTEGER NOT NULL,
      flags INTEGER NOT NULL,
      incarnation INTEGER NOT NULL,
      version INTEGER NOT NULL,
      event_seq INTEGER NOT NULL,
      event_count INTEGER NOT NULL,
      previous INTEGER NOT NULL,
      client BLOB NOT NULL,
      user BLOB,
      server_ms INTEGER NOT NULL,
      min_seq INTEGER NOT NULL,
      max_seq INTEGER NOT NULL,
      size INTEGER NOT NULL,
      body_check INTEGER NOT NULL,
      body BLOB
    )
"""
_RAW_INSERT: Final = f"INSERT INTO entries VALUES ({', '.join('?' * 17)})"


class RawLog:
    """A log-only table with a row for each write, appended to by ``executemany``."""

    def __init__(self, path: Path, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows
        self._position = 0
        self.cpu_us: list[float] = []
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in (
            f"page_size = {PAGE_BYTES}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "fullfsync = ON",
            "checkpoint_fullfsync = ON",
            f"wal_autocheckpoint = {WAL_PAGES}",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(_RAW_TABLE)

    def rate(self, shape: Shape) -> float:
        """Rows a second."""
        commits = []
        for _ in range(shape.commits):
            position, rows = self._position, self._rows
            commits.append(
                [(position + n, *rows[n % len(rows)]) for n in range(1, shape.in_flight + 1)]
            )
            self._position += shape.in_flight
        execute, write = self._connection.execute, self._connection.executemany
        stretch = Stretch()
        for commit in commits:
            execute("BEGIN IMMEDIATE")
            write(_RAW_INSERT, commit)
            execute("COMMIT")
        return stretch.rate(shape.in_flight * shape.commits, self.cpu_us)

    def lone_rate(self, commits: int) -> float:
        """One over the median time of a row that is alone."""
        lone = Shape(1, 1)
        return statistics.median(self.rate(lone) for _ in range(commits))

    def close(self) -> None:
        self._connection.close()


class Flushed:
    """A file that so many bytes are appended to and flushed."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._data = os.urandom(size)

    def rate(self, flushes: int) -> float:
        """One over the median time of a flush."""
        times = []
        for _ in range(flushes):
            began = time.perf_counter()
            os.write(self._descriptor, self._data)
            os.fdatasync(self._descriptor)
            times.append(time.perf_counter() - began)
        return 1 / statistics.median(times)
