"""Random trouble, exact accounts: slots, outcomes, answers (pool rules CP-18 to CP-20, CP-31)."""

import asyncio
from random import Random

import pytest

from landed import sim
from landed.errors import LandedError, NotSentError, Outcome
from landed.log import Landed, Write
from tests.unit.client.node import (
    HostileNode,
    after,
    both,
    error,
    farewell,
    fin,
    garbage,
    half_close,
    hold,
    pool_of,
    read,
    release,
    reply,
    rst,
    running,
    silence,
    stats,
    truncate,
    twice,
    until,
    value_of,
    write,
    wrong_correlation,
)

CALLERS = 200
TROUBLE = (
    fin(),
    rst(),
    silence(),
    half_close(),
    twice(),
    farewell(),
    garbage(30),
    wrong_correlation(),
    error(2007),
    error(11000),
    truncate(20, fin()),
    truncate(20, rst()),
    truncate(10, silence()),
    after(0.5, reply()),
    both(reply(), after(0.01, fin())),
)


def trouble(rng):
    def act(line, received):
        step = reply() if rng.random() < 0.6 else rng.choice(TROUBLE)
        return after(rng.random() * 0.02, step)(line, received)

    return act


def troubled_greeting(rng):
    def act(line, received):
        if rng.random() < 0.2:
            after(rng.random() * 0.002, rng.choice([fin(), rst(), garbage(5)]))(line, received)

    return act


async def storm(seed, depth):
    rng = Random(seed)
    node = HostileNode(default=trouble(rng), greeting=troubled_greeting(rng))
    async with (
        running(node),
        pool_of(
            node,
            seed=seed,
            max_connections=4,
            pipeline_depth=depth,
            request_timeout_s=1.0,
            acquire_timeout_s=0.7,
            breaker_cooldown_s=0.05,
            busy_retries=0,
        ) as pool,
    ):
        closing_time = asyncio.create_task(refuse_now_and_then(node, rng))
        ends = await asyncio.gather(*(caller(pool, node, rng, n) for n in range(CALLERS)))
        await closing_time
        check_accounts(node, ends)
        await check_health(pool, node)


async def refuse_now_and_then(node, rng):
    for _ in range(10):
        await asyncio.sleep(rng.random() * 0.15)
        node.stop_listening()
        await asyncio.sleep(rng.random() * 0.02)
        await node.start()


async def caller(pool, node, rng, number):
    """One request, perhaps cancelled: how it ended."""
    await asyncio.sleep(rng.random())
    is_write = rng.random() < 0.6
    call = pool.write(write(number)) if is_write else pool.read(read(number))
    limit = rng.choice([None, None, None, 0.0, 0.002, 0.01, 0.1])
    try:
        async with asyncio.timeout(limit):
            answer = await call
    except TimeoutError as failure:
        if not isinstance(failure, LandedError):
            return number, is_write, "cancelled"
        return number, is_write, failure.outcome
    except LandedError as failure:
        return number, is_write, failure.outcome
    assert answer == Landed((1,)) if is_write else value_of(answer) == str(number).encode()
    return number, is_write, "answered"


def check_accounts(node, ends):
    arrived = [frame.request for frame in node.frames]
    for number, is_write, end in ends:
        if is_write:
            count = sum(
                isinstance(request, Write) and request.legs[0].key.id.int == number
                for request in arrived
            )
            assert count <= 1
            if end == "answered":
                assert count == 1
            if end is Outcome.NOT_SENT:
                assert count == 0
    assert node.peak <= 4 + 4  # those the node has yet to hear of being closed included


async def check_health(pool, node):
    """The node is well again: as many requests as slots can be under way at once."""
    await asyncio.sleep(2.0)
    node.default, node.greeting = reply(), None
    await pool.read(read())  # the breaker may still want a trial
    node.default = hold()
    held = [asyncio.create_task(pool.info()) for _ in range(4)]
    await until(lambda: len(node.held) == 4)
    now = stats(pool)
    assert (now.busy, now.idle, now.dialling, now.waiting) == (4, 0, 0, 0)
    assert node.up == 4
    for _ in held:
        release(node)
    await asyncio.gather(*held)
    assert (stats(pool).idle, stats(pool).unanswered) == (4, 0)


@pytest.mark.scenario("CPA-7")
@pytest.mark.parametrize("depth", [1, 8])
def test_after_any_storm_every_slot_is_there_again_and_every_outcome_was_true(depth):
    for seed in range(12):
        sim.run(storm(seed, depth), seed=seed)


@pytest.mark.long
@pytest.mark.scenario("CPA-7")
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_after_many_storms(depth):
    for seed in range(500):
        sim.run(storm(seed, depth), seed=seed)


@pytest.mark.scenario("CPA-7")
async def test_no_byte_of_a_request_leaves_a_pool_that_says_so():
    async with pool_of("nobody:1", acquire_timeout_s=0.1) as pool:
        for _ in range(20):
            with pytest.raises(NotSentError):
                await pool.write(write())
        assert stats(pool).busy == stats(pool).dialling == 0
