"""The 17-byte header, and the buffer that finds frames in a stream of bytes."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from landed.wire.messages import Operation

HEADER: Final = Struct("<IIIIB")
"""Version, message type, compressed length, uncompressed length, compression; little-endian."""
HEADER_SIZE: Final = HEADER.size
FIXED_BODY_MAX: Final = 1007
"""Body of a fixed frame, both directions: 1024 less the header."""

VERSION: Final = 3
VERSION_2: Final = 2
"""The published Rust client speaks only this one; it is told so instead of being hung up on."""
_PLAIN: Final = 0
_COMPRESSED: Final = 1

_new = tuple.__new__  # past the constructor, as in packing.py

PROTOCOL_ERROR_TYPE: Final = 6
ERROR_TYPE: Final = 7

REQUESTS_FIXED: Final = frozenset({1, 2, 4, 5, 6, 7, 8, 9, 14, 1000, 1001})
"""Request types whose body is at most ``FIXED_BODY_MAX``, known and served or not."""

ANSWER_TYPES: Final = {
    Operation.DETAILS: 1,
    Operation.READ: 2,
    Operation.WRITE: 3,
    Operation.TRIM: 4,
    Operation.DELETE: 5,
    Operation.IDENTIFY: 16,
    Operation.FEED: 1000,
    Operation.PROBE: 1001,
}
"""The message type of each operation's success."""

ANSWERS_VARIABLE: Final = frozenset({2, 16, 1000})
"""Answer types that may be larger than ``FIXED_BODY_MAX``."""


class Header(NamedTuple):
    """What a frame says about itself."""

    version: int
    type: int
    length: int
    """Of the body that follows."""
    plain_length: int
    """Of the body once it is decompressed."""
    compression: int

    def flaw(self, *, body_max: int) -> str | None:
        """Say what is wrong besides version and type; None if nothing is.

        In the order of protocol section 2. A compressed body is legal only after a dictionary was
        agreed on, which this product never does.
        """
        if self.compression not in {_PLAIN, _COMPRESSED}:
            return f"unknown compression {self.compression}"
        longest = max(self.length, self.plain_length)
        if longest > body_max:
            return f"a body of {longest} bytes, and {body_max} are allowed"
        if self.compression == _COMPRESSED:
            return "a compressed body without an agreed dictionary"
        if self.length != self.plain_length:
            return "an uncompressed body with two lengths"
        return None


def frame(type: int, body: bytes, *, version: int = VERSION) -> bytes:
    """Put a header before a body."""
    size = len(body)
    return HEADER.pack(version, type, size, size, _PLAIN) + body


class FrameBuffer:
    """Bytes received, cut into frames. A frame's body is copied once, when it is whole."""

    __slots__ = ("_data", "_start")

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # where the next frame begins

    def __len__(self) -> int:
        return len(self._data) - self._start

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Append a copy of the bytes.

        What was taken is dropped here too: a sender that is always one whole frame ahead of the
        taker never lets it see that nothing is left, and the buffer would grow for ever.
        """
        if self._start:
            self._compact()
        self._data += data

    def header(self) -> Header | None:
        """Look at the next frame's header; None if it is not all here."""
        data, start = self._data, self._start
        if len(data) - start < HEADER_SIZE:
            if start:
                self._compact()
            return None
        return _new(Header, HEADER.unpack_from(data, start))

    def take(self, length: int) -> bytes | None:
        """Take the body that follows the header just seen; None if it is not all here."""
        data, start = self._data, self._start + HEADER_SIZE
        end = start + length
        if len(data) < end:
            return None
        self._start = end
        return memoryview(data)[start:end].tobytes()

    def clear(self) -> None:
        """Drop everything; the stream's position is lost."""
        self._data.clear()
        self._start = 0

    def _compact(self) -> None:
        """Drop what was taken. Cheap: a bytearray gives up its front without moving the rest."""
        del self._data[: self._start]
        self._start = 0
