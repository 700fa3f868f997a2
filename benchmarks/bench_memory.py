"""(e) The memory of a real ``landed serve`` while it takes one new aggregate after the other.

Resident memory as the operating system counts it, shared libraries and the mapped index of the
write-ahead log included. The caches have their default bounds.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Final

import psutil
from benchmarks.bench_server import Frames, Load, Process, started
from benchmarks.report import Figure, Plan, Report

EVERY: Final = 100_000
AGGREGATES: Final = 1_000_000
CONNECTIONS: Final = 16
OUTSTANDING: Final = 64
TARGET_MB: Final = 150


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return 1 if plan.is_quick else AGGREGATES // EVERY


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    serve = [sys.executable, "-m", "landed", "serve", "--listen", "127.0.0.1:0"]
    serve += ["--log-format", "none", "--engine", f"sqlite:///{plan.folder}/memory.sqlite"]
    with started(serve) as process:
        empty = _resident_mb(process)
        report.add(_figure("an empty log", empty, 0.0))
        sizes = asyncio.run(_grow(process, report, steps(plan)))
        for at, size in enumerate(sizes, 1):
            if at in {1, 2, 5, len(sizes)}:
                report.add(_figure(f"{at * EVERY:,} aggregates", size, size - empty))


def _figure(subject: str, size: float, more: float) -> Figure:
    return Figure(
        bench="memory",
        subject=f"landed serve, {subject}",
        rounds=(size,),
        unit="MB",
        measured=f"{size:,.0f} MB",
        against=f"{more:,.0f} MB more than empty" if more else "",
        target=TARGET_MB if more else None,
        is_more_better=False,
    )


def _resident_mb(process: Process) -> float:
    return psutil.Process(process.pid).memory_info().rss / 1e6


class NewAggregates(Frames):
    """Requests of one connection, each to an aggregate that nobody has written to yet."""

    def __init__(self, connection: int, left: list[int]) -> None:
        super().__init__(0, connection)
        self._rng = random.Random(connection)  # the same keys in every run
        self._left = left

    def next(self) -> bytes:
        if not self._left[0]:
            return b""
        self._left[0] -= 1
        frame = self._frame_bytes
        frame[self._key_at - 7 : self._key_at + 1] = self._rng.randbytes(8)
        return bytes(frame)


async def _grow(process: Process, report: Report, hundreds: int) -> list[float]:
    """Resident megabytes after every hundred thousand aggregates."""
    loop = asyncio.get_running_loop()
    totals, left = [0], [hundreds * EVERY]
    loads: list[Load] = []
    for at in range(CONNECTIONS):
        frames = NewAggregates(at, left)
        _, load = await loop.create_connection(
            lambda frames=frames: Load(frames, OUTSTANDING, totals), "127.0.0.1", process.port
        )
        loads.append(load)
    sizes = []
    for load in loads:
        load.start()
    for at in range(1, hundreds + 1):
        report.doing(f"memory: {at * EVERY:,} aggregates")
        while totals[0] < at * EVERY:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        sizes.append(_resident_mb(process))
        report.step()
    for load in loads:
        load.stop()
    return sizes
