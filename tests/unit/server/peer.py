"""A client for tests of the server: it can pipeline, stop reading, half-close and send garbage."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import Event, Write
from landed.wire.connection import NEED_DATA, ClientConnection
from landed.wire.messages import Operation, WireRequest, operation_of

CLIENT = UUID(int=7)
ORG = UUID(int=1)
TYPE = UUID(int=2)


def key(number: int) -> AggregateKey:
    return AggregateKey(ORG, TYPE, UUID(int=number))


def event(seq: int, value: bytes = b"x", *, event_id: UUID | None = None) -> Event:
    return Event.new(1, value, client_seq=seq, event_id=event_id)


def write(
    number: int = 1,
    seq: int = 0,
    *,
    expected: int | None = None,
    value: bytes = b"x",
    enforce: bool | None = None,
    client: UUID = CLIENT,
    event_id: UUID | None = None,
) -> Write:
    """One event to one aggregate; enforced if it has a sequence."""
    return Write.to(
        key(number),
        [event(seq, value, event_id=event_id)],
        client_id=client,
        expected_version=expected,
        enforce_sequence=seq > 0 if enforce is None else enforce,
    )


class Peer:
    """One connection, without any manners."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.wire = ClientConnection(limits)
        self._asked: deque[tuple[Operation, bytes]] = deque()
        self._number = 0

    def frames(self, requests: Iterable[WireRequest]) -> bytes:
        """The bytes of requests, and expect their answers in this order."""
        parts = []
        for request in requests:
            self._number += 1
            correlation = self._number.to_bytes(16)
            parts.append(self.wire.request(request, correlation))
            self._asked.append((operation_of(request), correlation))
        return b"".join(parts)

    async def send(self, *requests: WireRequest) -> None:
        """Send requests in one go, without waiting for anything."""
        await self.send_bytes(self.frames(requests))

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        """The answer to the oldest request that has none yet."""
        operation, correlation = self._asked.popleft()
        while (answered := self.wire.next_answer(operation)) is NEED_DATA:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError("the server closed without an answer")
            self.wire.receive(data)
        if answered.correlation is not None:
            assert correlation == answered.correlation
        return answered.answer

    async def answers(self, count: int) -> list:
        return [await self.answer() for _ in range(count)]

    async def ask(self, request: WireRequest):
        await self.send(request)
        return await self.answer()

    async def rest(self) -> bytes:
        """What came beyond the answers, until the server closes; b"" also after a reset."""
        buffer = self.wire._buffer
        left = bytes(buffer._data[buffer._start :])
        try:
            return left + await self.reader.read()
        except ConnectionError:
            return left

    def abort(self) -> None:
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def dial(
    port: int, *, host: str = "127.0.0.1", limits: Limits | None = None
) -> AsyncIterator[Peer]:
    limits = limits or Limits()
    reader, writer = await asyncio.open_connection(host, port)
    peer = Peer(reader, writer, limits)
    try:
        yield peer
    finally:
        await peer.close()
