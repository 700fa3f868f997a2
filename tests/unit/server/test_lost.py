"""What was received whole is carried out, whoever is still there to hear about it."""

import asyncio

import pytest

from landed.log import FeedRead, Landed, Read, ReadFilters, SequenceTaken, Trim
from landed.wire.messages import Probe
from tests.unit.server.harness import running, until
from tests.unit.server.peer import CLIENT, dial, key, write


def hang_up(scene, peer):
    """Close it, as a client does that ends: what the server then sends is refused."""
    peer.abort()


def reset(scene, peer):
    """Lose it at once, as by a reset."""
    name = peer.writer.get_extra_info("sockname")
    for session in list(scene.server._shared.sessions):
        if session._transport.get_extra_info("peername") == name:
            session._transport.fail(ConnectionResetError())


either_way = pytest.mark.parametrize("lose", [hang_up, reset])


@pytest.mark.scenario("SC-28")
@either_way
async def test_a_write_in_flight_lands_although_its_connection_is_lost(lose):
    async with running() as scene, dial(scene.port) as other, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write(1, 1))
        await until(lambda: scene.server.admission.held > 0)
        lose(scene, peer)
        await other.ask(Probe())
        scene.engine.gate.release()
        assert SequenceTaken(None, 1, 1) == await settled(other, write(1, 1))
        page = await other.ask(Read(key(1)))
        assert [1] == [batch.version for batch in page.batches]
        await until(lambda: 1 == scene.server.connections)


@either_way
async def test_requests_that_wait_behind_others_are_carried_out_too(lose):
    async with running() as scene, dial(scene.port) as other, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write(1), Read(key(1)), write(1), Trim(key(1), 2, CLIENT), write(1))
        await until(lambda: scene.server.admission.held > 0)
        lose(scene, peer)
        await other.ask(Probe())
        scene.engine.gate.release()
        await until(lambda: 1 == scene.server.connections)
        page = await other.ask(Read(key(1), ReadFilters(from_version=2)))
        assert [2, 3] == [batch.version for batch in page.batches]
        assert scene.server.admission.held == 0


async def test_a_lost_connection_waits_for_no_feed():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(FeedRead(after=0, wait_ms=20_000), write(1))
        await until(lambda: scene.server.admission.held > 0)
        reset(scene, peer)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: 0 == scene.server.connections)
        assert loop.time() - began < 1
        assert 1 == scene.engine.position


async def test_a_half_closed_client_gets_every_answer_and_then_the_end():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(write(), Read(key(1)), write())
        await peer.send_bytes(peer.frames([write()])[:-1])  # never complete
        peer.writer.write_eof()
        first, page, second = await peer.answers(3)
        assert [Landed((1,)), Landed((2,))] == [first, second]
        assert [1] == [batch.version for batch in page.batches]
        assert b"" == await peer.rest()
        await until(lambda: 0 == scene.server.connections)
        assert 2 == scene.engine.position
        assert 0 == scene.server.admission.held


async def test_a_half_closed_client_still_waits_for_a_slow_flush():
    async with running() as scene, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write())
        peer.writer.write_eof()
        await asyncio.sleep(5)
        scene.engine.gate.release()
        assert Landed((1,)) == await peer.answer()
        assert b"" == await peer.rest()


async def settled(peer, request):
    """The answer once nothing of it is in flight any more."""
    while (answer := await peer.ask(request)).__class__.__name__ == "SequenceInFlight":
        await asyncio.sleep(0.01)
    return answer
