"""How a server ends: nothing that was received whole is lost, nothing that comes later is begun."""

import asyncio

import pytest

from landed.log import FeedRead, Landed, Read
from landed.wire.messages import Probe
from tests.unit.server.harness import running, until
from tests.unit.server.peer import dial, key, write


@pytest.mark.scenario("SC-71")
async def test_what_was_received_whole_is_answered_and_what_comes_later_is_not_begun():
    async with running() as scene, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write(1), Read(key(1)), write(1))
        await until(lambda: scene.server.admission.held > 0)
        closing = asyncio.ensure_future(scene.server.close())
        await asyncio.sleep(0.5)
        await peer.send(write(2))
        await asyncio.sleep(0.5)
        scene.engine.gate.release()
        first, page, second = await peer.answers(3)
        assert [Landed((1,)), Landed((2,))] == [first, second]
        assert [1] == [batch.version for batch in page.batches]
        with pytest.raises(EOFError):
            await peer.answer()
        await peer.close()
        await closing
        assert 2 == scene.engine.position


async def test_nobody_is_accepted_while_it_closes():
    async with running() as scene, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write(1))
        await until(lambda: scene.server.admission.held > 0)
        closing = asyncio.ensure_future(scene.server.close())
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            async with dial(scene.port):
                pass
        assert not scene.server.is_ready
        scene.engine.gate.release()
        await peer.answer()
        await peer.close()
        await closing


async def test_a_feed_that_waits_does_not_hold_up_the_end_and_skips_nothing():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(FeedRead(after=0, wait_ms=25_000), FeedRead(after=0, wait_ms=25_000))
        await until(lambda: scene.server.admission.held > 0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        closing = asyncio.ensure_future(scene.server.close())
        for page in await peer.answers(2):
            assert ((), 0) == (page.entries, page.next_after)
        await peer.close()
        await closing
        assert loop.time() - began < 1


async def test_an_idle_client_that_does_not_hang_up_holds_up_the_end_only_briefly():
    async with running() as scene, dial(scene.port) as peer:
        await peer.ask(Probe())
        loop = asyncio.get_running_loop()
        began = loop.time()
        await scene.server.close()
        assert loop.time() - began < 3
        assert 0 == scene.server.connections


async def test_a_flush_that_takes_too_long_is_cut_off_but_still_lands():
    async with running() as scene, dial(scene.port) as peer:
        scene.engine.gate.hold()
        await peer.send(write(1))
        await until(lambda: scene.server.admission.held > 0)
        await scene.server.close(grace_s=1.0)
        assert b"" == await peer.rest()
        scene.engine.gate.release()
        await until(lambda: 1 == scene.engine.position)


async def test_closing_twice_is_closing_once():
    async with running() as scene:
        await scene.server.close()
        await scene.server.close()
        assert 1 == scene.count("server.closed")
