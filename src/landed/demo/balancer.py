"""A small HTTP balancer: round robin, one request a connection, and able to lose an answer.

It is honest about bytes: what it could not connect to was not sent, and goes to the next replica;
what was handed to a socket, even in part, is never sent again (case BC-13). An answer that did not
come is told as one nobody knows. Lost answers are lost after the replica has answered completely.

One request a connection, so that a browser never finds a reused connection broken and quietly sends
its request again: every repeat seen here is one that somebody decided on.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from landed.demo.http import (
    BadRequestError,
    RequestHead,
    answer,
    parse_head,
    without_hop_headers,
)
from landed.facts import Note, forget

HEAD_BYTES_MAX: Final = 32 * 1024
"""Request line and headers; twice what uvicorn takes, so that the replica refuses first."""
BODY_BYTES_MAX: Final = 1024 * 1024
"""A body is read whole before anything is sent on; the service itself takes 16 KiB."""
RECEIVE_TIMEOUT_S: Final = 30.0
"""A client that does not finish its request in this time is dropped."""
CONNECT_TIMEOUT_S: Final = 2.0
"""Loopback answers at once or not at all."""
ANSWER_TIMEOUT_S: Final = 60.0
"""Longest silence of a replica; four times the pause between two comments of a live stream."""
CONNECTIONS_MAX: Final = 512
"""Above it a new connection is closed at once."""

LOSE_HEADER: Final = "demo-lose-answer"
"""A request with this header, whatever its value, is carried out and its answer is lost."""


class Backend(NamedTuple):
    """A replica that may be tried."""

    name: str
    host: str
    port: int


@dataclass(slots=True)
class Loss:
    """How often answers to changes are lost, besides those that ask for it."""

    rate: float = 0.0
    """0 to 1."""
    lost: int = 0
    """Answers lost so far, for either reason."""


Elsewhere = Callable[[RequestHead], Backend | None]
"""Says who alone takes a request that is not for the replicas; None: it is for them."""

Control = Callable[[RequestHead, bytes], Awaitable[bytes | None]]
"""Answers a request of the balancer's own, whole; None: not mine, pass it on."""


class Balancer:
    """Accept HTTP requests and pass each to one replica.

    Args:
        backends: the replicas that may be tried now, in a stable order.
        control: answers requests meant for the balancer itself.
        loss: read at each request; the caller may change it.
        dice: decides which answers are lost at a rate.
        elsewhere: requests for others than the replicas; their answers are never lost here.
    """

    def __init__(
        self,
        backends: Callable[[], Sequence[Backend]],
        *,
        control: Control,
        loss: Loss,
        dice: random.Random,
        elsewhere: Elsewhere = lambda _head: None,
        note: Note = forget,
    ) -> None:
        self._backends = backends
        self._control = control
        self._loss = loss
        self._dice = dice
        self._elsewhere = elsewhere
        self._note = note
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self, listening: socket.socket) -> None:
        """Accept connections on a bound socket, which is closed with the balancer."""
        self._server = await asyncio.start_server(
            self._accept, sock=listening, limit=HEAD_BYTES_MAX
        )

    async def close(self) -> None:
        """Stop listening and drop what is open."""
        if self._server is not None:
            self._server.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.current_task()
        assert session is not None
        if len(self._sessions) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._sessions.add(session)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client went away, or we are closing: nobody is left to tell.
            writer.transport.abort()
        finally:
            self._sessions.discard(session)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(RECEIVE_TIMEOUT_S):
                head = parse_head(await reader.readuntil(b"\r\n\r\n"), body_max=BODY_BYTES_MAX)
                if head.expects_continue:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(head.content_length)
        except asyncio.LimitOverrunError:
            await _send(writer, answer(431, title="the headers are too large"))
            return
        except BadRequestError as e:
            await _send(writer, answer(e.status, title=str(e)))
            return
        if (own := await self._control(head, body)) is not None:
            await _send(writer, own)
            return
        await self._pass_on(head, body, writer)

    async def _pass_on(self, head: RequestHead, body: bytes, writer: asyncio.StreamWriter) -> None:
        other = self._elsewhere(head)
        link = await self._connect(self._in_turn() if other is None else [other])
        if link is None:
            nothing = answer(
                503,
                title="no replica is running" if other is None else f"{other.name} is not running",
                outcome="not_applied",
                is_retryable=True,
            )
            await _send(writer, nothing)
            return
        replica, (their_reader, their_writer) = link
        try:
            # From here on the replica may have it. Whatever happens, it is not sent again.
            their_writer.write(without_hop_headers(head) + body)
            is_lost = other is None and self._loses(head)
            await self._relay(replica, their_reader, writer, is_lost=is_lost)
        finally:
            their_writer.transport.abort()

    def _in_turn(self) -> list[Backend]:
        """The replicas, from the one whose turn it is."""
        backends = self._backends()
        self._turn += 1
        return [backends[(self._turn + step) % len(backends)] for step in range(len(backends))]

    async def _connect(
        self, backends: Sequence[Backend]
    ) -> tuple[Backend, tuple[asyncio.StreamReader, asyncio.StreamWriter]] | None:
        """Connect to the first that can be reached."""
        for backend in backends:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return backend, await asyncio.open_connection(backend.host, backend.port)
            except OSError as e:
                self._note("balancer.unreachable", {"replica": backend.name, "error": str(e)})
        return None

    async def _relay(
        self,
        replica: Backend,
        their_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_lost: bool,
    ) -> None:
        sent = 0
        try:
            while chunk := await self._next_chunk(their_reader):
                sent += len(chunk)
                if not is_lost:
                    writer.write(chunk)
                    await writer.drain()
        except (ConnectionError, TimeoutError) as e:
            self._note("balancer.broken", {"replica": replica.name, "error": str(e)})
            if sent:
                # Half an answer went out: only a broken connection says so.
                writer.transport.abort()
                return
        if is_lost and sent:
            self._loss.lost += 1
            self._note("balancer.lost_answer", {"replica": replica.name, "bytes": sent})
            writer.transport.abort()
        elif not sent:
            silent = answer(
                502,
                title=f"replica {replica.name} took the request and gave no answer",
                outcome="unknown",
                is_retryable=True,
            )
            await _send(writer, silent)

    async def _next_chunk(self, their_reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await their_reader.read(HEAD_BYTES_MAX)

    def _loses(self, head: RequestHead) -> bool:
        if head.method != "POST":
            return False
        return LOSE_HEADER in head.headers or self._dice.random() < self._loss.rate


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
