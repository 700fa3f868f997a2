"""One end of a simulated connection: what asyncio promises of a TCP transport.

Bytes go from an end's outbox into flight, from there into the peer's inbox, and from there to its
protocol. A direction holds a window of bytes; what does not fit waits in the outbox, and the
protocol is told to pause by the usual marks.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from landed.sim.address import Address, SimSocket, connection_error

WINDOW_BYTES: Final = 128 * 1024
"""What one direction holds between the two programs; about what a kernel does."""
RECEIVE_BYTES_MAX: Final = 256 * 1024
"""The most one call of ``data_received`` brings, as on the real loop."""
_HIGH_WATER: Final = 64 * 1024


class Medium(Protocol):
    """What lies between two ends, as far as an end knows it."""

    loop: asyncio.AbstractEventLoop

    def arrival(self) -> float:
        """When a segment sent now arrives, if nothing before it is late."""

    def merges(self) -> bool:
        """Whether a segment joins the one before it."""

    def meddle(self, sender: SimTransport, data: bytes, /) -> bool:
        """Let the seed do something to a segment. True if it took care of it."""

    def landed(self, sender: SimTransport, count: int, /, *, is_end: bool, sent_at: float) -> None:
        """Note an arrival."""

    def reset_later(self, end: SimTransport, /) -> None:
        """Tell one end, some time from now, that its connection was reset."""


class _Segment(NamedTuple):
    sent_at: float
    data: bytes
    """Empty: a mark of another kind."""
    is_end: bool
    error: OSError | None


class SimTransport(asyncio.Transport):
    """One end. ``fate`` and ``delay`` of what it sends are drawn by the medium."""

    peer: SimTransport

    def __init__(
        self,
        medium: Medium,
        *,
        here: Address,
        there: Address,
        is_dialler: bool,
        context: contextvars.Context,
        on_lost: Callable[[SimTransport], None],
    ) -> None:
        super().__init__({"sockname": here, "peername": there, "socket": SimSocket(here, there)})
        self.here = here
        self.there = there
        self.is_dialler = is_dialler
        self.is_cut = False
        """Nothing that this end sends arrives any more."""
        self._medium = medium
        self._loop = medium.loop
        self.context = context
        self._on_lost = on_lost
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_buffered = False
        self._is_made = False
        self._flight: deque[_Segment] = deque()
        self._last_due = 0.0
        self._untaken = 0  # bytes in flight or in the peer's inbox
        self._outbox = bytearray()
        self._inbox = bytearray()
        self._closing = False
        self._lost = False
        self._is_end_asked = False
        self._is_end_seen = False
        self._is_end_told = False
        self._reading_paused = False
        self._writing_paused = False
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4

    # --- life ---------------------------------------------------------------------------------

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Tie it to its protocol: ``connection_made`` comes soon, then what has arrived.

        A connection that is reset before its dialler knew of it is made all the same, as on the
        real loop, and lost a moment later: whoever dialled goes on in between.
        """
        self.set_protocol(protocol)
        self._soon(self._make)
        if self._lost:
            reset = connection_error(errno.ECONNRESET)
            self._loop.call_at(self._medium.arrival(), self._tell_lost, reset, context=self.context)

    def _make(self) -> None:
        assert self._protocol is not None
        self._protocol.connection_made(self)
        self._is_made = True
        self._take_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets what arrives."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Stop reading, send what is written, then end."""
        if self._closing:
            return
        self._closing = True
        if not self._outbox:
            self._finish(None)

    def abort(self) -> None:
        """End at once; what is still in the outbox is lost, what is in flight is not."""
        self.fail(None)

    def fail(self, error: OSError | None) -> None:
        """Lose the connection."""
        if self._lost:
            return
        self._outbox.clear()
        self._closing = True
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        if not isinstance(error, OSError):  # the peer does not know yet
            # A kernel that closes over unread bytes resets the connection.
            code = connection_error(errno.ECONNRESET) if self._inbox else None
            self._launch(b"", is_end=code is None, error=code)
        self._inbox.clear()
        if self._protocol is None:  # not started: there is nobody to tell
            self._on_lost(self)
        else:
            self._soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        try:
            if protocol is not None:
                protocol.connection_lost(error)
        finally:
            self._on_lost(self)

    def _soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self.context)

    # --- writing ------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, or keep them in the outbox while the window is full."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__!r}")
        if self._is_end_asked:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or not data:
            return
        if not self._outbox:
            room = WINDOW_BYTES - self._untaken
            if room >= len(data):
                self._launch(bytes(data))
                return
            if room > 0:
                data = memoryview(data).cast("B")
                self._launch(bytes(data[:room]))
                data = data[room:]
        self._outbox += data
        if len(self._outbox) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call_protocol("pause_writing")

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces as one write."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """End this direction after what is written; the other one stays open."""
        if self._closing or self._is_end_asked:
            return
        self._is_end_asked = True
        if not self._outbox:
            self._launch(b"", is_end=True)

    def can_write_eof(self) -> bool:
        """A TCP connection can be half closed."""
        return True

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for room in the window."""
        return len(self._outbox)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high mark."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of ``pause_writing`` and ``resume_writing``."""
        if high is None:
            high = 4 * low if low is not None else _HIGH_WATER
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def _launch(self, data: bytes, *, is_end: bool = False, error: OSError | None = None) -> None:
        """Put a segment in flight, if the network lets it."""
        self._untaken += len(data)
        if self.is_cut:
            return
        if data and self._medium.meddle(self, data):
            return
        self.fly(data, is_end=is_end, error=error)

    def fly(self, data: bytes, *, is_end: bool = False, error: OSError | None = None) -> None:
        """Let a segment arrive after its delay, behind everything sent before it."""
        due = max(self._last_due, self._medium.arrival())
        if data and self._flight and self._medium.merges():
            last = self._flight[-1]
            if last.data:
                self._flight[-1] = last._replace(data=last.data + data)
                return
        self._last_due = due
        self._flight.append(_Segment(self._loop.time(), data, is_end, error))
        self._loop.call_at(due, self._land, context=self.peer.context)

    def _pump(self, taken: int) -> None:
        """The peer took bytes: there is room in the window again."""
        self._untaken -= taken
        if not self._outbox or self._lost:
            return
        room = WINDOW_BYTES - self._untaken
        if room > 0:
            data = bytes(self._outbox[:room])
            del self._outbox[:room]
            self._launch(data)
        if self._writing_paused and len(self._outbox) <= self._low:
            self._writing_paused = False
            self._call_protocol("resume_writing")
        if not self._outbox:
            if self._closing:
                self._finish(None)
            elif self._is_end_asked:
                self._launch(b"", is_end=True)

    def _call_protocol(self, verb: str) -> None:
        try:
            getattr(self._protocol, verb)()
        except Exception as error:  # noqa: BLE001  # the real transports report it likewise
            self._loop.call_exception_handler(
                {
                    "message": f"protocol.{verb}() failed",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )

    # --- reading ------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        """Neither paused nor closing."""
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        """Leave in the inbox what arrives."""
        if self.is_reading():
            self._reading_paused = True

    def resume_reading(self) -> None:
        """Take what arrived meanwhile, and go on."""
        if self._closing or not self._reading_paused:
            return
        self._reading_paused = False
        self._take_soon()

    def _land(self) -> None:
        """The oldest segment in flight reaches the peer."""
        if not self._flight:  # merged into an earlier one
            return
        segment = self._flight.popleft()
        peer = self.peer
        if peer._lost:
            if segment.data and not self._lost:
                self._medium.reset_later(self)  # the kernel there answers: nobody is listening
            return
        if segment.error is not None:
            peer.fail(segment.error)
            return
        peer._inbox += segment.data
        peer._is_end_seen = peer._is_end_seen or segment.is_end
        self._medium.landed(self, len(segment.data), is_end=segment.is_end, sent_at=segment.sent_at)
        peer._take()

    def _take_soon(self) -> None:
        if self._inbox or (self._is_end_seen and not self._is_end_told):
            self._soon(self._take)

    def _take(self) -> None:
        """One read: hand the protocol what is in the inbox, or the end of the stream."""
        if not self._is_made or self._reading_paused or self._closing:
            return
        if not self._inbox:
            if self._is_end_seen and not self._is_end_told:
                self._is_end_told = True
                self._read(self._take_end)
            return
        self._read(self._take_buffered if self._is_buffered else self._take_data)
        self._take_soon()

    def _read(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  # the real transports do the same
            self._loop.call_exception_handler(
                {
                    "message": "Fatal error: protocol failed on what it received.",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self._outbox.clear()
            self._closing = True
            self._finish(error)

    def _take_data(self) -> None:
        data = bytes(self._inbox[:RECEIVE_BYTES_MAX])
        del self._inbox[:RECEIVE_BYTES_MAX]
        assert isinstance(self._protocol, asyncio.Protocol)
        protocol = self._protocol
        self.peer._pump(len(data))
        protocol.data_received(data)

    def _take_buffered(self) -> None:
        assert isinstance(self._protocol, asyncio.BufferedProtocol)
        protocol = self._protocol
        buffer = memoryview(protocol.get_buffer(-1)).cast("B")
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        count = min(len(buffer), len(self._inbox))
        buffer[:count] = self._inbox[:count]
        buffer.release()
        del self._inbox[:count]
        self.peer._pump(count)
        protocol.buffer_updated(count)

    def _take_end(self) -> None:
        assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
        if not self._protocol.eof_received():
            self.close()
