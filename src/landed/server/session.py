"""One connection: a socket and its timing around a ``Line`` of requests.

No task and no stream read serves a request. Everything happens in callbacks: the transport hands
over bytes, the engine hands over answers, and the server's sweep looks for those who take too long.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Final, cast

from landed.server.line import Line
from landed.server.shared import Shared

READ_AHEAD_BYTES: Final = 256 * 1024
"""Bytes that may wait behind requests that run; the connection stops reading above it."""


class Phase(Enum):
    """The life of a connection."""

    OPEN = auto()
    """Requests are taken."""
    FINISHING = auto()
    """Nothing more is taken; what was received whole is carried out and answered."""
    DRAINING = auto()
    """Everything is said and our direction is closed; what still comes in is thrown away."""
    GONE = auto()
    """There is no connection any more. What it had sent whole is still carried out."""


_OPEN: Final = Phase.OPEN  # an enumeration's members are looked up slowly


class Session(asyncio.BufferedProtocol):
    """Serve one connection until it ends."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._line = Line(shared, self._mark)
        self._transport: asyncio.Transport | None = None
        self._phase = Phase.OPEN
        self._is_marked = False
        self._is_choked = False  # the transport holds more than it likes to
        self._is_paused = False  # we asked the transport not to read
        self._is_crowded = False  # because the server holds too much, not because of ourselves
        self._is_input_over = False
        self._since = shared.now  # when the client began to owe us something
        self._written = 0
        self._taken = 0
        self._taken_at = shared.now

    # --- what the transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many or the server is closing."""
        shared = self._shared
        self._transport = cast("asyncio.Transport", transport)
        if shared.is_closing or len(shared.sessions) >= shared.limits.connections_max:
            shared.counters.connections_refused += 1
            shared.note("server.connection_refused", {"connections": len(shared.sessions)})
            self._phase = Phase.GONE
            self._transport.abort()
            return
        shared.counters.connections_opened += 1
        shared.joined(self)
        self._since = shared.now

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Lend the common buffer for one read."""
        shared = self._shared
        return shared.crowded_buffer if shared.admission.is_full else shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Copy the bytes out of the common buffer and start what they complete."""
        shared, line = self._shared, self._line
        if self._phase is not _OPEN:
            return  # what comes now is thrown away; the sweep bounds for how long
        shared.counters.received_bytes += nbytes
        if not line.unmade:
            self._since = shared.now
        try:
            line.receive(shared.buffer[:nbytes])
            self._advance()
        except Exception as error:  # noqa: BLE001  # the session's edge: it fails alone
            self._fail(error)
        else:
            if line.unmade:
                self._pause_if_needed()

    def eof_received(self) -> bool:
        """Keep our direction open until everything received whole is answered."""
        self._is_input_over = True
        if self._phase is Phase.OPEN:
            self._phase = Phase.FINISHING
            self._mark()
        return self._phase is Phase.FINISHING

    def pause_writing(self) -> None:
        """Start nothing more for a client that does not take its answers."""
        self._is_choked = True
        self._taken_at = self._shared.now
        self._shared.choked[self] = None

    def resume_writing(self) -> None:
        """Go on where ``pause_writing`` stopped."""
        self._unchoke()
        self._mark()

    def connection_lost(self, _error: Exception | None) -> None:
        """Go on without a connection: what was received whole is carried out (log rule W20)."""
        self._transport = None
        if self._phase is Phase.GONE:
            return
        self._phase = Phase.GONE
        self._unchoke()
        self._line.detach()
        self._mark()

    # --- what the server calls --------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def flush(self) -> None:
        """Send what became ready in this loop turn, in one write, and start what it made room for."""
        self._is_marked = False
        try:
            line = self._line
            frames = line.take_answers()
            if frames:
                self._send(frames)
            if line.may_advance:
                self._advance()
        except Exception as error:  # noqa: BLE001  # the session's edge: it fails alone
            self._fail(error)
            return
        if self._phase is not _OPEN or self._is_paused:
            self._settle()

    def make_room(self) -> None:
        """Read on: the server has room again."""
        self._is_crowded = False
        self._since = self._shared.now
        self._resume_if_possible()

    def finish(self) -> None:
        """Take nothing more, answer what was received whole, then close (design decision 38)."""
        if self._phase is Phase.OPEN:
            self._phase = Phase.FINISHING
            self._line.end()
            self._mark()

    def sweep(self, now: float) -> None:
        """Look whether the client takes too long over something."""
        transport, limits = self._transport, self._shared.limits
        if transport is None:
            return
        unsent = transport.get_write_buffer_size()
        if unsent:
            taken = self._written - unsent
            if taken > self._taken:
                self._taken, self._taken_at = taken, now
            elif now - self._taken_at > limits.send_timeout_s:
                self.drop_slow("it took no byte of its answers in time")
            self._since = now
            return
        self._taken, self._taken_at = self._written, now
        if self._phase is Phase.DRAINING:
            if now - self._since > limits.drain_timeout_s:
                transport.abort()
        elif not self._line.is_settled or self._is_crowded:
            self._since = now
        elif now - self._since > limits.idle_timeout_s:
            self._drop_idle()

    def drop_slow(self, reason: str) -> None:
        """Give up a client that does not take its answers."""
        self._shared.counters.dropped_slow += 1
        self._shared.note(
            "server.client_dropped", {"reason": reason, "unsent_bytes": self.unsent_bytes}
        )
        self.abort()

    def abort(self) -> None:
        """End the connection at once. What was received whole is still carried out."""
        self._unchoke()
        self._line.detach()
        if self._transport is not None:
            self._transport.abort()

    # --- steps -------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if not self._is_marked:
            self._is_marked = True
            self._shared.mark(self)

    def _advance(self) -> None:
        """Start what can start. A client that does not take answers gets nothing started."""
        if self._is_choked:
            return
        line = self._line
        if line.advance():
            self._since = self._shared.now
            self._shared.admission.leave(self)
        if line.violation is not None and self._phase is Phase.OPEN:
            self._phase = Phase.FINISHING
            self._mark()

    def _send(self, frames: list[bytes]) -> None:
        transport, shared = self._transport, self._shared
        if transport is None:
            return
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        transport.write(data)
        self._written += len(data)
        self._since = shared.now
        counters = shared.counters
        counters.answers += len(frames)
        counters.sent_bytes += len(data)
        counters.writes += 1
        if self._is_choked:
            if transport.get_write_buffer_size() > shared.limits.unsent_bytes_max:
                self.drop_slow("too much unsent")
            else:
                shared.relieve()

    def _pause_if_needed(self) -> None:
        line = self._line
        if self._is_paused or self._phase is not _OPEN or not line.unmade:
            return
        is_full = line.unmade > READ_AHEAD_BYTES and (line.is_blocked or self._is_choked)
        self._is_crowded = self._shared.admission.must_wait(self)
        if (is_full or self._is_crowded) and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_if_possible(self) -> None:
        if not self._is_paused or self._is_crowded or self._transport is None:
            return
        if self._line.unmade > READ_AHEAD_BYTES and (self._line.is_blocked or self._is_choked):
            return
        self._is_paused = False
        self._transport.resume_reading()

    def _settle(self) -> None:
        """Take the step that follows when everything is answered, if it is."""
        if self._phase is Phase.OPEN:
            self._resume_if_possible()
        elif not self._line.is_settled or self._is_choked:
            return
        elif self._phase is Phase.FINISHING:
            self._say_goodbye()
        elif self._phase is Phase.GONE:
            self._forget()

    def _say_goodbye(self) -> None:
        """Close our direction and read on for a while: closing over unread input sends a reset.

        A reset can destroy answers on their way (wire spec 2.1).
        """
        self._phase = Phase.DRAINING
        self._since = self._shared.now
        self._release()
        transport, violation = self._transport, self._line.violation
        if transport is None:
            return
        if violation is not None and violation.farewell:
            transport.write(violation.farewell)
            self._written += len(violation.farewell)
        if self._is_input_over:
            transport.close()
            return
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        transport.write_eof()

    def _drop_idle(self) -> None:
        self._shared.counters.dropped_idle += 1
        if self._line.unmade:
            self._shared.note("server.request_unfinished", {"bytes": self._line.unmade})
        if self._transport is not None:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        self._shared.note("server.session_failed", {"error": repr(error)})
        if self._transport is None:
            self._forget()
        self.abort()

    def _unchoke(self) -> None:
        self._is_choked = False
        self._shared.choked.pop(self, None)

    def _release(self) -> None:
        self._line.discard()
        self._shared.admission.leave(self)

    def _forget(self) -> None:
        self._release()
        self._shared.left(self)
