"""Commits of a fast disk run on the loop's own thread, and who came together shares the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from landed.clock import MonotonicMs, SystemClock
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.engines.pace import UNKNOWN_MS, Company, Pace
from landed.engines.port import Staged
from landed.errors import StorageError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Answer, Event, Landed, Unknown, Write
from tests.unit.engines.scripted import ScriptedStore

pytestmark = pytest.mark.real_loop


class Disk(ScriptedStore):
    """A store whose commits take as long as it is told, by its own clock."""

    def __init__(self) -> None:
        super().__init__(Limits())
        self.commit_ms = 0.1
        self.now_ms = 0.0
        self.threads: list[int] = []
        self.may_reclaim = threading.Event()

    def commit(self, group: Sequence[Staged]) -> None:
        self.threads.append(threading.get_ident())
        self.now_ms += self.commit_ms
        super().commit(group)

    def reclaim(self) -> int:
        assert self.may_reclaim.wait(10)
        return 0


class DiskClock(SystemClock):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self._disk.now_ms)


@asynccontextmanager
async def opened(disk: Disk, **limits: float) -> AsyncIterator[Lane]:
    lane = Lane(disk, limits=Limits(**limits), clock=DiskClock(disk))  # type: ignore[arg-type]
    await lane.open()
    try:
        yield lane
    finally:
        await lane.close()


async def write(lane: Lane, seq: int, *, number: int = 3) -> Answer:
    key = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=number))
    event = Event.new(1, b"x", client_seq=seq, event_id=None)
    return await ask(lane, Write.to(key, [event], client_id=UUID(int=7), expected_version=None))


async def write_many(lane: Lane, first: int, count: int) -> None:
    for seq in range(first, first + count):
        assert isinstance(await write(lane, seq), Landed)


async def test_a_commit_runs_on_the_loops_thread_once_it_is_known_to_be_fast() -> None:
    disk, mine = Disk(), threading.get_ident()
    async with opened(disk) as lane:
        await write_many(lane, 1, 40)
        assert disk.threads[0] != mine
        assert disk.threads[-1] == mine
        disk.commit_ms = 50.0
        await write_many(lane, 41, 2)
        assert [disk.threads[40], disk.threads[41] == mine] == [mine, False]
        disk.commit_ms = 0.1
        await write_many(lane, 43, 40)
        assert disk.threads[-1] == mine


async def test_a_limit_of_0_keeps_every_commit_on_a_thread_of_its_own() -> None:
    disk = Disk()
    async with opened(disk, inline_commit_ms=0.0) as lane:
        await write_many(lane, 1, 40)
        assert threading.get_ident() not in disk.threads


async def test_no_commit_runs_beside_the_dropping_of_dead_batches() -> None:
    disk, mine = Disk(), threading.get_ident()
    async with opened(disk) as lane:
        await write_many(lane, 1, 40)
        assert disk.threads[-1] == mine
        dropping = asyncio.ensure_future(lane.reclaim())
        await asyncio.sleep(0)
        writing = asyncio.ensure_future(write(lane, 41))
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(disk.threads) == 40, "it waits for the thread that both run on"
        disk.may_reclaim.set()
        assert isinstance(await writing, Landed)
        await dropping
        assert disk.threads[-1] != mine


async def test_a_failure_on_the_loops_thread_is_told_as_one_on_the_other() -> None:
    disk, mine = Disk(), threading.get_ident()
    async with opened(disk) as lane:
        await write_many(lane, 1, 40)
        disk.fail["commit"] = StorageError("no room")
        assert isinstance(await write(lane, 41), Unknown)
        assert isinstance(await write(lane, 41), Landed)
        disk.fail["commit"] = OSError("I/O error")
        assert isinstance(await write(lane, 42), Unknown)
        assert lane.is_stopped
        assert {mine} == set(disk.threads[40:])


def test_a_slow_commit_is_remembered_for_a_while_and_not_for_ever() -> None:
    pace = Pace(1.0)
    assert pace.recent_ms == UNKNOWN_MS
    pace.took(2.0)
    assert not pace.is_fast
    needed = 0
    while not pace.is_fast:
        pace.took(0.1)
        needed += 1
    assert 15 < needed < 30


async def test_who_shared_a_flush_shares_the_next_one_though_they_arrive_over_several_turns() -> (
    None
):
    disk = Disk()
    async with opened(disk) as lane:
        await write_many(lane, 1, 40)  # from now on commits are known to be fast
        commits = []
        for seq in (1, 2, 3):
            writing = []
            for number in range(10, 18):
                writing.append(asyncio.ensure_future(write(lane, seq, number=number)))
                if seq == 3 and number % 2:
                    await asyncio.sleep(0)  # the loop turns between them
            assert all(isinstance(answer, Landed) for answer in await asyncio.gather(*writing))
            commits.append(len(disk.threads))
        assert commits[1:] == [commits[0] + 1, commits[0] + 2]


async def test_a_lone_write_waits_for_nobody_who_shared_the_last_flush_but_one_turn() -> None:
    disk = Disk()
    async with opened(disk) as lane:
        await write_many(lane, 1, 40)  # by then commits are known to be fast, so on this thread
        await asyncio.gather(*[write(lane, 1, number=number) for number in range(10, 18)])
        commits, turns = len(disk.threads), 0
        answer = asyncio.ensure_future(write(lane, 41))
        while len(disk.threads) == commits:
            await asyncio.sleep(0)
            turns += 1
            assert turns < 6
        assert isinstance(await answer, Landed)


def test_a_group_waits_only_while_each_turn_brings_more_and_never_beyond_the_last_ones_size() -> (
    None
):
    company = Company()
    company.begin()
    assert not company.is_arriving(1)  # nobody shared a flush before
    company.last_count = 8
    company.begin()
    assert [company.is_arriving(count) for count in (1, 3, 3)] == [True, True, False]
    company.begin()
    assert [company.is_arriving(count) for count in (5, 8)] == [True, False]
    company.last_count = 1
    company.begin()
    assert not company.is_arriving(1)
