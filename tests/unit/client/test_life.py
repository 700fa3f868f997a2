"""Connections: how many there are, who gets them, when they end."""

import asyncio

import pytest

from landed.client.assign import BreakerState
from landed.errors import (
    LandedError,
    Outcome,
    OutcomeUnknownError,
    PoolClosedError,
    PoolExhaustedError,
    VersionConflictError,
)
from landed.log import Landed
from tests.unit.client.node import (
    HostileNode,
    after,
    both,
    deaf,
    error,
    fin,
    garbage,
    hand_over,
    hold,
    now,
    pool_of,
    read,
    release,
    reply,
    rst,
    running,
    scene,
    silence,
    stats,
    twice,
    until,
    value_of,
    write,
)


@pytest.mark.scenario("CPA-1")
async def test_no_more_sockets_than_the_cap_and_first_come_first_served():
    node = HostileNode(default=after(0.05, reply()))
    async with scene(node, max_connections=2, pipeline_depth=1) as pool:
        done = []

        async def one(number):
            assert value_of(await pool.read(read(number))) == str(number).encode()
            done.append(number)

        await asyncio.gather(*(one(number) for number in range(1, 6)))
        assert node.peak == 2
        assert [set(done[:2]), set(done[2:4]), set(done[4:])] == [{1, 2}, {3, 4}, {5}]


@pytest.mark.scenario("CPA-2")
async def test_refusals_keep_the_connection():
    node = HostileNode(default=error(2003, expected_version=1, current_aggregate_version=2))
    async with scene(node) as pool:
        for _ in range(100):
            with pytest.raises(VersionConflictError) as raised:
                await pool.write(write())
            assert (raised.value.expected, raised.value.actual) == (1, 2)
        assert (len(node.lines), len(node.frames)) == (1, 100)
        assert stats(pool).discards == {}
        assert stats(pool).reuses == 99


@pytest.mark.scenario("CPA-3")
async def test_a_connection_that_the_node_closed_while_idle_is_not_used_again():
    node = HostileNode(script=[[both(reply(), after(0.02, fin()))]])
    async with scene(node) as pool:
        await pool.write(write(1))
        await until(lambda: stats(pool).idle == 0)
        assert await pool.write(write(2)) == Landed((1,))
        assert [frame.connection for frame in node.frames] == [0, 1]
        assert stats(pool).discards == {"eof": 1}
        assert stats(pool).breaker is BreakerState.CLOSED


@pytest.mark.scenario("CPA-4")
async def test_an_idle_connection_is_closed_in_time_and_that_is_no_failure():
    node = HostileNode()
    async with scene(node, idle_timeout_s=25.0) as pool:
        await pool.write(write(1))
        await asyncio.sleep(25.1)
        assert (node.up, stats(pool).idle) == (0, 0)
        await pool.write(write(2))
        assert [frame.connection for frame in node.frames] == [0, 1]
        assert stats(pool).discards == {"expired": 1}
        assert stats(pool).breaker is BreakerState.CLOSED


async def test_the_connection_used_last_is_used_again_and_the_others_grow_old():
    node = HostileNode(default=after(1.0, reply()))
    async with scene(node, pipeline_depth=1, idle_timeout_s=20.0) as pool:
        await asyncio.gather(pool.read(read(1)), pool.read(read(2)))
        for _ in range(15):
            await pool.read(read(3))
            await asyncio.sleep(1.0)
        assert {frame.connection for frame in node.frames[2:]} == {1}
        assert stats(pool).discards == {"expired": 1}


async def test_an_old_connection_is_replaced_between_requests():
    node = HostileNode()
    async with scene(node, max_connection_age_s=10.0) as pool:
        for _ in range(30):
            await pool.read(read())
            await asyncio.sleep(1.0)
        assert 2 < len(node.lines) <= 4
        assert len(node.frames) == 30


async def test_an_old_connection_is_replaced_even_if_it_is_never_idle():
    node = HostileNode(default=after(0.3, reply()))
    async with scene(node, max_connection_age_s=10.0, pipeline_depth=4) as pool:

        async def busy():
            for _ in range(100):
                await pool.read(read())

        await asyncio.gather(busy(), asyncio.create_task(late(busy())))
        assert 2 < len(node.lines) <= 5
        assert stats(pool).discards.keys() == {"expired"}


async def late(call):
    await asyncio.sleep(0.15)
    await call


@pytest.mark.scenario("CPA-5")
async def test_a_connection_with_bytes_that_nobody_asked_for_is_given_up():
    node = HostileNode(script=[[both(reply(), after(0.02, garbage(10)))]])
    async with scene(node) as pool:
        await pool.read(read(1))
        await until(lambda: stats(pool).idle == 0)
        assert value_of(await pool.read(read(2))) == b"2"
        assert [frame.connection for frame in node.frames] == [0, 1]
        assert stats(pool).discards == {"unsolicited": 1}


@pytest.mark.scenario("CPA-21")
async def test_an_answer_that_comes_twice_counts_once_and_ends_the_connection():
    node = HostileNode(script=[[twice()]])
    async with scene(node) as pool:
        assert value_of(await pool.read(read(1))) == b"1"
        assert value_of(await pool.read(read(2))) == b"2"
        assert [frame.connection for frame in node.frames] == [0, 1]
        assert stats(pool).discards == {"unsolicited": 1}


@pytest.mark.scenario("CPA-6")
async def test_waiters_get_new_connections_when_every_busy_one_breaks():
    node = HostileNode(script=[[after(1.0, rst())], [after(1.0, rst())]])
    async with scene(node, max_connections=2, pipeline_depth=1) as pool:
        broken = [asyncio.create_task(pool.write(write(n))) for n in (1, 2)]
        await until(lambda: len(node.frames) == 2)
        waiters = [asyncio.create_task(pool.write(write(n))) for n in (3, 4, 5)]
        async with asyncio.timeout(2.0):
            assert await asyncio.gather(*waiters) == [Landed((1,))] * 3
        lost = await asyncio.gather(*broken, return_exceptions=True)
        assert [error.reason for error in lost] == ["reset", "reset"]
        assert node.peak == 2


def _hand_over_then_cancel(node, pool, waiter):
    hand_over(node, pool)
    waiter.cancel()


def _cancel_then_hand_over(node, pool, waiter):
    waiter.cancel()
    hand_over(node, pool)


@pytest.mark.scenario("CPA-8", "BC-11")
@pytest.mark.parametrize("race", [_hand_over_then_cancel, _cancel_then_hand_over])
async def test_what_a_cancelled_waiter_would_have_got_goes_to_the_next(race):
    node = HostileNode(default=hold())
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        holder = asyncio.create_task(pool.read(read(1)))
        await until(lambda: node.held)
        for round_ in range(1_000):
            cancelled = asyncio.create_task(pool.read(read(3 * round_ + 2)))
            next_ = asyncio.create_task(pool.read(read(3 * round_ + 3)))
            while stats(pool).waiting < 2:
                await asyncio.sleep(0)
            race(node, pool, cancelled)
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await holder
            await until(lambda: node.held)
            assert node.frames[-1].request == read(3 * round_ + 3)
            holder = next_
        assert (len(node.frames), len(node.lines)) == (1_001, 1)
        release(node)
        await holder
        assert (stats(pool).busy, stats(pool).waiting, stats(pool).idle) == (0, 0, 1)


@pytest.mark.scenario("BC-11")
@pytest.mark.parametrize("is_limit_first", [True, False])
async def test_a_connection_freed_in_the_tick_of_a_waiters_limit_is_not_lost(is_limit_first):
    node = HostileNode(default=hold())
    loop = asyncio.get_running_loop()
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        for round_ in range(300):
            holder = asyncio.create_task(pool.read(read(1)))
            await until(lambda: node.held)
            limit = now() + 0.05
            if not is_limit_first:
                loop.call_at(limit, hand_over, node, pool)
            limited = asyncio.create_task(pool.read(read(2), timeout_s=limit - now()))
            while not stats(pool).waiting:
                await asyncio.sleep(0)
            if is_limit_first:
                loop.call_at(limit, hand_over, node, pool)
            with pytest.raises(LandedError) as raised:
                await limited
            assert raised.value.outcome is Outcome.NOT_SENT
            await holder
            third = asyncio.create_task(pool.read(read(3)))
            await until(lambda: node.held)
            release(node)
            assert value_of(await third) == b"3"
            assert (stats(pool).busy, stats(pool).waiting, round_) == (0, 0, round_)
        assert 2 not in {frame.request.key.id.int for frame in node.frames}


@pytest.mark.scenario("CPA-9")
async def test_whoever_waits_too_long_for_a_connection_has_sent_nothing():
    node = HostileNode(default=after(10.0, reply()))
    async with scene(node, max_connections=1, pipeline_depth=1, acquire_timeout_s=0.1) as pool:
        holder = asyncio.create_task(pool.write(write(1)))
        await until(lambda: node.frames)
        began = now()
        with pytest.raises(PoolExhaustedError) as raised:
            await pool.write(write(2))
        assert now() - began == pytest.approx(0.1, abs=0.02)
        assert (raised.value.outcome, raised.value.attempts) == (Outcome.NOT_SENT, 0)
        assert await holder == Landed((1,))
        assert node.writes == 1


@pytest.mark.scenario("CPA-10")
async def test_closing_refuses_who_waits_and_lets_what_was_sent_finish():
    node = HostileNode(default=after(1.0, reply()))
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        sent = asyncio.create_task(pool.write(write(1)))
        await until(lambda: node.frames)
        waiters = [asyncio.create_task(pool.write(write(n))) for n in (2, 3, 4)]
        await until(lambda: stats(pool).waiting == 3)
        began = now()
        closing = asyncio.create_task(pool.close())
        refused = await asyncio.gather(*waiters, return_exceptions=True)
        assert now() == began
        assert [type(error) for error in refused] == [PoolClosedError] * 3
        assert await sent == Landed((1,))
        await closing
        assert now() - began < 1.1
        with pytest.raises(PoolClosedError):
            await pool.write(write(5))
        await pool.close()
        await until(lambda: not node.up)
        assert node.writes == 1


async def test_what_is_not_answered_within_the_grace_of_closing_is_unknown():
    node = HostileNode(default=silence())
    async with scene(node, close_grace_s=2.0) as pool:
        sent = asyncio.create_task(pool.write(write(1)))
        await until(lambda: node.frames)
        began = now()
        await pool.close()
        assert now() - began == pytest.approx(2.0, abs=0.01)
        with pytest.raises(OutcomeUnknownError) as raised:
            await sent
        assert raised.value.reason == "closing"
        await until(lambda: not node.up)


async def test_closing_while_a_dial_hangs_does_not_wait_for_it():
    node = HostileNode()
    async with running(node):
        pool = pool_of(node)
        with deaf("a"):
            waiter = asyncio.create_task(pool.write(write()))
            await until(lambda: stats(pool).dialling if pool.stats() else 0)
            began = now()
            await pool.close()
        assert now() == began
        with pytest.raises(PoolClosedError):
            await waiter


async def test_a_pool_that_was_never_used_closes():
    async with pool_of("a:1") as pool:
        assert "not used yet" in repr(pool)
    assert repr(pool).startswith("<Pool closed")


async def test_one_line_says_how_a_pool_is_doing():
    node = HostileNode(default=hold())
    async with scene(node, max_connections=1, pipeline_depth=1) as pool:
        tasks = [asyncio.create_task(pool.read(read(n))) for n in (1, 2)]
        await until(lambda: node.held and stats(pool).waiting)
        assert repr(pool) == (
            "<Pool leader a:10000; a:10000: 0 idle, 1 busy, 1 unanswered, 0 dialling, "
            "1 waiting, breaker closed>"
        )
        for _ in tasks:
            await until(lambda: node.held)
            release(node)
        await asyncio.gather(*tasks)
