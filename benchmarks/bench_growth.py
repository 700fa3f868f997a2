"""(k) With ``--big``: ten million events over a million aggregates, written as fast as they come.

Commits of 1,024, three of them under way; each write is judged by version and sequence. The writes are
made beforehand, a slice at a time, and that is not counted. What a kill leaves are the files, copied
while the log is open.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.bench_engine import COMMIT, check
from benchmarks.report import Figure, Plan, Report
from benchmarks.workload import Aggregates, calm_collector

from landed.clock import SystemClock
from landed.engines.ask import ask_all
from landed.engines.lane import Lane
from landed.engines.port import Staged
from landed.engines.sqlite import SqliteStore, open_sqlite
from landed.limits import Limits
from landed.log import Answer

TENTHS: Final = 10
SLICE: Final = 64
"""Commits whose writes are made at once."""
HISTORY: Final = 10
"""Events of an aggregate in the end, about."""
LIMITS: Final = Limits(group_writes_max=COMMIT)


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return TENTHS + 1 if plan.is_big else 0


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    if not plan.is_big:
        return
    tenth = SLICE * COMMIT * (1 if plan.is_quick else 15)
    events = TENTHS * tenth
    path = plan.folder / "growth.sqlite"
    with asyncio.Runner() as runner, calm_collector():
        lane = runner.run(open_sqlite(path, limits=LIMITS, clock=SystemClock()))
        growing = Growing(lane, Aggregates(events // HISTORY))
        rates = []
        for number in range(TENTHS):
            report.doing(f"growth: {number * tenth:,} events")
            rates.append(runner.run(growing.rate(tenth)))
            report.step()
        took_s = _reopened(path)
        runner.run(lane.close())
    report.step()
    commits = growing.commits_s
    with closing(sqlite3.connect(path)) as connection:
        (encoded,) = connection.execute("SELECT sum(length(bodies)) FROM packs").fetchone()
    size = path.stat().st_size
    of = f"of {events:,} events"
    for figure in (
        _figure(
            f"the last tenth {of}, against the first",
            rates[-1] / rates[0],
            0.9,
            f"{rates[-1]:,.0f}/s",
            f"{rates[0]:,.0f}/s",
            is_more_better=True,
        ),
        _figure(
            f"the longest commit {of}, over the median",
            max(commits) / statistics.median(commits),
            30.0,
            f"{max(commits) * 1e3:.1f} ms",
            f"{statistics.median(commits) * 1e3:.1f} ms",
        ),
        _figure(
            f"bytes {of}, in encoded events",
            size / encoded,
            1.35,
            f"{size / events:.0f} bytes an event",
            f"{encoded / events:.0f} bytes",
        ),
        _figure(f"opening {of} after a kill", took_s, 1.0, f"{took_s:.2f} s", "", unit="s"),
    ):
        report.add(figure)


def _figure(
    subject: str,
    value: float,
    target: float,
    measured: str,
    against: str,
    *,
    unit: str = "x",
    is_more_better: bool = False,
) -> Figure:
    return Figure(
        bench="growth",
        subject=subject,
        rounds=(value,),
        unit=unit,
        measured=measured,
        against=against,
        target=target,
        is_more_better=is_more_better,
    )


def _reopened(path: Path) -> float:
    """Seconds to open what a kill would leave now."""
    killed = path.with_name("growth-killed.sqlite")
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{killed}{end}")
    store = SqliteStore(killed, limits=LIMITS)
    began = time.perf_counter()
    store.open()
    took_s = time.perf_counter() - began
    store.close()
    killed.unlink()
    return took_s


class Growing:
    """A log that is written to without a pause."""

    def __init__(self, lane: Lane, aggregates: Aggregates) -> None:
        self._lane = lane
        self._aggregates = aggregates
        self.commits_s: list[float] = []
        store = lane._store
        commit = store.commit

        def timed(group: Sequence[Staged]) -> None:
            began = time.perf_counter()
            commit(group)
            self.commits_s.append(time.perf_counter() - began)

        store.commit = timed  # type: ignore[method-assign]

    async def rate(self, events: int) -> float:
        """Writes a second, without the time to make them."""
        took_s = 0.0
        for _ in range(events // (SLICE * COMMIT)):
            groups = [self._aggregates.some(COMMIT) for _ in range(SLICE)]
            began = time.perf_counter()
            pending: list[asyncio.Future[list[Answer]]] = []
            for group in groups:
                pending.append(ask_all(self._lane, group))
                if len(pending) == 3:
                    check(await pending.pop(0))
            for rest in pending:
                check(await rest)
            took_s += time.perf_counter() - began
        return events / took_s
