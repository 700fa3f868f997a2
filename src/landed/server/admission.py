"""How many request bytes a server holds in memory, and who has to wait for room."""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """Something that can go on reading once there is room."""

    def make_room(self) -> None: ...


class Admission:
    """Count request bytes over all connections: those of unfinished requests and of running ones.

    Above the bound nobody reads on, until answers have made room. If nothing is running, no answer
    will ever do that: all the bytes belong to requests that are not complete. Then one connection
    at a time is favoured and reads its request to the end. Memory is thus bounded by the bound plus
    one request, and a server full of half-sent requests still makes progress.
    """

    __slots__ = ("_bytes_max", "_favoured", "_running", "_waiting", "held")

    held: int
    """Request bytes in memory."""

    def __init__(self, bytes_max: int) -> None:
        self.held = 0
        self._bytes_max = bytes_max
        self._running = 0
        self._waiting: dict[Reader, None] = {}
        self._favoured: Reader | None = None

    @property
    def is_full(self) -> bool:
        return self.held > self._bytes_max

    @property
    def waiting(self) -> int:
        """Connections that do not read because of the bound."""
        return len(self._waiting)

    def arrived(self, size: int) -> None:
        """Count bytes read from a socket."""
        self.held += size

    def started(self, size: int) -> None:
        """Say that so many of the bytes now belong to a running request."""
        self._running += size

    def finished(self, size: int) -> None:
        """Let go of the bytes of answered requests, and wake those who wait if there is room."""
        self._running -= size
        self.held -= size
        self._wake()

    def dropped(self, size: int) -> None:
        """Let go of bytes that never became a request."""
        self.held -= size
        self._wake()

    def must_wait(self, reader: Reader) -> bool:
        """Say whether a reader that wants more bytes has to stop reading until ``make_room``."""
        if self.held <= self._bytes_max or reader is self._favoured:
            return False
        if self._favoured is None and not self._running:
            self._favoured = reader
            return False
        self._waiting[reader] = None
        return True

    def leave(self, reader: Reader) -> None:
        """Say that a reader's request is complete, or that it is gone: the favour passes on."""
        self._waiting.pop(reader, None)
        if reader is self._favoured:
            self._favoured = None
            self._wake()

    def _wake(self) -> None:
        if not self._waiting:
            return
        if self.held <= self._bytes_max:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.make_room()
        elif self._favoured is None and not self._running:
            self._favoured = next(iter(self._waiting))
            del self._waiting[self._favoured]
            self._favoured.make_room()
