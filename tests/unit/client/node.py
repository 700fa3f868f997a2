"""A node that speaks real frames and does whatever its script says. Runs on either loop.

``script`` holds a list of steps for each connection, in the order in which they are accepted; a
step answers (or does not answer) one request. Requests beyond the script get ``default``.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import NamedTuple
from uuid import UUID

from landed.client.node import NodeStats
from landed.client.options import PoolOptions, parse_address
from landed.client.pool import Pool
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    Batch,
    Delete,
    Deleted,
    Details,
    Event,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Page,
    Read,
    ReadFilters,
    Trim,
    Trimmed,
    Write,
)
from landed.sim import SimLoop
from landed.sim.transport import SimTransport, connection_error
from landed.wire.connection import NEED_DATA, Received, ServerConnection, Violation
from landed.wire.frames import HEADER
from landed.wire.messages import Failure, LogFacts, Probe, WireAnswer, WireRequest

PORT = 10_000
CLIENT = UUID(int=7)
ORG, TYPE = UUID(int=1), UUID(int=2)


def key(number: int) -> AggregateKey:
    return AggregateKey(ORG, TYPE, UUID(int=number))


def write(number: int = 1, seq: int = 1, value: bytes = b"x") -> Write:
    events = [Event.new(1, value, client_seq=seq, event_id=None)]
    return Write.to(key(number), events, client_id=CLIENT, expected_version=None)


def batch(version: int, value: bytes) -> Batch:
    events = (Event.new(1, value, client_seq=version, event_id=None),)
    return Batch(version, ClientId(CLIENT), None, 0, events)


def read(number: int = 1, from_version: int = 1) -> Read:
    return Read(key(number), ReadFilters(from_version=from_version))


def value_of(page: Page) -> bytes:
    """What an honest page holds: the number of its aggregate."""
    return page.batches[0].events[0].value


def honest(request: WireRequest) -> WireAnswer:
    """An answer that belongs to this request and to no other."""
    match request:
        case Write():
            return Landed((1,) if len(request.legs) == 1 else ())
        case Trim():
            return Trimmed()
        case Delete():
            return Deleted()
        case Read():
            value = str(request.key.id.int).encode()
            return Page((batch(request.filters.from_version, value),), None)
        case GetDetails():
            version = request.key.id.int
            return Details(1, version, 1, False, False, False, 0, ClientId(CLIENT), None)
        case FeedRead():
            return FeedPage((), request.after, is_at_end=True)
        case Probe():
            return LogFacts(UUID(int=99), 0, 0)
        case _:
            raise AssertionError(request)


class Frame(NamedTuple):
    """A request that arrived whole."""

    connection: int
    request: WireRequest
    correlation: bytes | None
    at: float


class Line(asyncio.Protocol):
    """One connection of a node."""

    def __init__(self, node: HostileNode) -> None:
        self.node = node
        self.number = len(node.lines)
        self.wire = ServerConnection(Limits())
        self.is_up = True
        self.has_ended = False
        self.error: Exception | None = None
        node.lines.append(self)
        self._steps = list(node.script[self.number]) if self.number < len(node.script) else []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.node.peak = max(self.node.peak, self.node.up)
        if self.node.greeting is not None:
            self.node.greeting(self, None)

    def data_received(self, data: bytes) -> None:
        self.wire.receive(data)
        while (received := self.wire.next_request()) is not NEED_DATA:
            if isinstance(received, Violation):
                self.node.violations.append(received)
                self.transport.abort()
                return
            at = asyncio.get_running_loop().time()
            self.node.frames.append(Frame(self.number, received.request, received.correlation, at))
            step = self._steps.pop(0) if self._steps else self.node.default
            step(self, received)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_up = False
        self.error = error

    def send(self, data: bytes) -> None:
        if self.is_up and not self.has_ended:
            self.transport.write(data)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        self.node.timers.append(asyncio.get_running_loop().call_later(seconds, call))


Step = Callable[[Line, Received | None], object]


class HostileNode:
    """A listening port and everything that arrived at it."""

    def __init__(
        self,
        name: str = "a",
        *,
        script: Sequence[Sequence[Step]] = (),
        default: Step | None = None,
        greeting: Step | None = None,
        port: int = PORT,
    ) -> None:
        self.name = name
        self.port = port
        self.script = script
        self.default = default or reply()
        self.greeting = greeting
        self.frames: list[Frame] = []
        self.lines: list[Line] = []
        self.violations: list[Violation] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.peak = 0
        self.held: list[tuple[Line, Received]] = []
        """Requests that ``hold`` has not answered yet."""

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"

    @property
    def up(self) -> int:
        """Connections open now."""
        return sum(line.is_up for line in self.lines)

    @property
    def writes(self) -> int:
        return sum(isinstance(frame.request, Write) for frame in self.frames)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Line(self), self.name, self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        self.server.close()

    async def stop(self) -> None:
        self.server.close()
        for timer in self.timers:
            timer.cancel()
        for line in self.lines:
            if line.is_up:
                line.transport.abort()
        await until(lambda: not self.up)


# --- steps ----------------------------------------------------------------------------------------


def _whole(line: Line, received: Received, answer: WireAnswer | Failure | None = None) -> bytes:
    return line.wire.answer(received, honest(received.request) if answer is None else answer)


def reply(answer: WireAnswer | Failure | None = None) -> Step:
    return lambda line, received: line.send(_whole(line, received, answer))


def error(code: int, **fields: object) -> Step:
    return reply(Failure(code, fields))


def hold() -> Step:
    """Answer when the test says ``release``."""
    return lambda line, received: line.node.held.append((line, received))


def release(node: HostileNode) -> None:
    line, received = node.held.pop(0)
    line.send(_whole(line, received))


def hand_over(node: HostileNode, pool: Pool) -> None:
    """Let the pool's only link read the next answer now, without the loop turning in between."""
    line, received = node.held.pop(0)
    data = _whole(line, received)
    (link,) = pool._cluster.node(parse_address(node.address))._links
    link.get_buffer(-1)[: len(data)] = data
    link.buffer_updated(len(data))


def silence() -> Step:
    return lambda _line, _received: None


def after(seconds: float, step: Step) -> Step:
    return lambda line, received: line.later(seconds, lambda: step(line, received))


def both(first: Step, second: Step) -> Step:
    def act(line: Line, received: Received | None) -> None:
        first(line, received)
        second(line, received)

    return act


def twice() -> Step:
    return lambda line, received: line.send(2 * _whole(line, received))


def wrong_correlation() -> Step:
    def act(line: Line, received: Received | None) -> None:
        assert received is not None
        line.send(_whole(line, received._replace(correlation=bytes(16))))

    return act


def no_correlation() -> Step:
    return lambda line, received: line.send(_whole(line, received._replace(correlation=None)))


def wrong_type() -> Step:
    """A well-formed page in answer to anything but a read."""

    def act(line: Line, received: Received | None) -> None:
        other = received._replace(request=read(), operation=2)
        line.send(line.wire.answer(other, honest(read())))

    return act


def drip(interval_s: float) -> Step:
    def act(line: Line, received: Received | None) -> None:
        for at, byte in enumerate(_whole(line, received)):
            line.later(at * interval_s, lambda byte=byte: line.send(bytes([byte])))

    return act


def truncate(count: int, then: Step) -> Step:
    """The first bytes of the right answer; negative: all but so many."""
    return lambda line, received: (
        line.send(_whole(line, received)[:count]),
        then(line, received),
    )


def garbage(count: int, seed: int = 3) -> Step:
    return lambda line, _received: line.send(Random(seed).randbytes(count))


def oversize(size: int) -> Step:
    """A header that announces a page of so many bytes."""
    return lambda line, _received: line.send(HEADER.pack(3, 2, size, size, 0))


def undecodable() -> Step:
    return lambda line, _received: line.send(HEADER.pack(3, 3, 2, 2, 0) + b"\xc1\xc1")


def farewell() -> Step:
    return lambda line, _received: line.send(HEADER.pack(3, 6, 1, 1, 0) + b"\x90")


def fin() -> Step:
    return lambda line, _received: line.transport.close()


def half_close() -> Step:
    def act(line: Line, _received: Received | None) -> None:
        line.has_ended = True
        line.transport.write_eof()

    return act


def rst() -> Step:
    """Close with a reset, on the real loop by lingering for no time at all."""

    def act(line: Line, _received: Received | None) -> None:
        transport = line.transport
        if isinstance(transport, SimTransport):
            transport.fly(b"", error=connection_error(104))
            transport.is_cut = True
        else:
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        transport.abort()

    return act


# --- around a test --------------------------------------------------------------------------------


async def until(condition: Callable[[], object], within_s: float = 5.0) -> None:
    """Wait for a condition, looking again every millisecond."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(*nodes: HostileNode) -> AsyncIterator[None]:
    for node in nodes:
        await node.start()
    try:
        yield
    finally:
        for node in nodes:
            await node.stop()


def pool_of(*nodes: HostileNode | str, seed: int = 7, **options: object) -> Pool:
    addresses = [node if isinstance(node, str) else node.address for node in nodes]
    return Pool(PoolOptions(addresses=addresses, **options), jitter=Random(seed))


@asynccontextmanager
async def scene(*nodes: HostileNode, **options: object) -> AsyncIterator[Pool]:
    """The nodes running, and a pool that knows them in this order."""
    async with running(*nodes), pool_of(*nodes, **options) as pool:
        yield pool


@contextmanager
def deaf(host: str) -> Iterator[None]:
    """Dials to this host are never answered while the block lasts (simulated loop only)."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    network = loop.network
    connect = network.connect

    async def never(factory, to, port):
        if to == host:
            await loop.create_future()
        return await connect(factory, to, port)

    network.connect = never
    try:
        yield
    finally:
        network.connect = connect


def stats(pool: Pool) -> NodeStats:
    """Of the only node."""
    (only,) = pool.stats().values()
    return only


def now() -> float:
    return asyncio.get_running_loop().time()
