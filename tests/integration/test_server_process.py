"""``landed serve`` as a process: its knobs, its signals, its one-line reasons, its operator's port."""

import asyncio
import json
import re
import signal
from contextlib import AsyncExitStack

import psutil
import pytest

from landed.log import (
    AggregateMissing,
    Details,
    GetDetails,
    Landed,
    Read,
    SequenceInFlight,
    SequenceTaken,
    Unknown,
)
from landed.wire.messages import Probe
from tests.integration.audit import audit
from tests.integration.process import Serving, run_to_end, slow
from tests.unit.server.peer import dial, key, write


@pytest.mark.scenario("SC-26")
async def test_a_second_copy_is_in_flight_until_the_first_is_durable_and_taken_then(tmp_path):
    with slow(tmp_path / "log.db", 250) as (serving, _):
        async with dial(serving.port) as first, dial(serving.port) as second:
            await first.send(write(1, 5))
            await second.ask(Probe())  # the server has looked at the first one by now
            assert SequenceInFlight(None, 5, 5) == await second.ask(write(1, 5))
            assert Landed((1,)) == await first.answer()
            assert SequenceTaken(None, 5, 5) == await second.ask(write(1, 5))


@pytest.mark.scenario("SC-27")
async def test_three_sequences_in_flight_at_once_land_in_order(tmp_path):
    with slow(tmp_path / "log.db", 400) as (serving, _):
        async with (
            dial(serving.port) as a,
            dial(serving.port) as b,
            dial(serving.port) as c,
            dial(serving.port) as other,
        ):
            waiting = []
            for peer, seq in ((a, 5), (b, 6), (c, 7)):
                await peer.send(write(1, seq))
                await other.ask(Probe())
                waiting.append(asyncio.ensure_future(peer.answer()))
            assert not any(task.done() for task in waiting)
            assert [Landed((1,)), Landed((2,)), Landed((3,))] == await asyncio.gather(*waiting)
            page = await other.ask(Read(key(1)))
            assert [5, 6, 7] == [batch.events[0].client_seq for batch in page.batches]


@pytest.mark.scenario("SC-54")
async def test_what_is_in_flight_is_not_shown_and_what_is_acknowledged_is(tmp_path):
    with slow(tmp_path / "log.db", 250) as (serving, _):
        async with dial(serving.port) as writer, dial(serving.port) as reader:
            await writer.send(write(1, 1))
            await reader.ask(Probe())
            answer = asyncio.ensure_future(writer.answer())
            assert isinstance(await reader.ask(Read(key(1))), AggregateMissing)
            assert isinstance(await reader.ask(GetDetails(key(1))), AggregateMissing)
            assert not answer.done()
            assert Landed((1,)) == await answer
            assert 1 == len((await reader.ask(Read(key(1)))).batches)
            assert isinstance(await reader.ask(GetDetails(key(1))), Details)


@pytest.mark.scenario("SC-74")
async def test_a_failed_flush_fails_all_that_rested_on_it_and_leaves_no_trace(tmp_path):
    path = tmp_path / "log.db"
    with slow(path, 250) as (serving, fail_file):
        async with dial(serving.port) as peer, dial(serving.port) as other:
            assert Landed((1,)) == await peer.ask(write(1, 1))
            fail_file.touch()
            await peer.send(write(1, 2))
            await other.send(write(1, 3))
            for failed in (await peer.answer(), await other.answer()):
                assert isinstance(failed, Unknown) or failed.code == 2008
            assert not fail_file.exists()
            assert [1] == [batch.version for batch in (await peer.ask(Read(key(1)))).batches]
            assert 1 == (await peer.ask(GetDetails(key(1)))).version
            assert Landed((2,)) == await peer.ask(write(1, 2, value=b"again"))
    with Serving(f"sqlite:///{path}") as serving:
        async with dial(serving.port) as peer:
            page = await peer.ask(Read(key(1)))
            assert [1, 2] == [batch.events[0].client_seq for batch in page.batches]
    assert [b"x", b"again"] == [found.value for found in audit(path)]


@pytest.mark.scenario("SC-71")
async def test_a_stop_answers_what_was_received_and_a_restart_goes_on(tmp_path):
    path = tmp_path / "log.db"
    with slow(path, 300) as (serving, _):
        async with dial(serving.port) as peer, dial(serving.port) as other:
            await peer.send(*(write(1, seq) for seq in range(1, 9)))
            await other.ask(Probe())
            serving.process.send_signal(signal.SIGTERM)
            assert [Landed((v,)) for v in range(1, 9)] == await peer.answers(8)
            assert b"" == await peer.rest()
        assert 0 == serving.process.wait(20)
    with Serving(f"sqlite:///{path}") as serving:
        async with dial(serving.port) as peer:
            assert SequenceTaken(None, 8, 8) == await peer.ask(write(1, 8))
            assert Landed((9,)) == await peer.ask(write(1, 9))
        code, errors = serving.stop(signal.SIGINT)
        assert 0 == code, errors
    assert list(range(1, 10)) == [found.client_seq for found in audit(path)]


def test_a_port_in_use_is_one_line_and_exit_code_1():
    with Serving("memory:") as serving:
        address = f"127.0.0.1:{serving.port}"
        ended = run_to_end("serve", "--engine", "memory:", "--listen", address)
        assert (1, "") == (ended.returncode, ended.stdout)
        assert f"landed: cannot listen on {address}: address already in use\n" == ended.stderr


def test_a_file_in_use_is_one_line_and_exit_code_1(tmp_path):
    path = tmp_path / "log.db"
    with Serving(f"sqlite:///{path}") as serving:
        ended = run_to_end("serve", "--engine", f"sqlite:///{path}", "--listen", "127.0.0.1:0")
        assert (1, "") == (ended.returncode, ended.stdout)
        assert str(serving.process.pid) in ended.stderr
        assert 1 == ended.stderr.count("\n")
        assert "landed serve" in ended.stderr


async def test_the_operators_port_tells_what_happened():
    flags = ("--admin", "127.0.0.1:0", "--log-format", "json", "--verbose")
    with Serving("memory:", *flags) as serving:
        async with dial(serving.port) as peer:
            await peer.send(write(1), Read(key(1)), write(1, expected=7))
            await peer.answers(3)
            status, text = await asyncio.to_thread(serving.get, "/metrics")
        assert 200 == status
        assert 'landed_requests_total{operation="write"} 2\n' in text
        assert 'landed_requests_total{operation="read"} 1\n' in text
        assert "\nlanded_connections 1\n" in text
        assert 'landed_facts_total{name="lane.committed"} 1\n' in text
        assert (200, "ok\n") == await asyncio.to_thread(serving.get, "/healthz")
        assert (200, "ready\n") == await asyncio.to_thread(serving.get, "/readyz")
        assert 404 == (await asyncio.to_thread(serving.get, "/"))[0]
        code, errors = serving.stop()
    assert 0 == code
    facts = [json.loads(line) for line in errors.splitlines()]
    assert {"server.listening", "admin.listening", "lane.committed", "server.closed"} <= {
        fact["fact"] for fact in facts
    }


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_client_that_reads_nothing_is_dropped_and_memory_stays_bounded(loop):
    flags = ("--admin", "127.0.0.1:0", "--loop", loop, "--set", "send_timeout_s=1")
    with Serving("memory:", *flags) as serving:
        async with dial(serving.port) as other, AsyncExitStack() as stack:
            for _ in range(8):
                await other.ask(write(1, value=bytes(120_000)))
            before = psutil.Process(serving.process.pid).memory_info().rss
            highest, dropped = before, 0
            for _ in range(16):
                slow = await stack.enter_async_context(dial(serving.port))
                slow.writer.transport.pause_reading()
                slow.writer.write(slow.frames([Read(key(1))] * 100))
            while dropped < 16:
                assert isinstance(await other.ask(write(2)), Landed)
                _, text = await asyncio.to_thread(serving.get, "/metrics")
                dropped = int(re.search(r"landed_dropped_slow_total (\d+)", text)[1])
                highest = max(highest, psutil.Process(serving.process.pid).memory_info().rss)
        assert highest - before < 16 * 6 * 1_000_000, "several pages for each of the slow ones"
        assert 0 == serving.stop()[0]
