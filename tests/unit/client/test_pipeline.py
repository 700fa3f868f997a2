"""Several requests over one connection before the first answer, without any answer going astray."""

import asyncio

import pytest

from landed.errors import (
    ConnectionLostError,
    Outcome,
    OutcomeUnknownError,
    ReadTimeoutError,
    RefusedError,
    RemoteProtocolError,
)
from landed.log import Landed
from tests.unit.client.node import (
    HostileNode,
    after,
    farewell,
    fin,
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
    wrong_correlation,
)


def started(calls):
    return [asyncio.create_task(call) for call in calls]


async def test_what_is_asked_in_one_turn_goes_out_in_one_write_and_comes_back_in_order():
    node = HostileNode(default=hold())
    async with scene(node) as pool:
        tasks = started(pool.read(read(n)) for n in range(1, 17))
        await until(lambda: len(node.held) == 16)
        assert len({frame.at for frame in node.frames}) == 1
        assert (len(node.lines), stats(pool).unanswered) == (1, 16)
        for _ in tasks:
            release(node)
        pages = await asyncio.gather(*tasks)
        assert [value_of(page) for page in pages] == [str(n).encode() for n in range(1, 17)]


async def test_a_full_connection_takes_nothing_more_and_the_next_one_is_dialled():
    node = HostileNode(default=hold())
    async with scene(node, pipeline_depth=4, max_connections=2) as pool:
        tasks = started(pool.read(read(n)) for n in range(1, 11))
        await until(lambda: len(node.held) == 8)
        await asyncio.sleep(0.1)
        per_line = [sum(frame.connection == n for frame in node.frames) for n in (0, 1)]
        assert (per_line, stats(pool).waiting) == ([4, 4], 2)
        for _ in tasks:
            await until(lambda: node.held)
            release(node)
        pages = await asyncio.gather(*tasks)
        assert [value_of(page) for page in pages] == [str(n).encode() for n in range(1, 11)]


async def test_reads_do_not_wait_behind_flushes():
    node = HostileNode(default=hold())
    async with scene(node) as pool:
        tasks = started([pool.write(write(1)), pool.read(read(2)), pool.write(write(3))])
        await until(lambda: len(node.held) == 3)
        lines = {}
        for frame in node.frames:
            lines.setdefault(frame.connection, []).append(type(frame.request).__name__)
        assert sorted(lines.values()) == [["Read"], ["Write", "Write"]]
        for _ in tasks:
            release(node)
        await asyncio.gather(*tasks)


async def test_with_one_connection_everything_shares_it():
    node = HostileNode(default=hold())
    async with scene(node, max_connections=1) as pool:
        tasks = started([pool.write(write(1)), pool.read(read(2)), pool.write(write(3))])
        await until(lambda: len(node.held) == 3)
        for _ in tasks:
            release(node)
        landed, page, landed_too = await asyncio.gather(*tasks)
        assert (landed, value_of(page), landed_too) == (Landed((1,)), b"2", Landed((1,)))


async def test_a_connection_with_many_unanswered_bytes_takes_nothing_more():
    node = HostileNode(default=hold())
    async with scene(node, max_connections=2, pipeline_bytes=10_000) as pool:
        tasks = started(pool.write(write(n, value=b"x" * 6_000)) for n in range(5))
        await until(lambda: len(node.held) == 4)
        await asyncio.sleep(0.1)
        assert [frame.connection for frame in node.frames].count(0) == 2
        for _ in tasks:
            await until(lambda: node.held)
            release(node)
        await asyncio.gather(*tasks)


async def test_a_broken_connection_makes_everything_unanswered_on_it_unknown_and_nothing_else():
    node = HostileNode(script=[[reply(), reply(), silence(), fin()]])
    async with scene(node, max_connections=1, pipeline_depth=5) as pool:
        tasks = started(pool.write(write(n)) for n in range(1, 8))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert ended[:2] == [Landed((1,))] * 2
        unknown = ended[2:5]
        assert [(type(e), e.reason) for e in unknown] == [(OutcomeUnknownError, "eof")] * 3
        assert ended[5:] == [Landed((1,))] * 2
        seqs = [frame.request.legs[0].key.id.int for frame in node.frames]
        assert seqs[:4] == [1, 2, 3, 4]
        assert len(seqs) == len(set(seqs))
        assert set(seqs) <= {1, 2, 3, 4, 5, 6, 7}


async def test_a_wrong_answer_is_given_to_nobody_behind_it_either():
    node = HostileNode(script=[[reply(), wrong_correlation()]])
    async with scene(node) as pool:
        tasks = started(pool.read(read(n)) for n in range(1, 5))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert value_of(ended[0]) == b"1"
        assert [type(e) for e in ended[1:]] == [RemoteProtocolError, *[ConnectionLostError] * 2]


async def test_an_omitted_answer_is_noticed_before_it_shifts_all_later_ones():
    node = HostileNode(script=[[silence()]])
    async with scene(node) as pool:
        tasks = started(pool.write(write(n)) for n in range(1, 5))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(e) for e in ended} == {OutcomeUnknownError}
        assert isinstance(ended[0].__cause__, RemoteProtocolError)


async def test_a_request_that_could_not_be_read_is_refused_and_those_behind_it_are_unknown():
    node = HostileNode(script=[[reply(), farewell(), silence()]])
    async with scene(node) as pool:
        tasks = started(pool.write(write(n)) for n in range(1, 4))
        first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
        assert first == Landed((1,))
        assert isinstance(second, RefusedError)
        assert second.outcome is Outcome.REJECTED
        assert isinstance(third, OutcomeUnknownError)


async def test_a_request_that_runs_out_of_time_retires_the_connection_not_its_neighbours():
    node = HostileNode(script=[[after(2.0, reply()), after(2.0, reply())]])
    async with scene(node, max_connections=1) as pool:
        began = now()
        hasty, patient = started([pool.read(read(1), timeout_s=1.0), pool.read(read(2))])
        with pytest.raises(ReadTimeoutError):
            await hasty
        assert now() - began == pytest.approx(1.0, abs=0.01)
        later = asyncio.create_task(pool.read(read(3)))
        assert value_of(await patient) == b"2"
        assert value_of(await later) == b"3"
        assert [frame.connection for frame in node.frames] == [0, 0, 1]
        assert stats(pool).discards == {"timeout": 1}


async def test_every_limit_on_one_connection_is_its_own():
    node = HostileNode(default=silence())
    async with scene(node, request_timeout_s=9.0) as pool:
        began = now()

        async def ends_after(timeout_s):
            with pytest.raises(OutcomeUnknownError):
                await pool.write(write(), timeout_s=timeout_s)
            return round(now() - began, 2)

        limits = [3.0, 1.0, None, 2.0]
        ends = await asyncio.gather(*(ends_after(limit) for limit in limits))
        assert ends == [3.0, 1.0, 9.0, 2.0]


async def test_a_node_that_takes_no_bytes_is_given_no_more():
    node = HostileNode(greeting=lambda line, _received: line.transport.pause_reading())
    async with scene(node, max_connections=1, pipeline_depth=64, pipeline_bytes=10**9) as pool:
        tasks = started(pool.write(write(n, value=b"x" * 100_000)) for n in range(20))
        await asyncio.sleep(1.0)
        more = started(pool.write(write(n, value=b"x" * 100_000)) for n in range(20))
        await asyncio.sleep(1.0)
        assert (stats(pool).unanswered, stats(pool).waiting) == (20, 20)
        node.lines[0].transport.resume_reading()
        assert await asyncio.gather(*tasks, *more) == [Landed((1,))] * 40
        assert len(node.lines) == 1
