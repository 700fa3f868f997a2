"""(f) A device's queue against the same rows kept and sent by hand.

By hand means: a counter and a table in an SQLite file with the same settings, one statement each, no
check, no aggregate, no event id looked up. Draining by hand reads a run, writes it to the log, and marks
it; it remembers no attempt and blocks nothing. Both drain into the same kind of log in the process.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from itertools import count
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from benchmarks.report import Figure, Plan, Report, interleaved, per_s, ratios
from benchmarks.workload import CLIENT, ORG, PAYLOAD, TYPE, calm_collector

from landed import connect
from landed.client.log import Log
from landed.clock import SystemClock
from landed.ids import AggregateKey
from landed.log import ANY, Event, Write
from landed.offline import AsyncQueue, QueueLimits
from landed.offline.store import Store

KEY: Final = AggregateKey(ORG, TYPE, UUID(int=6))
RUN: Final = QueueLimits().run_events_max
SAVES: Final = (1, 100)
"""Events in one transaction."""
_SEQ: Final = count(1)


class ByHand:
    """The rows, and nothing around them."""

    def __init__(self, path: Path) -> None:
        self.sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
            self.sql.execute(f"PRAGMA {pragma}")
        self.sql.execute("CREATE TABLE counter (next_seq INTEGER)")
        self.sql.execute("INSERT INTO counter VALUES (1)")
        self.sql.execute(
            "CREATE TABLE events (client_seq INTEGER PRIMARY KEY, event_id BLOB, event_ms INTEGER, "
            "type INTEGER, synced INTEGER DEFAULT 0, value BLOB)"
        )

    def save(self, events: int) -> None:
        """So many events in one flushed transaction."""
        sql = self.sql
        sql.execute("BEGIN IMMEDIATE")
        for _ in range(events):
            (seq,) = sql.execute("SELECT next_seq FROM counter").fetchone()
            sql.execute("UPDATE counter SET next_seq = ?", (seq + 1,))
            sql.execute(
                "INSERT INTO events (client_seq, event_id, event_ms, type, value) "
                "VALUES (?, ?, ?, ?, ?)",
                (seq, uuid4().bytes, 0, 1, PAYLOAD),
            )
        sql.execute("COMMIT")

    async def drain(self, log: Log) -> None:
        """Run after run, marked after each."""
        client_id = uuid4()
        while True:
            rows = self.sql.execute(
                "SELECT client_seq, event_id, event_ms, type, value FROM events "
                "WHERE synced = 0 ORDER BY client_seq LIMIT ?",
                (RUN,),
            ).fetchall()
            if not rows:
                return
            events = [
                Event.new(kind, value, client_seq=seq, event_id=UUID(bytes=one), event_ms=ms)
                for seq, one, ms, kind, value in rows
            ]
            await log.write(Write.to(KEY, events, client_id=client_id, expected_version=ANY))
            self.sql.execute(
                "UPDATE events SET synced = 1 WHERE client_seq BETWEEN ? AND ?",
                (rows[0][0], rows[-1][0]),
            )


def steps(plan: Plan) -> int:
    """How far the bar moves."""
    return plan.rounds * (len(SAVES) + 1)


def run(plan: Plan, report: Report) -> None:
    """Measure, and add to the report."""
    with calm_collector():
        for events in SAVES:
            report.doing(f"offline: saving {events} at once")
            _saving(plan, report, events)
        report.doing("offline: draining")
        asyncio.run(_draining(plan, report))


def _saving(plan: Plan, report: Report, events: int) -> None:
    saves = (100 if plan.is_quick else 1_000) if events == 1 else (10 if plan.is_quick else 100)
    store = _store(plan.folder / f"queue-{events}.sqlite")
    hand = ByHand(plan.folder / f"hand-{events}.sqlite")

    def by_queue() -> None:
        store.save(lambda saving: [saving.enqueue(KEY, 1, PAYLOAD) for _ in range(events)])

    def rate(save: object) -> float:
        began = time.perf_counter()
        for _ in range(saves):
            save()  # type: ignore[operator]
        return saves * events / (time.perf_counter() - began)

    found = interleaved(
        plan.rounds,
        {"queue": lambda: rate(by_queue), "hand": lambda: rate(lambda: hand.save(events))},
        after=report.step,
    )
    store.close()
    hand.sql.close()
    _add(report, f"saved durably, {events} in a transaction, against by hand", found)


async def _draining(plan: Plan, report: Report) -> None:
    events = 2_000 if plan.is_quick else 20_000
    found: dict[str, list[float]] = {"queue": [], "hand": []}
    for at in range(plan.rounds):
        for name in ("queue", "hand") if at % 2 == 0 else ("hand", "queue"):
            url = f"sqlite:///{plan.folder}/drained-{next(_SEQ)}.sqlite"
            async with await connect(url) as log:
                found[name].append(await _one_drain(name, plan.folder, log, events))
        report.step()
    _add(report, f"drained in runs of {RUN} into SQLite, against by hand", found)


async def _one_drain(name: str, folder: Path, log: Log, events: int) -> float:
    path = folder / f"device-{next(_SEQ)}.sqlite"
    if name == "hand":
        hand = ByHand(path)
        hand.save(events)
        began = time.perf_counter()
        await hand.drain(log)
        took = time.perf_counter() - began
        hand.sql.close()
        return events / took
    async with AsyncQueue(_store(path)) as queue:
        await queue.save(lambda saving: [saving.enqueue(KEY, 1, PAYLOAD) for _ in range(events)])
        began = time.perf_counter()
        synced = await queue.sync(log)
        took = time.perf_counter() - began
    assert synced.landed == events
    return events / took


def _store(path: Path) -> Store:
    return Store.open(path, clock=SystemClock(), client_id=CLIENT)


def _add(report: Report, subject: str, found: dict[str, list[float]]) -> None:
    report.add(
        Figure(
            bench="offline",
            subject=subject,
            rounds=ratios(found["queue"], found["hand"]),
            unit="x",
            measured=per_s(found["queue"]),
            against=per_s(found["hand"]),
        )
    )
