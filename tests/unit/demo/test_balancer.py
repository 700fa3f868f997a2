"""The balancer is honest about bytes: what was sent is never sent again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from landed.accounts.serving import bind
from landed.demo.balancer import Backend, Balancer, Loss

pytestmark = pytest.mark.real_loop

BODY = b'{"amountCents":' + b"1" * 2200 + b"}\r\n\r\n\x00"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
Session = Callable[["Node", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Node:
    """A replica of the test's making: counts what it is sent."""

    behave: Session
    requests: list[bytes] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.behave(self, reader, writer)
        finally:
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        self.requests.append(head + await reader.readexactly(length))
        return self.requests[-1]


async def answering(node, reader, writer):
    await node.take(reader)
    writer.write(ANSWER)
    await writer.drain()
    writer.write_eof()
    await reader.read()


async def resetting(node, reader, _writer):
    await node.take(reader)


async def half_a_status_line(node, reader, writer):
    await node.take(reader)
    writer.write(b"HTTP/1.1 20")
    await writer.drain()
    writer.write_eof()
    await reader.read()


async def closing_unread(_node, _reader, _writer):
    pass


@dataclass
class Bench:
    port: int
    loss: Loss
    nodes: list[Node]


@asynccontextmanager
async def balancing(*behaviours: Session, control=None) -> AsyncIterator[Bench]:
    nodes = [Node(behave) for behave in behaviours]
    loss = Loss()

    async def nothing(_head, _body):
        return None

    async with AsyncExitStack() as stack:
        backends = []
        for number, node in enumerate(nodes):
            server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
            stack.callback(server.close)
            node.port = server.sockets[0].getsockname()[1]
            backends.append(Backend(f"node-{number}", "127.0.0.1", node.port))
        balancer = Balancer(
            lambda: backends, control=control or nothing, loss=loss, dice=random.Random(1)
        )
        listening = bind("127.0.0.1", 0)
        await balancer.start(listening)
        stack.push_async_callback(balancer.close)
        yield Bench(listening.getsockname()[1], loss, nodes)


def post(*headers: str) -> bytes:
    lines = ["POST /x HTTP/1.1", "Host: x", "Idempotency-Key: K", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(BODY)}", "", ""]).encode() + BODY


async def send(port: int, data: bytes) -> bytes:
    """Send bytes and return what comes back until the end; raises if it is broken off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


async def test_requests_take_turns_and_arrive_as_they_were_sent():
    async with balancing(answering, answering) as bench:
        for _ in range(4):
            assert (
                await send(bench.port, post("X-Odd:  spaced  ", "Connection: keep-alive")) == ANSWER
            )
        for node in bench.nodes:
            assert len(node.requests) == 2
            head, _, body = node.requests[0].partition(b"\r\n\r\n")
            assert body == BODY
            assert b"\r\nX-Odd:  spaced  \r\n" in head
            assert head.lower().count(b"\r\nconnection: ") == 1
            assert head.endswith(b"\r\nconnection: close")


@pytest.mark.scenario("BC-13")
@pytest.mark.parametrize("broken", [resetting, closing_unread])
async def test_a_request_that_was_sent_and_not_answered_is_unknown_and_seen_once(broken):
    async with balancing(broken, broken) as bench:
        answer = await send(bench.port, post())
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b'"outcome": "unknown"' in answer
        assert b'"retryable": true' in answer
        assert sum(len(node.requests) for node in bench.nodes) == (broken is resetting)


@pytest.mark.scenario("BC-13")
async def test_half_an_answer_is_passed_on_as_half_and_never_asked_for_again():
    async with balancing(half_a_status_line, half_a_status_line) as bench:
        assert await send(bench.port, post()) == b"HTTP/1.1 20"
        assert sum(len(node.requests) for node in bench.nodes) == 1


@pytest.mark.scenario("BC-13")
async def test_a_replica_that_refuses_the_connection_was_sent_nothing_so_the_next_is_tried():
    async with balancing(answering, answering) as bench:
        unused = bind("127.0.0.1", 0)
        refusing = unused.getsockname()[1]
        unused.close()
        backends = [
            Backend("gone", "127.0.0.1", refusing),
            Backend("here", "127.0.0.1", bench.nodes[0].port),
        ]
        listening = bind("127.0.0.1", 0)

        async def nothing(_head, _body):
            return None

        balancer = Balancer(lambda: backends, control=nothing, loss=Loss(), dice=random.Random(1))
        await balancer.start(listening)
        port = listening.getsockname()[1]
        assert [await send(port, post()) for _ in range(3)] == [ANSWER] * 3
        backends.clear()
        nobody = await send(port, post())
        assert nobody.startswith(b"HTTP/1.1 503 ")
        assert b'"outcome": "not_applied"' in nobody
        await balancer.close()
        assert len(bench.nodes[0].requests) == 3


async def test_an_answer_is_lost_after_the_replica_gave_it_and_only_where_asked():
    async with balancing(answering) as bench:
        assert await send(bench.port, post("Demo-Lose-Answer: 1")) == b""
        assert (len(bench.nodes[0].requests), bench.loss.lost) == (1, 1)
        assert await send(bench.port, post()) == ANSWER
        bench.loss.rate = 1.0
        assert await send(bench.port, post()) == b""
        assert await send(bench.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == ANSWER
        assert bench.loss.lost == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
async def test_what_cannot_be_passed_on_honestly_is_refused(data, status):
    async with balancing(answering) as bench:
        assert (await send(bench.port, data)).startswith(f"HTTP/1.1 {status} ".encode())
        assert bench.nodes[0].requests == []


async def test_a_request_that_never_ends_reaches_no_replica():
    async with balancing(answering) as bench:
        reader, writer = await asyncio.open_connection("127.0.0.1", bench.port)
        writer.write(post()[:-1])
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert bench.nodes[0].requests == []
