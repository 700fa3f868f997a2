"""Slow, idle, dripping, greedy and garbage-sending clients; and how everybody else fares."""

import asyncio
import struct
from contextlib import AsyncExitStack

import pytest

from landed.limits import Limits
from landed.log import FeedRead, Landed, Page, Read
from landed.server.shared import CROWDED_RECEIVE_BYTES, RECEIVE_BYTES
from landed.wire.connection import ClientConnection, Received, ServerConnection
from landed.wire.messages import Probe
from tests.unit.server.harness import running, until
from tests.unit.server.peer import dial, key, write
from tests.unit.server.test_order import PROTOCOL_ERROR

MIB = 1024 * 1024


def header(version: int = 3, type: int = 3, size: int = 0, compression: int = 0) -> bytes:
    return struct.pack("<IIIIB", version, type, size, size, compression)


# --- garbage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "farewell"),
    [
        pytest.param(header(version=9), b"", id="unknown version"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", id="http"),
        pytest.param(header(compression=7), b"", id="unknown compression"),
        pytest.param(header(size=17 * MIB) + b"x" * 100_000, b"", id="oversize"),
        pytest.param(header(type=13) + b"x" * 50, PROTOCOL_ERROR, id="unknown type"),
        pytest.param(header(size=4) + b"\xff\xff\xff\xff", PROTOCOL_ERROR, id="undecodable"),
    ],
)
async def test_garbage_ends_its_connection_after_the_answers_before_it(garbage, farewell):
    async with running() as scene, dial(scene.port) as peer, dial(scene.port) as other:
        await peer.send_bytes(peer.frames([write(1), Read(key(1)), write(1)]) + garbage)
        first, page, second = await peer.answers(3)
        assert [Landed((1,)), Landed((2,))] == [first, second]
        assert [1] == [batch.version for batch in page.batches]
        assert farewell == await peer.rest()
        assert Landed((3,)) == await other.ask(write(1))
        assert 1 == scene.count("server.protocol_violated")
        assert 0 == scene.server.admission.held


async def test_a_farewell_survives_all_that_its_client_still_sends():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send_bytes(peer.frames([write(1)]) + header(type=13) + bytes(900_000))
        assert Landed((1,)) == await peer.answer()
        assert PROTOCOL_ERROR == await peer.rest()


async def test_nothing_after_garbage_is_carried_out():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send_bytes(header(type=13) + b"\x90" + peer.frames([write(1)]))
        await peer.rest()
        await peer.close()
        await until(lambda: 0 == scene.server.connections)
        assert 0 == scene.engine.position


async def test_a_client_that_never_hangs_up_after_garbage_is_cut_off():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send_bytes(header(version=9))
        began = asyncio.get_running_loop().time()
        await until(lambda: 0 == scene.server.connections)
        assert asyncio.get_running_loop().time() - began < 4


# --- time ---------------------------------------------------------------------------------------


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not():
    async with running() as scene, dial(scene.port) as idle, dial(scene.port) as busy:
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = asyncio.ensure_future(idle.rest())
        while not end.done():
            await busy.ask(Probe())
            await asyncio.sleep(0.25)
        assert 30 <= loop.time() - began < 32
        await busy.ask(Probe())
        assert 1 == scene.server.counters.dropped_idle


async def test_a_dripping_request_is_closed_however_steadily_it_drips():
    async with running() as scene, dial(scene.port) as peer:
        frame = peer.frames([write(1)])
        loop = asyncio.get_running_loop()
        began = loop.time()
        for byte in frame:
            await peer.send_bytes(bytes([byte]))
            await asyncio.sleep(1)
            if not scene.server.connections:
                break
        assert 30 <= loop.time() - began < 33
        assert 0 == scene.engine.position
        assert 0 == scene.server.admission.held


async def test_a_request_that_begins_late_has_its_whole_time():
    async with running() as scene, dial(scene.port) as peer:
        frame = peer.frames([write(1)])
        await asyncio.sleep(28)
        await peer.send_bytes(frame[:10])
        await asyncio.sleep(20)
        await peer.send_bytes(frame[10:])
        assert Landed((1,)) == await peer.answer()


async def test_waiting_for_an_answer_is_not_idleness():
    limits = Limits(feed_wait_max_s=120)
    async with running(limits) as scene, dial(scene.port) as writer, dial(scene.port) as reader:
        scene.engine.gate.hold()
        await writer.send(write(1))
        await reader.send(FeedRead(after=0, wait_ms=110_000))
        await asyncio.sleep(100)
        scene.engine.gate.release()
        assert Landed((1,)) == await writer.answer()
        assert 1 == len((await reader.answer()).entries)


# --- those who do not read ------------------------------------------------------------------------


async def fill(peer, number: int, *, count: int, size: int) -> None:
    for _ in range(count):
        await peer.ask(write(number, value=b"v" * size))


async def test_a_client_that_reads_nothing_is_dropped_and_the_others_do_not_notice():
    async with running() as scene, dial(scene.port) as other, dial(scene.port) as slow:
        await fill(other, 1, count=8, size=100_000)
        slow.writer.transport.pause_reading()
        await slow.send(*[Read(key(1))] * 200)
        loop = asyncio.get_running_loop()
        began, longest = loop.time(), 0.0
        while not scene.server.counters.dropped_slow:
            at = loop.time()
            assert isinstance(await other.ask(write(2)), Landed)
            longest = max(longest, loop.time() - at)
            assert scene.server.unsent_bytes < 4 * MIB
            await asyncio.sleep(0.25)
        assert 30 <= loop.time() - began < 32
        assert longest < 0.1
        await until(lambda: 1 == scene.server.connections)
        assert 0 == scene.server.admission.held


async def test_a_client_that_reads_a_little_now_and_then_is_kept():
    async with running() as scene, dial(scene.port) as other, dial(scene.port) as slow:
        await fill(other, 1, count=10, size=100_000)
        slow.writer.transport.pause_reading()
        await slow.send(Read(key(1)))
        for _ in range(8):
            await asyncio.sleep(20)
            await other.ask(Probe())
            slow.writer.transport.resume_reading()
            await asyncio.sleep(0.002)
            slow.writer.transport.pause_reading()
        slow.writer.transport.resume_reading()
        page = await slow.answer()
        assert isinstance(page, Page)
        assert 10 == len(page.batches)


async def test_too_much_unsent_drops_a_client_at_once():
    limits = Limits(unsent_bytes_max=200_000)
    async with running(limits) as scene, dial(scene.port) as other, dial(scene.port) as slow:
        await fill(other, 1, count=10, size=100_000)
        slow.writer.transport.pause_reading()
        await slow.send(Read(key(1)))
        await until(lambda: 1 == scene.server.counters.dropped_slow)
        assert isinstance(await other.ask(write(2)), Landed)


async def test_too_much_unsent_over_all_connections_drops_the_one_that_was_choked_first():
    limits = Limits(admitted_bytes_max=4 * MIB)
    async with running(limits) as scene, dial(scene.port) as other, AsyncExitStack() as stack:
        await fill(other, 1, count=10, size=100_000)
        slow = [await stack.enter_async_context(dial(scene.port)) for _ in range(8)]
        for peer in slow:
            peer.writer.transport.pause_reading()
            await peer.send(Read(key(1)))
            await asyncio.sleep(0.1)
            assert scene.server.unsent_bytes <= 4 * MIB
        assert 3 <= scene.server.counters.dropped_slow <= 5
        assert isinstance(await other.ask(write(2)), Landed)
        for peer in slow:
            peer.writer.transport.resume_reading()
        with pytest.raises(EOFError):
            await slow[0].answer()
        assert isinstance(await slow[-1].answer(), Page)


# --- those who send too much ----------------------------------------------------------------------


async def test_a_connection_with_too_many_requests_waiting_is_not_read():
    limits = Limits(connection_requests_max=8)
    async with running(limits) as scene, dial(scene.port) as peer, dial(scene.port) as other:
        scene.engine.gate.hold()
        task = asyncio.ensure_future(peer.send(*[write(1, value=b"v" * 10_000)] * 200))
        await until(lambda: scene.server.admission.held > 100_000)
        await asyncio.sleep(5)
        assert scene.server.admission.held < 2 * RECEIVE_BYTES + 100_000
        assert isinstance(await other.ask(Probe()), tuple)
        scene.engine.gate.release()
        await task
        assert [Landed((version,)) for version in range(1, 201)] == await peer.answers(200)
        assert 0 == scene.server.admission.held


def test_a_client_that_is_always_a_request_ahead_leaves_nothing_behind():
    limits = Limits()
    frame = ClientConnection(limits).request(Probe(), None)
    server = ServerConnection(limits)
    server.receive(frame)
    for _ in range(2_000):
        server.receive(frame)
        assert isinstance(server.next_request(), Received)
        assert len(frame) == server.unread
        assert len(server._buffer._data) <= 3 * len(frame)


async def test_half_sent_requests_of_many_clients_stay_within_the_bound_and_all_complete():
    limits = Limits(admitted_bytes_max=1 * MIB)
    size, count = 300_000, 20
    async with running(limits) as scene, asyncio.TaskGroup() as group:
        highest = 0

        async def watch():
            nonlocal highest
            while True:
                highest = max(highest, scene.server.admission.held)
                await asyncio.sleep(0.0005)

        async def client(number: int):
            async with dial(scene.port) as peer:
                frame = peer.frames([write(number, value=b"v" * size)])
                for at in range(0, len(frame), 30_000):
                    await peer.send_bytes(frame[at : at + 30_000])
                    await asyncio.sleep(0.01)
                return await peer.answer()

        watcher = group.create_task(watch())
        clients = [group.create_task(client(number)) for number in range(count)]
        assert [Landed((1,))] * count == list(await asyncio.gather(*clients))
        watcher.cancel()
        slack = size + RECEIVE_BYTES + count * CROWDED_RECEIVE_BYTES
        assert 1 * MIB < highest <= 1 * MIB + slack
        assert 0 == scene.server.admission.held
        assert 0 == scene.server.admission.waiting


async def test_one_connection_more_than_allowed_is_closed_at_once():
    limits = Limits(connections_max=3)
    async with running(limits) as scene:
        async with dial(scene.port) as a, dial(scene.port) as b, dial(scene.port) as c:
            for peer in (a, b, c):
                await peer.ask(Probe())
            async with dial(scene.port) as refused:
                assert b"" == await refused.rest()
            assert 1 == scene.server.counters.connections_refused
            await a.ask(Probe())
        await until(lambda: 0 == scene.server.connections)
        async with dial(scene.port) as again:
            await again.ask(Probe())


async def test_a_storm_of_connections_is_answered():
    async with running() as scene:

        async def client(number: int):
            async with dial(scene.port) as peer:
                return await peer.ask(write(number))

        answers = await asyncio.gather(*(client(number) for number in range(512)))
        assert [Landed((1,))] * 512 == list(answers)
