"""Requests of one connection: executed in order, answered in order, sharing flushes."""

import asyncio
import struct

import pytest

from landed.limits import Limits
from landed.log import (
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Page,
    Read,
    ReadFilters,
    SequenceInFlight,
    SequenceTaken,
    Trim,
    Trimmed,
    Unknown,
    VersionConflict,
)
from landed.wire.messages import Identified, Identify, LogFacts, Probe
from tests.unit.server.harness import running, until
from tests.unit.server.peer import CLIENT, dial, key, write


async def test_a_read_behind_writes_sees_all_of_them_and_none_after_it():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(write(), write(), Read(key(1)), write(), GetDetails(key(1)))
        first, second, page, third, details = await peer.answers(5)
        assert [Landed((1,)), Landed((2,)), Landed((3,))] == [first, second, third]
        assert isinstance(page, Page)
        assert [1, 2] == [batch.version for batch in page.batches]
        assert 3 == details.version


async def test_a_read_waits_for_the_flush_of_the_write_before_it():
    async with running() as scene, dial(scene.port) as peer, dial(scene.port) as other:
        scene.engine.gate.hold()
        await peer.send(write(), Read(key(1)))
        await until(lambda: scene.server.admission.held > 0)
        await other.ask(Probe())  # the server has long looked at everything it received
        assert 1 == scene.server.counters.answers
        scene.engine.gate.release()
        landed, page = await peer.answers(2)
        assert Landed((1,)) == landed
        assert [1] == [batch.version for batch in page.batches]


async def test_a_write_behind_a_read_waits_for_its_answer():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(write(1), write(2))
        await peer.answers(2)
        await peer.send(Read(key(2)), write(2), Read(key(2)), Trim(key(2), 2, CLIENT), Read(key(2)))
        before, landed, after, trimmed, refused = await peer.answers(5)
        assert [1] == [batch.version for batch in before.batches]
        assert Landed((2,)) == landed
        assert [1, 2] == [batch.version for batch in after.batches]
        assert Trimmed() == trimmed
        assert 2 == refused.first_version


async def test_writes_of_one_connection_share_a_flush_and_their_answers_a_write():
    async with running() as scene, dial(scene.port) as peer:
        await peer.ask(write(99))
        flushes, writes = scene.count("lane.committed"), scene.server.counters.writes
        await peer.send(*(write(number) for number in range(16)))
        assert [Landed((1,))] * 16 == await peer.answers(16)
        assert flushes + 1 == scene.count("lane.committed")
        assert writes + 1 == scene.server.counters.writes


async def test_an_early_refusal_waits_for_the_answers_before_it():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(write(1, 5), write(1, 5), write(1, expected=9))
        landed, in_flight, conflict = await peer.answers(3)
        assert Landed((1,)) == landed
        assert SequenceInFlight(None, 5, 5) == in_flight
        assert VersionConflict(None, 9, 1) == conflict
        assert SequenceTaken(None, 5, 5) == await peer.ask(write(1, 5))


async def test_answers_keep_their_order_although_a_later_one_is_ready_first():
    async with running(Limits(group_writes_max=1)) as scene, dial(scene.port) as peer:
        await peer.send(write(1), write(2), write(3), write(3, expected=9), write(4))
        *landed, conflict, last = await peer.answers(5)  # each is matched by its correlation id
        assert [Landed((1,))] * 3 == landed
        assert VersionConflict(None, 9, 1) == conflict
        assert Landed((1,)) == last
        assert 4 == scene.count("lane.committed")


async def test_a_request_split_at_every_byte_is_one_request():
    async with running() as scene, dial(scene.port) as peer:
        for at, byte in enumerate(peer.frames([write(1, 1)])):
            await peer.send_bytes(bytes([byte]))
            if at % 16 == 0:
                await asyncio.sleep(0.01)
        assert Landed((1,)) == await peer.answer()


async def test_identify_is_answered_first_and_a_violation_later():
    async with running() as scene, dial(scene.port) as peer:
        assert Identified() == await peer.ask(Identify())
        await peer.send(write())
        again = peer_frame_of_identify()
        await peer.send_bytes(again)
        assert Landed((1,)) == await peer.answer()
        assert PROTOCOL_ERROR == await peer.rest()


def peer_frame_of_identify() -> bytes:
    body = bytes([0x96]) + b"\xc0" * 6
    return struct.pack("<IIIIB", 3, 14, len(body), len(body), 0) + body


PROTOCOL_ERROR = struct.pack("<IIIIB", 3, 6, 1, 1, 0) + b"\x90"


async def test_a_probe_says_which_log_it_is_and_how_far():
    async with running() as scene, dial(scene.port) as peer:
        await peer.send(write(), write(), Probe())
        *_, facts = await peer.answers(3)
        identity = scene.engine.identity
        assert LogFacts(identity.log_id, identity.restore_epoch, 2) == facts


async def test_a_feed_that_waits_holds_up_its_own_connection_only():
    async with running() as scene, dial(scene.port) as peer, dial(scene.port) as other:
        await peer.send(FeedRead(after=0, wait_ms=20_000), Probe())
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert Landed((1,)) == await other.ask(write(1))
        assert loop.time() - began < 1
        feed, facts = await peer.answers(2)
        assert isinstance(feed, FeedPage)
        assert [1] == [entry.version for entry in feed.entries]
        assert 1 == facts.position


@pytest.mark.scenario("SC-55")
async def test_a_raw_read_from_zero_is_refused_with_the_first_version():
    async with running() as scene, dial(scene.port) as peer:
        await peer.ask(write())
        refused = await peer.ask(Read(key(1), ReadFilters(from_version=0)))
        assert (0, 1) == (refused.requested, refused.first_version)


async def test_a_failed_flush_is_unknown_and_the_connection_stays():
    async with running() as scene, dial(scene.port) as peer:
        scene.engine.gate.fails_next = storage_error(is_outcome_known=True)
        failed = await peer.ask(write(1, 1))
        assert isinstance(failed, Unknown) or failed.code == 2008
        assert Landed((1,)) == await peer.ask(write(1, 1))


async def test_a_commit_in_doubt_drops_every_connection_without_an_answer():
    async with running() as scene, dial(scene.port) as peer, dial(scene.port) as other:
        await other.ask(Probe())
        scene.engine.gate.fails_next = storage_error(is_outcome_known=False)
        await peer.send(write(1, 1))
        await scene.server.wait_stopped()
        assert b"" == await peer.rest()
        assert b"" == await other.rest()
        assert not scene.server.is_ready
        with pytest.raises(ConnectionRefusedError):
            async with dial(scene.port):
                pass


def storage_error(*, is_outcome_known: bool):
    from landed.errors import StorageError

    return StorageError("the test said so", is_outcome_known=is_outcome_known)
