"""One connection to a node: frames out, answers in, in order, and what a break means for whom.

A link never decides what to send. It keeps the requests that were handed to it in the order in
which it wrote them, gives each answer to the oldest, and checks that the answer echoes its
correlation id. Whatever makes the order doubtful ends the link, and with it everything that is
still unanswered: better "nobody knows" than somebody else's answer (pool rules CP-9, CP-16, CP-31).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, cast

from landed.client.exchange import Broken, Exchange, Kind
from landed.errors import RemoteProtocolError
from landed.limits import Limits
from landed.wire.connection import NEED_DATA, ClientConnection
from landed.wire.messages import NotUnderstood

READ_BUFFER_BYTES: Final = 64 * 1024
"""What one read takes at most; a larger answer takes several."""


class LinkState(Enum):
    """There is no way back up."""

    OPEN = "open"
    """It takes requests."""
    RETIRING = "retiring"
    """It takes none, and goes as soon as nobody waits for an answer on it."""
    CLOSED = "closed"


class Link(asyncio.BufferedProtocol):
    """A connection as the pass in assign.py and its node see it.

    Args:
        loop: the loop it lives on.
        limits: sizes that the wire keeps.
        on_settled: called when it has more room than before.
        on_gone: called once, when its socket is gone.
    """

    kind: Kind | None
    is_open: bool
    is_writable: bool

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        *,
        on_settled: Callable[[Link], None],
        on_gone: Callable[[Link], None],
    ) -> None:
        self._loop = loop
        self._wire = ClientConnection(limits)
        self._on_settled = on_settled
        self._on_gone = on_gone
        self._buffer = bytearray(READ_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Exchange] = deque()
        self._outgoing: list[bytes] = []
        self.state = LinkState.OPEN
        self.reason = ""
        """Why it is on its way out; empty while it is open."""
        self.is_open = True
        self.is_writable = True
        self.kind = None
        self.unanswered = 0
        self.unanswered_bytes = 0
        self.idle_since = loop.time()
        self.ends_at = math.inf
        self.carried = 0
        """Requests sent over it so far."""

    # --- out ----------------------------------------------------------------------------------

    def send(self, exchange: Exchange, now: float) -> None:
        """Take a request. It counts as handed over from here on, whatever happens next (CP-33)."""
        assert self.is_open
        exchange.sent_over = self
        exchange.due = min(now + exchange.answer_s, exchange.give_up_at)
        self._queue.append(exchange)
        self._outgoing.append(exchange.frame)
        self.kind = exchange.kind
        self.unanswered += 1
        self.unanswered_bytes += exchange.size
        self.carried += 1

    def flush(self) -> None:
        """Write everything taken in this turn of the loop, in one call."""
        assert self._transport is not None
        frames, self._outgoing = self._outgoing, []
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    # --- ends ---------------------------------------------------------------------------------

    def notice_end(self) -> None:
        """Leave the open state if the transport died this turn and has yet to say so (CP-12)."""
        if self._transport is not None and self._transport.is_closing():
            self._break("reset", "the connection died")

    def forsake(self, exchange: Exchange, reason: str) -> None:
        """Somebody stopped waiting for the answer to this request.

        If it has come already, all is well. If not, it will come later, so nothing more is sent
        over this link. Neighbours get their answers, in order and checked; if there are none the
        socket is closed at once (CP-51, CP-52).
        """
        if exchange in self._queue:
            self._retire(reason)

    def expire(self, now: float) -> float:
        """End what was not answered in time; returns when to look again (CP-26)."""
        next_due = math.inf
        is_late = False
        for exchange in self._queue:
            if exchange.is_awaited:
                if exchange.due <= now:
                    exchange.end(Broken("timeout", "no whole answer in time"))
                    is_late = True
                else:
                    next_due = min(next_due, exchange.due)
        if is_late:
            self._retire("timeout")
        return next_due

    def close(self, reason: str) -> None:
        """Close an idle link."""
        assert not self.unanswered
        self.abort(reason)

    def abort(self, reason: str) -> None:
        """Close the socket now; whatever is unanswered stays so."""
        self._break(reason, "the connection was closed here")

    # --- what the transport says ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands. Whoever dialled says so too: a loop may call it a turn later."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Lend the one buffer; the wire copies out of it before the next read."""
        return self._view

    def buffer_updated(self, count: int) -> None:
        """Bytes arrived."""
        if self.state is LinkState.CLOSED:
            return
        self._wire.receive(self._view[:count])
        try:
            self._take_answers()
        except RemoteProtocolError as error:
            self._break("protocol", str(error), culprit=True)
        if self.state is LinkState.RETIRING:
            self._retire(self.reason)
        self._on_settled(self)

    def eof_received(self) -> bool:
        """The peer sends nothing more, so no answer either: the link is of no use."""
        self._break("eof", "the node closed the connection before a whole answer")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if error is None:
            self._break("eof", "the connection was closed before a whole answer")
        else:
            self._break("reset", str(error) or type(error).__name__)
        self._on_gone(self)

    def pause_writing(self) -> None:
        """The peer takes bytes more slowly than they are sent: give it nothing more."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.is_writable = True
        self._on_settled(self)

    # --- in -----------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        queue, next_answer = self._queue, self._wire.next_answer
        while queue:
            exchange = queue[0]
            answered = next_answer(exchange.operation)
            if answered is NEED_DATA:
                return
            is_farewell = type(answered.answer) is NotUnderstood
            if answered.correlation != exchange.correlation and not is_farewell:
                raise RemoteProtocolError("the answer echoes another request's correlation id")
            queue.popleft()
            self.unanswered -= 1
            self.unanswered_bytes -= exchange.size
            exchange.end(answered)
            if is_farewell:
                self._break("protocol", "the node could not read a request sent before this one")
                return
        self.kind = None
        self.idle_since = self._loop.time()
        if self._wire.has_unread:
            self._break("unsolicited", "bytes that nobody asked for")

    def _retire(self, reason: str) -> None:
        if self.state is LinkState.OPEN:
            self._leave_open(LinkState.RETIRING, reason)
        if not any(exchange.is_awaited for exchange in self._queue):
            self.abort(reason)

    def _break(self, reason: str, detail: str, *, culprit: bool = False) -> None:
        """Close, and tell everybody who still waits that nobody knows."""
        if self.state is LinkState.CLOSED:
            return
        self._leave_open(LinkState.CLOSED, reason)
        broken, self._queue = self._queue, deque()
        for exchange in broken:
            exchange.end(Broken(reason, detail, is_culprit=culprit))
            culprit = False
        if self._transport is not None:
            self._transport.abort()

    def _leave_open(self, state: LinkState, reason: str) -> None:
        self.state = state
        self.is_open = False
        self.reason = self.reason or reason

    def __repr__(self) -> str:
        return f"<Link {self.state.value} {self.reason} {self.unanswered} unanswered>"


def flush_all(links: Sequence[Link]) -> None:
    """Write what each of these links was given, once a link."""
    for link in dict.fromkeys(links):
        link.flush()
