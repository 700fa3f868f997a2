"""The requests of one connection, in their order: taken from bytes, carried out, answered.

Knows no socket and no time; session.py has those. It can therefore go on after the connection is
gone, with what had been received whole (log rule W20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, cast

from landed.log import FeedPage, FeedRead, Unknown, Write
from landed.server.dispatch import dispatch
from landed.server.shared import Shared
from landed.wire.connection import NEED_DATA, Received, ServerConnection, Violation
from landed.wire.messages import MUTATIONS, Operation, WireAnswer

_WRITE: Final = Operation.WRITE


class Exchange:
    """A request and, once there is one, its answer."""

    __slots__ = ("_line", "answer", "received")

    def __init__(self, line: Line, received: Received) -> None:
        self._line = line
        self.received = received
        self.answer: WireAnswer | None = None

    def done(self, answer: WireAnswer) -> None:
        """Take the answer. A later one, of a feed that was cut short, is not looked at."""
        if self.answer is None:
            self.answer = answer
            line = self._line
            line.running -= 1
            line.is_alone = False
            if type(answer) is Unknown:
                line.in_doubt()
            if line.exchanges[0] is self:
                line.on_ready()


class Line:
    """Carry out requests one after another and hand out their answers in the same order.

    Writes that follow one another run together, so that they share flushes; the engine judges
    them in the order in which they are handed over. Any other request runs alone: it waits for the
    answers to those before it, and those behind it wait for its own. So each request sees what its
    predecessors did (log rule G7, design decision 7).
    """

    __slots__ = (
        "_held",
        "_is_ending",
        "_requests_max",
        "_shared",
        "_wire",
        "exchanges",
        "is_alone",
        "is_detached",
        "on_ready",
        "running",
        "unmade",
        "violation",
    )

    violation: Violation | None
    """What the client did wrong; nothing is taken after it."""
    exchanges: deque[Exchange]
    """Those started and not yet sent an answer, the next one to be sent first."""
    running: int
    """How many of them have no answer yet."""
    is_alone: bool
    """The last of them is one that nothing may run beside."""
    unmade: int
    """Bytes received that no request was made of yet."""
    is_detached: bool
    """Nobody takes the answers: only what changes the log is still carried out."""

    def __init__(self, shared: Shared, on_ready: Callable[[], None]) -> None:
        self._shared = shared
        self._requests_max = shared.limits.connection_requests_max
        self.on_ready = on_ready
        self._wire = ServerConnection(shared.limits)
        self.exchanges = deque()
        self._held: Received | None = None  # waits for those before it
        self.running = 0
        self.is_alone = False
        self._is_ending = False
        self.violation = None
        self.unmade = 0
        self.is_detached = False

    @property
    def is_blocked(self) -> bool:
        """Something has to be answered before the next request can start."""
        return self.is_alone or self._held is not None or len(self.exchanges) >= self._requests_max

    @property
    def is_settled(self) -> bool:
        """Nothing runs, nothing waits, and every answer was taken."""
        return not self.exchanges and self._held is None

    @property
    def may_advance(self) -> bool:
        """There is something that was received and not started."""
        return self.unmade > 0 or self._held is not None

    def receive(self, data: memoryview) -> None:
        """Take bytes; they are copied."""
        self.unmade += len(data)
        self._shared.admission.arrived(len(data))
        self._wire.receive(data)

    def advance(self) -> int:
        """Start every request that can start now. Returns how many whole ones it took."""
        taken = 0
        exchanges, next_request = self.exchanges, self._wire.next_request
        shared = self._shared
        submit, admission, requests = (
            shared.engine.submit,
            shared.admission,
            shared.counters.requests,
        )
        while not self.is_alone and self.violation is None:
            received = self._held
            if received is None:
                if len(exchanges) >= self._requests_max:
                    break
                message = next_request()
                if message is NEED_DATA:
                    break
                if type(message) is not Received:
                    self._violated(cast("Violation", message))
                    break
                received = message
                taken += 1
                self.unmade -= received.size
                admission.started(received.size)
                requests[received.operation] += 1
            if received.operation is _WRITE:
                self._held = None
                exchange = Exchange(self, received)
                exchanges.append(exchange)
                self.running += 1
                submit(cast("Write", received.request), exchange.done)
            elif self.running:
                self._held = received
                break
            else:
                self._held = None
                self._start(received)
        return taken

    def in_doubt(self) -> None:
        """Take note that somebody's outcome is unknown: perhaps everybody's is."""
        if self._shared.engine.is_stopped:
            self._shared.on_engine_stopped()

    def take_answers(self) -> list[bytes]:
        """The frames that may be sent now, in order."""
        exchanges, is_detached, frame_of = self.exchanges, self.is_detached, self._wire.answer
        frames: list[bytes] = []
        size = 0
        while exchanges and (answer := exchanges[0].answer) is not None:
            received = exchanges.popleft().received
            size += received.size
            if not is_detached:
                frames.append(frame_of(received, answer))
        if size:
            self._shared.admission.finished(size)
        return frames

    def end(self) -> None:
        """Wait for no news any more: what is in hand is answered as soon as it can be."""
        self._is_ending = True
        self._cut_feed()

    def detach(self) -> None:
        """Go on without anybody who takes the answers."""
        self.is_detached = True
        self._cut_feed()

    def discard(self) -> None:
        """Forget the bytes that no request will be made of any more."""
        unmade, self.unmade = self.unmade, 0
        if unmade:
            self._shared.admission.dropped(unmade)

    def _start(self, received: Received) -> None:
        """Start a request that runs alone."""
        request, _correlation, operation, size = received
        shared = self._shared
        if self.is_detached and operation not in MUTATIONS:
            shared.admission.finished(size)
            return
        exchange = Exchange(self, received)
        self.exchanges.append(exchange)
        self.running += 1
        self.is_alone = True
        if self._is_ending and isinstance(request, FeedRead):
            request = request._replace(wait_ms=0)
        dispatch(request, shared.engine, exchange.done)

    def _cut_feed(self) -> None:
        """Answer a feed request that waits for news: none yet, and perhaps there are more.

        Nothing is skipped by it: the client asks again from the same position.
        """
        if self.is_alone:
            exchange = self.exchanges[-1]
            request = exchange.received.request
            if isinstance(request, FeedRead) and request.wait_ms:
                exchange.done(FeedPage((), request.after, False))

    def _violated(self, violation: Violation) -> None:
        self.violation = violation
        self.discard()
        shared = self._shared
        shared.counters.violations += 1
        shared.note("server.protocol_violated", {"reason": violation.reason})
