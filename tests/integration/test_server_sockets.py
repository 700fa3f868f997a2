"""The server over real sockets: many connections at once, and what the kernel adds."""

import asyncio
import socket
from collections import Counter

import pytest

from landed.clock import SystemClock
from landed.engines.memory import open_memory
from landed.errors import ListenFailedError
from landed.limits import Limits
from landed.log import (
    Delete,
    DeleteLeg,
    Details,
    GetDetails,
    Landed,
    Leg,
    Misrouted,
    Page,
    Read,
    SequenceInFlight,
    SequenceTaken,
    VersionConflict,
    Write,
)
from landed.server import serve
from landed.wire.messages import Failure
from tests.integration.process import Serving
from tests.unit.server.harness import running
from tests.unit.server.peer import CLIENT, dial, event, key, write


async def at_once(port, requests):
    """Each request on a connection of its own, all sent before any answer is looked at."""
    barrier = asyncio.Barrier(len(requests))

    async def client(request):
        async with dial(port) as peer:
            await barrier.wait()
            return await peer.ask(request)

    return await asyncio.gather(*(client(request) for request in requests))


@pytest.mark.scenario("SC-06")
async def test_fifty_connections_append_without_gap():
    async with running() as scene, dial(scene.port) as peer:
        answers = await at_once(scene.port, [write(1) for _ in range(50)])
        assert list(range(1, 51)) == sorted(answer.versions[0] for answer in answers)
        page = await peer.ask(Read(key(1)))
        assert list(range(1, 51)) == [batch.version for batch in page.batches]


@pytest.mark.scenario("SC-14", "SC-15")
async def test_of_sixteen_writers_with_one_expectation_one_wins():
    async with running() as scene, dial(scene.port) as peer:
        for version in (0, 1):
            answers = await at_once(scene.port, [write(1, expected=version) for _ in range(16)])
            kinds = Counter(type(answer) for answer in answers)
            assert {Landed: 1, VersionConflict: 15} == kinds
            details = await peer.ask(GetDetails(key(1)))
            assert version + 1 == details.version == details.event_seq


@pytest.mark.scenario("SC-25")
async def test_of_sixteen_copies_of_one_sequence_one_lands():
    async with running() as scene, dial(scene.port) as peer:
        answers = await at_once(scene.port, [write(1, 1) for _ in range(16)])
        assert 1 == sum(isinstance(answer, Landed) for answer in answers)
        assert all(isinstance(a, Landed | SequenceInFlight | SequenceTaken) for a in answers)
        page = await peer.ask(Read(key(1)))
        assert 1 == sum(len(batch.events) for batch in page.batches)


@pytest.mark.scenario("SC-28")
async def test_a_connection_cut_before_the_answer_leaves_exactly_one_event():
    async with running() as scene, dial(scene.port) as peer:
        for seq in range(1, 31):
            async with dial(scene.port) as cut:
                await cut.send(write(1, seq))
                cut.abort()
            answer = await peer.ask(write(1, seq))
            while isinstance(answer, SequenceInFlight):
                answer = await peer.ask(write(1, seq))
            assert isinstance(answer, Landed | SequenceTaken)
        page = await peer.ask(Read(key(1)))
        assert list(range(1, 31)) == [batch.events[0].client_seq for batch in page.batches]


@pytest.mark.scenario("SC-40", "SC-68")
async def test_keys_of_different_shards_are_refused_whole():
    async with running(Limits(num_shards=4)) as scene, dial(scene.port) as peer:

        def pair(a, b):
            legs = (Leg(key(n), (event(0),), None, True, False) for n in (a, b))
            return Write(CLIENT, tuple(legs))

        def delete(a, b):
            return Delete(CLIENT, tuple(DeleteLeg(key(n), None, False, False) for n in (a, b)))

        refused = await peer.ask(pair(1, 2))
        assert (False, 4) == (refused.is_nothing, refused.num_shards)
        for number in (1, 2):
            answer = await peer.ask(GetDetails(key(number)))
            assert not isinstance(answer, Details)
        assert Landed(()) == await peer.ask(pair(1, 5))
        await peer.ask(write(2))
        assert isinstance(await peer.ask(delete(1, 2)), Misrouted)
        for number in (1, 2):
            assert isinstance(await peer.ask(Read(key(number))), Page)
        nothing = await peer.ask(Write(CLIENT, ()))
        assert (True, 4) == (nothing.is_nothing, nothing.num_shards)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_storm_of_connections_is_answered_without_a_second_dial(loop):
    with Serving("memory:", "--loop", loop) as serving:
        began = asyncio.get_running_loop().time()
        answers = await at_once(serving.port, [write(number) for number in range(512)])
        took = asyncio.get_running_loop().time() - began
        assert [Landed((1,))] * 512 == answers
        assert took < 20
        code, errors = serving.stop()
        assert 0 == code, errors


async def test_small_answers_are_not_held_back():
    async with running() as scene, dial(scene.port) as peer:
        await peer.ask(write(1))
        (session,) = scene.server._shared.sessions
        accepted = session._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_it_listens_on_ipv6_and_says_where():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    engine = await open_memory(limits=Limits(), clock=SystemClock())
    server = await serve(engine, host="::1", clock=SystemClock())
    try:
        assert "::1" == server.host
        async with dial(server.port, host="::1") as peer:
            assert Landed((1,)) == await peer.ask(write(1))
    finally:
        await server.close()
        await engine.close()


async def test_a_port_in_use_is_said_in_one_line():
    async with running() as scene:
        with pytest.raises(ListenFailedError, match="in use") as caught:
            await serve(scene.engine, port=scene.port, clock=SystemClock())
        assert scene.port == caught.value.port
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_half_close_reset_and_garbage_over_real_sockets(loop):
    with Serving("memory:", "--loop", loop) as serving:
        async with dial(serving.port) as peer:
            await peer.send(write(1), Read(key(1)), write(1))
            peer.writer.write_eof()
            first, page, second = await peer.answers(3)
            assert [Landed((1,)), Landed((2,))] == [first, second]
            assert 1 == len(page.batches)
            assert b"" == await peer.rest()
        async with dial(serving.port) as peer:
            await peer.send_bytes(peer.frames([write(1)]) + b"GET / HTTP/1.1\r\n\r\n" + b"x" * 9999)
            assert Landed((3,)) == await peer.answer()
            assert b"" == await peer.rest()
        async with dial(serving.port) as peer:
            await peer.send(write(1))
            peer.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            peer.abort()
        async with dial(serving.port) as peer:
            assert not isinstance(await peer.ask(write(2)), Failure)
        code, errors = serving.stop()
        assert (0, False) == (code, "Traceback" in errors), errors
