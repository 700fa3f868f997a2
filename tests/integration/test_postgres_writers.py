"""Many processes write one log on PostgreSQL: nobody's versions collide, and nobody waits in a circle."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask
from landed.engines.postgres import PostgresEngine, open_postgres
from landed.limits import Limits
from landed.log import FeedKind, FeedPage, FeedRead, Page, Read
from tests.integration.postgres_writers import key
from tests.lines import next_line
from tests.logs_on_postgres import Place, dsn, look_into

PROCESSES = 3
Answers = list[list[Any]]


class Writers:
    """Processes that each submit a list of writes at the same moment."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def submit(self, jobs: list[list[dict[str, Any]]]) -> list[Answers]:
        lines = [json.dumps(each) + "\n" for each in jobs]
        for process, line in zip(self._processes, lines, strict=True):
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        return [self._told(process) for process in self._processes]

    @staticmethod
    def _told(process: subprocess.Popen[str]) -> Answers:
        assert process.stdout is not None
        line = next_line(process)
        assert line, f"a writer died: {process.poll()}"
        answers: Answers = json.loads(line)
        return answers


@contextmanager
def writers(url: str) -> Iterator[Writers]:
    """Start them; the hashes of each are its own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.postgres_writers", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        for seed in range(1, PROCESSES + 1)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert next_line(process) == "ready\n"
        yield Writers(processes)
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            assert process.wait(30) == 0
            assert process.stdout is not None
            process.stdout.close()


async def opened(url: str) -> PostgresEngine:
    return await open_postgres(dsn(url), limits=Limits(), clock=SystemClock())


async def versions_of(engine: PostgresEngine, number: int) -> list[int]:
    page = await ask(engine, Read(key(number)))
    assert isinstance(page, Page)
    return [batch.version for batch in page.batches]


@pytest.mark.scenario("BC-03", "SC-06", "SC-25")
@pytest.mark.parametrize("repeats", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_of_parallel_writes_from_several_processes_as_many_are_stored_as_were_told_landed(
    postgres_place: Place, repeats: int
) -> None:
    url = postgres_place.new_log()
    engine = await opened(url)
    number = 0
    each = 20 // PROCESSES + 1
    with writers(url) as processes:
        for _ in range(repeats):
            for kind in ("everybody", "one of them", "one sequence"):
                number += 1
                expected = 0 if kind == "one of them" else None
                jobs = [
                    [
                        {
                            "legs": [[number, 1, expected]],
                            "client": 7 if kind == "one sequence" else 100 * process + at,
                        }
                        for at in range(each)
                    ]
                    for process in range(PROCESSES)
                ]
                answers = [answer for told in processes.submit(jobs) for answer in told]
                names = Counter(name for name, _ in answers)
                landed = sorted(versions[0] for name, versions in answers if name == "Landed")
                stored = await versions_of(engine, number)
                assert stored == landed, kind
                total = PROCESSES * each
                if kind == "everybody":
                    assert landed == list(range(1, total + 1))
                elif kind == "one of them":
                    assert names == {"Landed": 1, "VersionConflict": total - 1}
                else:
                    refused = names["SequenceTaken"] + names["SequenceInFlight"]
                    assert (names["Landed"], refused) == (1, total - 1)
    await engine.close()


@pytest.mark.scenario("BC-03")
@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.long)])
async def test_opposite_transfers_of_several_processes_never_wait_in_a_circle(
    postgres_place: Place, rounds: int
) -> None:
    url = postgres_place.new_log()
    draw = random.Random(4)
    sent: Counter[int] = Counter()
    seqs: Counter[tuple[int, int]] = Counter()

    def transfer(client: int) -> dict[str, Any]:
        legs = []
        for number in draw.sample(range(1, 7), 2):
            seqs[client, number] += 1
            sent[number] += 1
            legs.append([number, seqs[client, number], None])
        return {"legs": legs, "client": client}

    with writers(url) as processes:
        for _ in range(rounds):
            jobs = [[transfer(p + 1) for _ in range(8)] for p in range(PROCESSES)]
            answers = [answer for told in processes.submit(jobs) for answer in told]
            assert {name for name, _ in answers} == {"Landed"}
    engine = await opened(url)
    for number in range(1, 7):
        assert await versions_of(engine, number) == list(range(1, sent[number] + 1))
    feed = await ask(engine, FeedRead(0, limit=2_000))
    assert isinstance(feed, FeedPage)
    told: Counter[object] = Counter()
    for entry in feed.entries:
        assert entry.kind is FeedKind.WRITTEN
        told[entry.key] += 1
        assert entry.version == told[entry.key], "the feed agrees with every aggregate's versions"
    await engine.close()
    with look_into(url) as connection:
        row = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row == (0,)
