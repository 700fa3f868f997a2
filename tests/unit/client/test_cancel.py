"""A caller who stops waiting never leaves somebody else's answer behind."""

import asyncio

import pytest

from landed.errors import OutcomeUnknownError
from landed.log import Landed
from tests.unit.client.node import (
    HostileNode,
    after,
    hand_over,
    hold,
    now,
    read,
    release,
    reply,
    scene,
    silence,
    stats,
    until,
    value_of,
    write,
)


@pytest.mark.scenario("CPA-42")
async def test_after_a_cancelled_read_the_next_one_gets_its_own_answer():
    node = HostileNode(default=after(0.1, reply()))
    async with scene(node, max_connections=1) as pool:
        cancelled = asyncio.create_task(pool.read(read(1)))
        await until(lambda: node.frames)
        cancelled.cancel()
        assert value_of(await pool.read(read(2))) == b"2"
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert [frame.connection for frame in node.frames] == [0, 1]
        assert (node.lines[0].is_up, stats(pool).discards) == (False, {"cancelled": 1})


@pytest.mark.scenario("CPA-43")
async def test_cancelling_after_the_answer_was_read_keeps_the_connection():
    node = HostileNode(default=hold())
    async with scene(node) as pool:
        for _ in range(100):
            task = asyncio.create_task(pool.read(read(1)))
            await until(lambda: node.held)
            hand_over(node, pool)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (len(node.lines), stats(pool).discards, stats(pool).busy) == (1, {}, 0)


async def test_an_answer_read_in_the_turn_of_the_cancellation_keeps_the_connection():
    node = HostileNode(default=hold())
    async with scene(node) as pool:
        for _ in range(100):
            task = asyncio.create_task(pool.read(read(1)))
            await until(lambda: node.held)
            task.cancel()
            hand_over(node, pool)
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (len(node.lines), stats(pool).discards, stats(pool).busy) == (1, {}, 0)


@pytest.mark.scenario("CPA-44")
async def test_a_limit_of_ones_own_is_a_plain_timeout_and_the_pools_is_unknown():
    node = HostileNode(default=silence())
    async with scene(node) as pool:
        began = now()
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(write(1), timeout_s=0.2)
        assert raised.value.reason == "timeout"
        with pytest.raises(TimeoutError) as plain:
            async with asyncio.timeout(0.2):
                await pool.write(write(2))
        assert type(plain.value) is TimeoutError
        assert now() - began == pytest.approx(0.4, abs=0.01)
        await until(lambda: not node.up)
        assert stats(pool).discards == {"timeout": 1, "cancelled": 1}


async def test_a_write_that_is_cancelled_before_its_turn_is_never_sent():
    node = HostileNode()
    async with scene(node) as pool:
        await pool.read(read())
        for _ in range(50):
            task = asyncio.create_task(pool.write(write()))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(1)
        assert (node.writes, len(node.lines), stats(pool).busy) == (0, 1, 0)


async def test_a_neighbour_of_a_cancelled_request_gets_its_own_answer():
    node = HostileNode(default=hold())
    async with scene(node, max_connections=1) as pool:
        tasks = [asyncio.create_task(pool.read(read(n))) for n in range(1, 6)]
        await until(lambda: len(node.held) == 5)
        tasks[1].cancel()
        later = asyncio.create_task(pool.read(read(9)))
        for _ in range(5):
            release(node)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers.pop(1), asyncio.CancelledError)
        assert [value_of(page) for page in answers] == [b"1", b"3", b"4", b"5"]
        await until(lambda: node.held)
        release(node)
        assert value_of(await later) == b"9"
        assert [frame.connection for frame in node.frames] == [0, 0, 0, 0, 0, 1]
        assert stats(pool).discards == {"cancelled": 1}


async def test_when_all_neighbours_are_cancelled_the_connection_is_closed_at_once():
    node = HostileNode(default=silence())
    async with scene(node) as pool:
        tasks = [asyncio.create_task(pool.write(write(n))) for n in range(1, 4)]
        await until(lambda: len(node.frames) == 3)
        for task in tasks:
            task.cancel()
        began = now()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not node.up)
        assert now() - began < 0.01
        assert stats(pool).busy == stats(pool).idle == 0


async def test_cancelling_whoever_stands_in_the_way_lets_the_others_through():
    node = HostileNode(default=hold())
    async with scene(node, max_connections=1) as pool:
        first = asyncio.create_task(pool.write(write(1)))
        await until(lambda: node.held)
        in_the_way = asyncio.create_task(pool.info())
        await until(lambda: stats(pool).waiting == 1)
        second = asyncio.create_task(pool.write(write(2)))
        await until(lambda: stats(pool).waiting == 2)
        in_the_way.cancel()
        await until(lambda: len(node.held) == 2, within_s=0.1)
        release(node)
        release(node)
        assert await asyncio.gather(first, second) == [Landed((1,))] * 2
        with pytest.raises(asyncio.CancelledError):
            await in_the_way
