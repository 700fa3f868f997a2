"""One script, two loops: what asyncio promises of a connection holds on both, in the same order."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from landed import sim

Script = Callable[[list[object]], Awaitable[None]]


class Recorder(asyncio.Protocol):
    """Write down every callback."""

    def __init__(self, seen: list[object], name: str, *, keep_open: bool = False) -> None:
        self.seen = seen
        self.name = name
        self.keep_open = keep_open
        self.lost = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.bytes = bytearray()
        self.awaited: tuple[int, asyncio.Future[None]] | None = None

    def connection_made(self, transport):
        self.transport = transport
        self.seen.append((self.name, "made"))

    def data_received(self, data):
        self.bytes += data
        if self.awaited and len(self.bytes) >= self.awaited[0] and not self.awaited[1].done():
            self.awaited[1].set_result(None)

    async def until(self, count: int) -> bytes:
        if len(self.bytes) < count:
            self.awaited = (count, asyncio.get_running_loop().create_future())
            await self.awaited[1]
        return bytes(self.bytes)

    def eof_received(self):
        self.seen.append((self.name, "eof", len(self.bytes)))
        self.ended.set_result(None)
        return self.keep_open

    def connection_lost(self, exc):
        self.seen.append((self.name, "lost", type(exc).__name__))
        self.lost.set_result(None)

    def pause_writing(self):
        self.seen.append((self.name, "pause"))

    def resume_writing(self):
        self.seen.append((self.name, "resume"))


class Buffered(asyncio.BufferedProtocol):
    """The same through a buffer of seven bytes."""

    def __init__(self, got: bytearray) -> None:
        self.got = got
        self.buffer = bytearray(7)
        self.lost = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint):
        assert sizehint == -1
        return self.buffer

    def buffer_updated(self, nbytes):
        assert 1 <= nbytes <= 7
        self.got += self.buffer[:nbytes]

    def connection_lost(self, exc):
        self.lost.set_result(exc)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what only another side can bring about."""
    while not condition():  # the condition lies in callbacks of a protocol
        await asyncio.sleep(0.001)


async def pair(seen: list[object], *, keep_open: bool = False):
    """A server, and both ends of one connection to it."""
    loop = asyncio.get_running_loop()
    made: list[Recorder] = []

    def accept() -> Recorder:
        made.append(Recorder(seen, "server", keep_open=keep_open))
        return made[0]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(
        lambda: Recorder(seen, "client", keep_open=keep_open), "127.0.0.1", port
    )
    client.transport.write(b"?")
    await until(lambda: bool(made))
    await made[0].until(1)
    made[0].bytes.clear()
    seen.clear()
    return server, client, made[0]


async def closing_sends_what_was_written_first(seen):
    server, client, peer = await pair(seen)
    client.transport.write(b"a" * 10)
    client.transport.write(b"b" * 10)
    client.transport.close()
    client.transport.write(b"after the end")
    assert client.transport.is_closing()
    seen.append("closed")  # connection_lost never comes before close returns
    await client.lost
    await peer.lost
    seen.append(bytes(peer.bytes))
    server.close()


async def a_half_closed_connection_still_carries_the_answer(seen):
    server, client, peer = await pair(seen, keep_open=True)
    client.transport.write(b"question")
    client.transport.write_eof()
    with pytest.raises(RuntimeError):
        client.transport.write(b"more")
    await peer.ended
    peer.transport.write(b"answer")
    assert await client.until(6) == b"answer"
    peer.transport.close()
    await client.ended
    client.transport.close()
    await client.lost
    await peer.lost
    server.close()


async def an_end_of_stream_closes_by_default(seen):
    server, client, peer = await pair(seen)
    client.transport.write_eof()
    await peer.lost
    await client.lost
    server.close()


async def aborting_tells_both(seen):
    server, client, peer = await pair(seen)
    client.transport.abort()
    client.transport.abort()
    await client.lost
    await peer.lost
    server.close()


async def a_paused_reader_gets_nothing_until_it_resumes(seen):
    server, client, peer = await pair(seen)
    peer.transport.pause_reading()
    peer.transport.pause_reading()
    assert not peer.transport.is_reading()
    client.transport.write(b"waits")
    await asyncio.sleep(0.01)
    seen.append(bytes(peer.bytes))
    peer.transport.resume_reading()
    seen.append(await peer.until(5))
    client.transport.close()
    await peer.lost
    server.close()


async def a_full_window_pauses_the_writer_and_resumes_it(seen):
    server, client, peer = await pair(seen)
    client.transport.set_write_buffer_limits(high=10_000, low=5_000)
    peer.transport.pause_reading()
    total = 4 * 1024 * 1024
    client.transport.write(b"x" * total)
    assert client.transport.get_write_buffer_size() > 10_000
    client.transport.close()
    peer.transport.resume_reading()
    await client.lost
    await peer.lost
    seen.append(len(peer.bytes) == total)
    server.close()


async def a_buffered_protocol_gets_every_byte_in_order(seen):
    loop = asyncio.get_running_loop()
    got = bytearray()
    made: list[Buffered] = []

    def accept() -> Buffered:
        made.append(Buffered(got))
        return made[0]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, client = await loop.create_connection(
        lambda: Recorder(seen, "client"), "127.0.0.1", port
    )
    transport.writelines([b"hello, ", bytearray(b"buffered "), memoryview(b"protocol")])
    transport.close()
    await client.lost
    await until(lambda: bool(made))
    await made[0].lost
    seen.append(bytes(got))
    server.close()


async def a_port_nobody_listens_on_refuses(seen):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError) as raised:
        await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    seen.append(raised.value.errno)
    assert server.sockets == ()


async def a_port_in_use_says_so(seen):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError) as raised:
        await loop.create_server(asyncio.Protocol, "127.0.0.1", port)
    seen.append(raised.value.errno)
    server.close()
    await server.wait_closed()


async def both_sides_know_their_addresses(seen):
    server, client, peer = await pair(seen)
    ours, theirs = client.transport, peer.transport
    assert ours.get_extra_info("peername") == theirs.get_extra_info("sockname")
    assert ours.get_extra_info("sockname") == theirs.get_extra_info("peername")
    ours.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert ours.get_extra_info("socket").getpeername() == ours.get_extra_info("peername")
    assert ours.get_extra_info("nonsense", "none") == "none"
    ours.close()
    await peer.lost
    await client.lost
    server.close()


async def streams_work(seen):
    async def echo(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x" * 100_000)
    writer.write_eof()
    seen.append(len(await reader.read()))
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def groups_timeouts_events_and_threads_work(seen):
    ready = asyncio.Event()

    async def waits():
        await ready.wait()
        seen.append("woken")

    async with asyncio.TaskGroup() as group:
        group.create_task(waits())
        seen.append(await asyncio.to_thread(sum, [1, 2]))
        ready.set()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    with pytest.raises(ExceptionGroup):  # noqa: PT012  # what raises is the end of the group
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(int, "not a number"))
            group.create_task(asyncio.Event().wait())


async def what_is_ready_keeps_its_order(seen):
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    for number in range(5):
        loop.call_soon(seen.append, number)
    loop.call_soon_threadsafe(seen.append, "threadsafe")
    loop.call_soon(seen.append, "cancelled").cancel()
    loop.call_later(0.02, seen.append, "late")
    loop.call_later(0.01, seen.append, "early")
    loop.call_later(0.03, done.set_result, None)
    await done


SCRIPTS = [
    closing_sends_what_was_written_first,
    a_half_closed_connection_still_carries_the_answer,
    an_end_of_stream_closes_by_default,
    aborting_tells_both,
    a_paused_reader_gets_nothing_until_it_resumes,
    a_full_window_pauses_the_writer_and_resumes_it,
    a_buffered_protocol_gets_every_byte_in_order,
    a_port_nobody_listens_on_refuses,
    a_port_in_use_says_so,
    both_sides_know_their_addresses,
    streams_work,
    groups_timeouts_events_and_threads_work,
    what_is_ready_keeps_its_order,
]


def sides(seen: list[object]) -> dict[object, list[object]]:
    """What each side saw, in its order: across two hosts no order is promised."""
    told: dict[object, list[object]] = {}
    for item in seen:
        side = item[0] if isinstance(item, tuple) else "script"
        told.setdefault(side, []).append(item)
    return told


@pytest.mark.real_loop
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_simulated_loop_does_what_the_real_one_does(script: Script) -> None:
    real: list[object] = []
    asyncio.run(script(real))
    assert real or script is both_sides_know_their_addresses
    for seed in range(8):
        simulated: list[object] = []
        sim.run(script(simulated), seed=seed)
        assert sides(real) == sides(simulated)
    rough = sim.Dials(split=0.5, merge=0.5, stall=0.1, latency_s=(0.0, 0.004))
    for seed in range(8):
        simulated = []
        sim.run(script(simulated), seed=seed, dials=rough)
        assert sides(real) == sides(simulated)
