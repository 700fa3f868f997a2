"""Hosts that stop, machines that die, stores that fail and calls that are cancelled at an await."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from landed import sim
from landed.conformance.trial import key, write
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.errors import StorageError
from landed.limits import Limits
from landed.log import Landed, Page, Read, SequenceTaken, Unknown
from landed.sim.disk import Disk
from landed.sim.spindle import Flaw, SimStore
from landed.sim.stepped import Stepped


async def ticker(host: str, seen: list[tuple[str, float]]) -> None:
    """Say every second that this host runs."""
    for _ in range(10):
        await asyncio.sleep(1)
        seen.append((host, asyncio.get_running_loop().time()))


async def test_a_stopped_host_does_nothing_and_then_everything_in_its_order():
    loop = sim.sim_loop()
    began = loop.time()
    seen: list[tuple[str, float]] = []
    tasks = []
    for host in ("one", "two"):
        with sim.on_host(host):
            tasks.append(asyncio.create_task(ticker(host, seen)))
    await asyncio.sleep(2.5)
    loop.pause("one")
    await asyncio.sleep(4)
    assert [host for host, _ in seen].count("one") == 2
    assert [host for host, _ in seen].count("two") == 6
    loop.resume("one")
    await asyncio.gather(*tasks)
    resumed = [at - began for host, at in seen if host == "one"][2]
    assert resumed == 6.5
    assert [host for host, _ in seen].count("one") == 10


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_dead_machine_is_seen_by_a_reset_or_not_at_all(is_silent):
    network = sim.sim_loop().network

    async def answer(reader, writer):
        with suppress(ConnectionError):
            writer.write(await reader.readexactly(1))

    with sim.on_host("machine"):
        server = await asyncio.start_server(answer, "machine", 7)
    reader, writer = await asyncio.open_connection("machine", 7)
    network.cut_off("machine", is_silent=is_silent)
    writer.write(b"x")
    try:
        async with asyncio.timeout(60):
            seen = await reader.read(1)
    except (TimeoutError, ConnectionError) as error:
        seen = type(error).__name__
    assert seen == ("TimeoutError" if is_silent else "ConnectionResetError")
    if is_silent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.open_connection("machine", 7)
        network.light("machine")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("machine", 7)
    writer.close()
    server.close()
    await server.wait_closed()


async def opened(disk: Disk) -> tuple[Lane, SimStore]:
    store = disk.insert(on_crash=lambda: None, note=lambda _name, _fields: None)
    lane = Lane(store, limits=Limits(), clock=sim.sim_loop().clock())
    await lane.open()
    return lane, store


async def versions(disk: Disk) -> int:
    """What the next life finds of the aggregate."""
    lane, _ = await opened(disk)
    answer = await ask(lane, Read(key(1)))
    await lane.close()
    assert isinstance(answer, Page)
    return len(answer.batches)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize(
    ("flaw", "is_stopped", "left"),
    [
        (Flaw.FULL, False, {1}),
        (Flaw.DOUBT_LOST, True, {1}),
        (Flaw.DOUBT_KEPT, True, {2}),
        (Flaw.CRASH_BEFORE, True, {1}),
        (Flaw.CRASH_TORN, True, {1, 2}),
        (Flaw.CRASH_AFTER, True, {2}),
    ],
)
async def test_what_befalls_a_commit_decides_what_the_next_life_finds(
    engine, flaw, is_stopped, left
):
    disk = Disk(engine, rng=Random(1))
    disk.prefers_large = lambda: False
    lane, store = await opened(disk)
    assert isinstance(await ask(lane, write(key(1), 1)), Landed)
    store.flaw = flaw
    assert isinstance(await ask(lane, write(key(1), 2)), Unknown)
    assert lane.is_stopped == is_stopped
    await lane.close()
    assert await versions(disk) in left
    assert disk.durable.broken == []
    disk.erase()


async def test_a_dead_life_changes_nothing_any_more():
    disk = Disk("memory")
    lane, store = await opened(disk)
    assert isinstance(await ask(lane, write(key(1), 1)), Landed)
    store.crash()
    with pytest.raises(StorageError):
        store.commit([])
    assert isinstance(await ask(lane, write(key(1), 2)), Unknown)
    await lane.close()
    assert await versions(disk) == 1


async def test_an_answer_that_is_not_flushed_is_noticed_at_once():
    disk = Disk("memory")
    lane, store = await opened(disk)
    asked = write(key(1), 1)
    seen = store.see(asked)
    assert list(store.untrue(asked, Landed((1,)), seen))
    assert isinstance(await ask(lane, asked), Landed)
    assert not list(store.untrue(asked, Landed((1,)), seen))
    assert list(store.untrue(asked, SequenceTaken(key(1), 2, 1), seen))
    assert not list(store.untrue(asked, SequenceTaken(key(1), 1, 1), seen))
    await lane.close()


async def test_a_call_can_be_cancelled_at_each_of_its_awaits():
    passed: list[int] = []

    async def program():
        for number in range(5):
            passed.append(number)
            await asyncio.sleep(0.1)
        return "done"

    for steps in range(1, 6):
        passed.clear()
        task = asyncio.create_task(Stepped(program(), steps))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert passed == list(range(steps))
    assert await asyncio.create_task(Stepped(program(), 0)) == "done"
    assert await asyncio.create_task(Stepped(program(), 99)) == "done"
