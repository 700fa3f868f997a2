"""What only real sockets do: resets, ends of stream, options, and our own server at the other end."""

import asyncio
import socket
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest

from landed.client.log import for_decisions
from landed.clock import SystemClock
from landed.connect import connect
from landed.engines.memory import open_memory
from landed.errors import (
    AggregateMissingError,
    ConnectFailedError,
    ConnectionLostError,
    LandedError,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    SequenceTakenError,
    VersionConflictError,
)
from landed.limits import Limits
from landed.log import Delete, DeleteLeg, Event, FeedRead, Landed, Leg, Read, Trim, Write
from landed.server.listener import serve
from tests.unit.client.node import (
    CLIENT,
    HostileNode,
    after,
    both,
    error,
    fin,
    half_close,
    hold,
    key,
    pool_of,
    read,
    release,
    reply,
    rst,
    scene,
    silence,
    stats,
    truncate,
    until,
    value_of,
    write,
)

HERE = "127.0.0.1"


def node(**script):
    return HostileNode(HERE, port=0, **script)


@asynccontextmanager
async def our_server():
    engine = await open_memory(limits=Limits(), clock=SystemClock())
    try:
        server = await serve(engine, clock=SystemClock())
        try:
            yield f"{HERE}:{server.port}"
        finally:
            await server.close()
    finally:
        await engine.close()


def guarded(number, version, seq, value=b"x" * 2_222):
    events = [Event.new(1, value, client_seq=seq, event_id=UUID(int=seq))]
    return Write.to(key(number), events, client_id=CLIENT, expected_version=version)


@pytest.mark.scenario("BC-13", "CPA-14", "CPA-15", "CPA-18")
@pytest.mark.parametrize(
    ("step", "reasons"),
    [
        (rst(), {"reset"}),
        (fin(), {"eof"}),
        (truncate(20, rst()), {"reset", "eof"}),
        (truncate(20, half_close()), {"eof"}),
    ],
)
async def test_a_request_that_was_read_is_seen_once_whatever_follows(step, reasons):
    hostile, healthy = node(script=[[step]]), node()
    async with scene(hostile, healthy) as pool:
        with pytest.raises(OutcomeUnknownError) as raised:
            await pool.write(guarded(1, 0, 1))
        assert raised.value.reason in reasons
        assert (hostile.writes, healthy.writes) == (1, 0)
        again = guarded(1, 0, 1)
        assert await pool.write(again) == Landed((1,))
        assert [frame.request for frame in hostile.frames] == [again, again]


@pytest.mark.scenario("BC-13")
async def test_a_node_that_closes_without_reading_is_unknown_unless_nothing_was_sent():
    for seed in range(30):
        delay_s = Random(seed).random() * 0.002
        hostile = node(greeting=after(delay_s, rst()))
        async with scene(hostile) as pool:
            try:
                await pool.write(write())
            except LandedError as failure:
                seen = failure
            else:
                seen = None
            await until(lambda hostile=hostile: not hostile.up)
        if seen is not None and seen.outcome is Outcome.NOT_SENT:
            assert hostile.frames == []
        assert seen is None or seen.outcome in {Outcome.NOT_SENT, Outcome.UNKNOWN}


@pytest.mark.scenario("BC-13", "CPA-31")
async def test_a_node_that_refuses_is_passed_over():
    with socket.socket() as placeholder:
        placeholder.bind((HERE, 0))
        refusing = f"{HERE}:{placeholder.getsockname()[1]}"
        healthy = node()
        await healthy.start()
        async with pool_of(refusing, healthy) as pool:
            assert await pool.write(write()) == Landed((1,))
        async with pool_of(refusing) as pool:
            with pytest.raises(ConnectFailedError):
                await pool.write(write())
        await healthy.stop()


@pytest.mark.scenario("CPA-3")
async def test_an_end_of_stream_while_idle_is_seen_before_the_next_request():
    hostile = node(script=[[both(reply(), after(0.02, fin()))]])
    async with scene(hostile) as pool:
        await pool.write(write(1))
        await until(lambda: not stats(pool).idle)
        assert await pool.write(write(2)) == Landed((1,))
        assert [frame.connection for frame in hostile.frames] == [0, 1]


@pytest.mark.scenario("CPA-6")
async def test_waiters_survive_a_reset_of_every_connection():
    hostile = node(script=[[after(0.05, rst())], [after(0.05, rst())]])
    async with scene(hostile, max_connections=2, pipeline_depth=1) as pool:
        calls = [pool.write(write(n)) for n in range(1, 6)]
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
        assert sorted(str(type(end).__name__) for end in ended) == [
            *["Landed"] * 3,
            *["OutcomeUnknownError"] * 2,
        ]


@pytest.mark.scenario("CPA-42")
async def test_a_cancelled_read_leaves_no_answer_behind():
    hostile = node(default=hold())
    async with scene(hostile) as pool:
        cancelled = asyncio.create_task(pool.read(read(1)))
        await until(lambda: hostile.held)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        following = asyncio.create_task(pool.read(read(2)))
        await until(lambda: len(hostile.held) == 2)
        release(hostile)
        release(hostile)
        assert value_of(await following) == b"2"
        assert not hostile.lines[0].is_up


async def test_sockets_send_without_delay():
    hostile = node()
    async with scene(hostile) as pool:
        await pool.read(read())
        (each,) = pool._cluster._nodes.values()
        (link,) = each._links
        connected = link._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.scenario("CPA-19")
async def test_silence_ends_with_the_limit_on_a_real_clock():
    hostile = node(default=silence())
    async with scene(hostile, request_timeout_s=0.1) as pool:
        began = asyncio.get_running_loop().time()
        with pytest.raises(OutcomeUnknownError):
            await pool.write(write())
        assert 0.09 < asyncio.get_running_loop().time() - began < 2
        with pytest.raises(NotSentError):
            await pool.write(write(), timeout_s=0)


async def test_errors_of_a_whole_scene_are_typed():
    hostile = node(script=[[error(1001), fin()]])
    async with scene(hostile) as pool:
        with pytest.raises(AggregateMissingError):
            await pool.read(read())
        with pytest.raises(ConnectionLostError):
            await pool.read(read())


async def test_our_own_server_at_the_other_end():
    async with our_server() as address, await connect(f"landed://{address}") as log:
        for version in range(5):
            landed = await log.write(guarded(1, version, version + 1))
            assert landed == Landed((version + 1,))
        with pytest.raises(VersionConflictError) as conflict:
            await log.write(guarded(1, 0, 9))
        assert (conflict.value.actual, conflict.value.attempts) == (5, 1)
        with pytest.raises(SequenceTakenError) as taken:
            await for_decisions(log).write(guarded(1, 5, 3))
        assert taken.value.highest_seq == 5
        assert [each.version async for each in log.read_all(Read(key(1)))] == [1, 2, 3, 4, 5]
        await log.trim(Trim(key(1), 3, CLIENT))
        assert (await log.details(key(1))).first_version == 3
        await log.delete(Delete(CLIENT, (DeleteLeg(key(1), None, False, False),)))
        with pytest.raises(AggregateMissingError):
            await log.read(Read(key(1)))
        info = await log.info()
        page = await log.feed(FeedRead(0))
        assert page.next_after == info.position
        waiting = asyncio.create_task(log.feed(FeedRead(info.position, wait_ms=5_000)))
        await log.write(guarded(2, 0, 1))
        assert [entry.key for entry in (await waiting).entries] == [key(2)]


async def test_many_tasks_over_one_pool_each_get_their_own_answer():
    async with our_server() as address, pool_of(address) as pool:

        async def one(number):
            for version in range(10):
                assert await pool.write(guarded(number, version, version + 1)) == Landed(
                    (version + 1,)
                )
                assert (await pool.details(key(number))).version == version + 1

        await asyncio.gather(*(one(number) for number in range(1, 65)))
        now = stats(pool)
        assert now.discards == {}
        assert now.dials <= 10
        legs = tuple(
            Leg(key(n), (Event.new(1, b"", client_seq=99, event_id=None),), 10, False, True)
            for n in (1, 2)
        )
        assert await pool.write(Write(CLIENT, legs)) == Landed(())


async def test_a_file_is_a_log_that_remembers(tmp_path):
    url = f"sqlite:///{tmp_path / 'events.db'}"
    async with await connect(url) as log:
        assert await log.write(guarded(1, 0, 1)) == Landed((1,))
        identity = (await log.info()).log_id
    async with await connect(url) as log:
        assert [each.version async for each in log.read_all(Read(key(1)))] == [1]
        assert (await log.info()).log_id == identity
        with pytest.raises(SequenceTakenError):
            await log.write(guarded(1, 1, 1))
