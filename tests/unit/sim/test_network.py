"""What the dials do to a connection, and that they do nothing unless they are turned."""

import asyncio
from dataclasses import dataclass, field

import pytest

from landed import sim

REQUEST = bytes(range(200))
ANSWER = b"answer"


@dataclass
class Seen:
    """What one exchange came to, on both sides."""

    arrived: bytes = b""
    """What the listening side got."""
    server_end: str = "open"
    answer: bytes = b""
    client_end: str = ""
    facts: list[str] = field(default_factory=list)


async def exchange(seen: Seen) -> None:
    """Send a request, wait ten seconds for the answer."""
    done = asyncio.Event()

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            seen.arrived += data
            if seen.arrived == REQUEST:
                self.transport.write(ANSWER)

        def eof_received(self):
            seen.server_end = "eof"

        def connection_lost(self, exc):
            seen.server_end = type(exc).__name__ if exc else seen.server_end
            done.set()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 7)
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", 7)
    except (OSError, TimeoutError) as error:
        seen.client_end = type(error).__name__
        server.close()
        return
    try:
        writer.write(REQUEST)
        async with asyncio.timeout(10):
            seen.answer = await reader.readexactly(len(ANSWER))
        seen.client_end = "answered"
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        seen.client_end = type(error).__name__
    finally:
        writer.transport.abort()
        server.close()
    async with asyncio.timeout(60):
        await asyncio.wait([asyncio.ensure_future(done.wait())], timeout=30)
        done.set()


def outcomes(dials: sim.Dials, seeds: int = 100) -> list[Seen]:
    """What a hundred seeds make of one exchange."""
    every = []
    for seed in range(seeds):
        seen = Seen()
        sim.run(
            exchange(seen),
            seed=seed,
            dials=dials,
            note=lambda name, _, seen=seen: seen.facts.append(name),
        )
        every.append(seen)
    return every


def test_a_calm_network_does_nothing_to_anybody():
    for seen in outcomes(sim.CALM):
        assert (seen.arrived, seen.answer, seen.client_end) == (REQUEST, ANSWER, "answered")
        assert set(seen.facts) == {"net.landed"}


def test_a_request_lost_before_never_arrives():
    every = outcomes(sim.Dials(lose_before=1.0))
    assert {seen.arrived for seen in every} == {b""}
    assert {seen.client_end for seen in every} == {"ConnectionResetError", "TimeoutError"}


def test_a_request_lost_after_arrives_whole_and_its_answer_never_does():
    every = outcomes(sim.Dials(lose_after=1.0))
    assert {seen.arrived for seen in every} == {REQUEST}
    assert {seen.answer for seen in every} == {b""}
    assert {seen.client_end for seen in every} == {"ConnectionResetError", "TimeoutError"}


def test_silence_is_a_share_of_what_is_lost():
    loud = outcomes(sim.Dials(lose_after=1.0, silence=0.0))
    assert {seen.client_end for seen in loud} == {"ConnectionResetError"}
    silent = outcomes(sim.Dials(lose_before=1.0, silence=1.0))
    assert {seen.client_end for seen in silent} == {"TimeoutError"}


def test_a_reset_comes_after_any_number_of_bytes_of_either_side():
    every = outcomes(sim.Dials(reset=0.5), seeds=400)
    cut = {len(seen.arrived) for seen in every}
    assert len(cut) > 50
    assert {0, len(REQUEST)} < cut
    assert all(seen.arrived == REQUEST[: len(seen.arrived)] for seen in every)
    assert any(seen.arrived == REQUEST and not seen.answer for seen in every)
    assert {seen.client_end for seen in every} >= {"answered", "ConnectionResetError"}


def test_a_half_close_ends_one_direction():
    every = outcomes(sim.Dials(half_close=1.0))
    assert {seen.server_end for seen in every} == {"eof"}
    assert {seen.client_end for seen in every} == {"IncompleteReadError"}


def test_a_dial_may_be_refused_or_never_answered():
    refused = outcomes(sim.Dials(refuse=1.0))
    assert {seen.client_end for seen in refused} == {"ConnectionRefusedError"}
    deaf = outcomes(sim.Dials(deaf=1.0))
    assert {seen.client_end for seen in deaf} == {"TimeoutError"}


def test_a_stalled_request_arrives_after_its_sender_gave_up():
    every = outcomes(sim.Dials(stall=0.5, stall_s=(15, 20)))
    late = [seen for seen in every if seen.client_end == "TimeoutError" and seen.arrived]
    assert late
    assert {seen.arrived for seen in late} == {REQUEST}


async def segments(seen: list[bytes]) -> None:
    """Two writes, one after the other."""
    ended = asyncio.Event()

    class Server(asyncio.Protocol):
        def data_received(self, data):
            seen.append(data)

        def connection_lost(self, exc):
            ended.set()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 7)
    _, writer = await asyncio.open_connection("127.0.0.1", 7)
    writer.write(b"one")
    writer.write(b"two")
    writer.close()
    await ended.wait()
    server.close()


@pytest.mark.parametrize("dials", [sim.Dials(split=0.5), sim.Dials(merge=0.5)])
def test_segments_are_split_and_merged_but_bytes_keep_their_order(dials):
    cuts = set()
    for seed in range(100):
        seen: list[bytes] = []
        sim.run(segments(seen), seed=seed, dials=dials)
        assert b"".join(seen) == b"onetwo"
        cuts.add(tuple(seen))
    assert len(cuts) > 1
    assert ((b"onetwo",) in cuts) is bool(dials.merge)


async def test_a_host_is_reached_by_its_name_from_any_other():
    loop = asyncio.get_running_loop()
    peers: list[object] = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            peers.append(transport.get_extra_info("peername"))
            transport.close()

    with sim.on_host("server"):
        server = await loop.create_server(Server, "127.0.0.1", 10_000)
    with sim.on_host("replica"), pytest.raises(ConnectionRefusedError):
        await loop.create_connection(asyncio.Protocol, "localhost", 10_000)
    with sim.on_host("replica"):
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", 10_000)
    assert transport.get_extra_info("peername") == ("server", 10_000)
    await server_gone(server)
    assert [host for host, _port in peers] == ["replica"]


async def server_gone(server):
    server.close()
    await server.wait_closed()


async def test_a_cancelled_dial_leaves_no_connection_open():
    loop = asyncio.get_running_loop()
    ends: list[object] = []

    class Server(asyncio.Protocol):
        def connection_lost(self, exc):
            ends.append(exc)

    server = await loop.create_server(Server, "127.0.0.1", 7)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0006):  # the other side has it, the caller not yet
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", 7)
    await server_gone(server)
    assert ends == [None]


async def test_a_server_serves_until_it_is_closed():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 7)
    assert server.is_serving()
    task = asyncio.create_task(server.serve_forever())
    await asyncio.sleep(1)
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.is_serving()


async def test_a_server_that_waits_for_its_connections_to_end_sees_them_end():
    loop = asyncio.get_running_loop()
    async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 7) as server:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", 7)
        loop.call_later(5, transport.close)
        before = loop.time()
        await server_gone(server)
        assert loop.time() >= before + 5


async def test_clients_are_closed_and_aborted_in_order():
    loop = asyncio.get_running_loop()
    for verb in ("close_clients", "abort_clients"):
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 7)
        for _ in range(3):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", 7)
        getattr(server, verb)()
        await server_gone(server)


async def test_tls_and_ready_made_sockets_are_refused_by_name():
    loop = asyncio.get_running_loop()
    with pytest.raises(NotImplementedError, match="TLS"):
        await loop.create_connection(asyncio.Protocol, "127.0.0.1", 7, ssl=True)
    with pytest.raises(ValueError, match="host and port"):
        await loop.create_connection(asyncio.Protocol)


def test_a_protocol_that_fails_on_its_bytes_loses_its_connection_and_fails_the_run():
    class Fails(asyncio.Protocol):
        def data_received(self, data):
            raise ValueError("cannot read this")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Fails, "127.0.0.1", 7)
        reader, writer = await asyncio.open_connection("127.0.0.1", 7)
        writer.write(b"?")
        assert await reader.read() == b""
        writer.close()
        await server_gone(server)

    with pytest.raises(sim.WorldFailedError, match="cannot read this"):
        sim.run(main())
