"""(d) What age costs: a young and an old log side by side, and pairs that nobody has touched yet.

Every event is a write of its own, so a history of ten events has ten versions. *Cold* is what the
engine has not looked at since it was opened: neither its head nor its mark is in memory. The
operating system's cache is warm.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.bench_engine import check
from benchmarks.report import Figure, Plan, Report, micros, ratios
from benchmarks.workload import Aggregates, calm_collector

from landed.clock import SystemClock
from landed.engines.ask import ask, ask_all
from landed.engines.lane import Lane
from landed.engines.sqlite import open_sqlite
from landed.limits import Limits
from landed.log import Write

SHORT: Final = 10
"""Events of an ordinary history."""
LONG: Final = 10_000
LONG_PAIRS: Final = 8
YOUNG_EVENTS: Final = 10_000
TOUCHES: Final = 60
"""Pairs in one round, and lone writes."""


@dataclass(slots=True)
class Aged:
    """A log with so many events."""

    events: int
    path: Path
    aggregates: Aggregates
    long: Aggregates
    untouched: int = 0
    """Aggregates below this have been touched by a measurement."""

    async def opened(self) -> Lane:
        """Open it, everything cold."""
        return await open_sqlite(self.path, limits=Limits(), clock=SystemClock())

    def next_untouched(self, count: int) -> range:
        """Aggregates that no measurement has used yet; begins again where they run out."""
        if self.untouched + count > len(self.aggregates.keys):
            self.untouched = 0
        begin = self.untouched
        self.untouched += count
        return range(begin, begin + count)


def _ages(plan: Plan) -> list[int]:
    old = 50_000 if plan.is_quick else 1_000_000
    return [old, 10_000_000] if plan.is_big else [old]


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 1 + len(_ages(plan)) * (1 + plan.rounds)


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    with asyncio.Runner() as runner, calm_collector():
        report.doing("age: a young log")
        young = runner.run(_aged(plan.folder / "young.sqlite", YOUNG_EVENTS, long_pairs=0))
        report.step()
        for events in _ages(plan):
            report.doing(f"age: writing {events:,} events")
            old = runner.run(_aged(plan.folder / "old.sqlite", events, long_pairs=LONG_PAIRS))
            report.step()
            times = Times()
            report.doing(f"age: {events:,} events")
            for _ in range(plan.rounds):
                runner.run(_round(young, old, times))
                report.step()
            times.add_to(report, events)
            report.add(_size(old.path, events))
            old.path.unlink()


def _size(path: Path, events: int) -> Figure:
    """The file against the events in it, as they travel."""
    with closing(sqlite3.connect(path)) as connection:
        (encoded,) = connection.execute("SELECT sum(length(bodies)) FROM packs").fetchone()
    size = path.stat().st_size
    return Figure(
        bench="age",
        subject=f"bytes of a log of {events:,} events, in encoded events",
        rounds=(size / encoded,),
        unit="x",
        measured=f"{size / events:.0f} bytes an event",
        against=f"{encoded / events:.0f} bytes",
        target=1.35,
        is_more_better=False,
    )


async def _aged(path: Path, events: int, *, long_pairs: int) -> Aged:
    """Write a log: all histories grow together, so that each is spread over the whole file."""
    aged = Aged(events, path, Aggregates(events // SHORT), Aggregates(long_pairs, seed=1))
    lane = await aged.opened()
    order = (at for _ in range(SHORT) for at in range(len(aged.aggregates.keys)))
    await _write_all(lane, aged.aggregates, order)
    await _write_all(lane, aged.long, (at for _ in range(LONG) for at in range(long_pairs)))
    await lane.close()
    return aged


async def _write_all(lane: Lane, aggregates: Aggregates, order: Iterable[int]) -> None:
    """Write in large groups, two of them under way."""
    pending = None
    group: list[Write] = []
    for at in order:
        group.append(aggregates.write(at))
        if len(group) == 4096:
            sent = ask_all(lane, group)
            if pending is not None:
                check(await pending)
            pending, group = sent, []
    for rest in (pending, ask_all(lane, group)):
        if rest is not None:
            check(await rest)


class Times:
    """Median seconds of one write, a round each."""

    def __init__(self) -> None:
        self.young: list[float] = []
        self.old: list[float] = []
        self.warm: list[float] = []
        self.cold_short: list[float] = []
        self.cold_long: list[float] = []

    def add_to(self, report: Report, events: int) -> None:
        """Put them into ratios."""
        for subject, found, base, target in (
            (f"a lone write, {events:,} events against 10,000", self.old, self.young, 1.3),
            (f"first touch, 10 events of {events:,}, against warm", self.cold_short, self.warm, 2),
            (f"first touch, 10,000 of {events:,}, against warm", self.cold_long, self.warm, 2),
        ):
            report.add(
                Figure(
                    bench="age",
                    subject=subject,
                    rounds=ratios(found, base),
                    unit="x",
                    measured=micros(found),
                    against=micros(base),
                    target=target,
                    is_more_better=False,
                )
            )


async def _round(young: Aged, old: Aged, times: Times) -> None:
    """Open both, so that everything is cold, and write in turn: cold, warm, young."""
    lanes = await young.opened(), await old.opened()
    ends = young.next_untouched(TOUCHES), old.next_untouched(2 * TOUCHES)
    warmed = ends[1][TOUCHES:]
    for at in ends[0]:
        await _timed(lanes[0], young.aggregates.write(at))
    for at in warmed:
        await _timed(lanes[1], old.aggregates.write(at))
    found: dict[str, list[float]] = {}
    for number in range(TOUCHES):
        for name, lane, write in (
            ("cold", lanes[1], old.aggregates.write(ends[1][number])),
            ("old", lanes[1], old.aggregates.write(warmed[number])),
            ("young", lanes[0], young.aggregates.write(ends[0][number])),
        ):
            found.setdefault(name, []).append(await _timed(lane, write))
        long, is_its_turn = divmod(number, TOUCHES // LONG_PAIRS + 1)
        if not is_its_turn:
            found.setdefault("long", []).append(await _timed(lanes[1], old.long.write(long)))
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    times.young.append(medians["young"])
    times.old.append(medians["old"])
    times.warm.append(medians["old"])
    times.cold_short.append(medians["cold"])
    times.cold_long.append(medians["long"])
    for lane in lanes:
        await lane.close()


async def _timed(lane: Lane, write: Write) -> float:
    began = time.perf_counter()
    answer = await ask(lane, write)
    took = time.perf_counter() - began
    check([answer])
    return took
