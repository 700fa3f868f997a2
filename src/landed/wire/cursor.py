"""MessagePack read by hand, in every form a sender may choose.

The slow way in: it runs only where the fast reader refused a body or was not sure of it. Unlike a
general reader it never builds what nobody asked for, so a length prefix costs nothing by itself.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

VALUES_MAX: Final = 262_144
"""Array and map elements read by hand in one body: about half a second of work at most. Every
published sender writes the form that the fast reader takes, at any size."""

_UNSIGNED: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_BIN: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_STR: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY: Final = {0xDC: 2, 0xDD: 4}
_MAP: Final = {0xDE: 2, 0xDF: 4}
_NIL: Final = 0xC0
_FALSE: Final = 0xC2
_TRUE: Final = 0xC3


class MalformedBodyError(ValueError):
    """A body is not what its message type promises. Internal: a connection turns it into more."""


class Cursor:
    """Read values one after another. Every method raises MalformedBodyError on anything else."""

    __slots__ = ("_data", "_pos", "_values")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0
        self._values = 0

    def is_nil(self) -> bool:
        """Say whether a nil comes next, and step over it if so."""
        if self._peek() != _NIL:
            return False
        self._pos += 1
        return True

    def flag(self) -> bool:
        """Read a boolean; an integer is none."""
        byte = self._peek()
        if byte not in {_FALSE, _TRUE}:
            raise self._unexpected("a boolean")
        self._pos += 1
        return byte == _TRUE

    def integer(self) -> int:
        """Read an integer of 0 and up, of any width, signed formats included."""
        byte = self._peek()
        if byte < 0x80:
            self._pos += 1
            return byte
        if byte in _UNSIGNED:
            return self._number(_UNSIGNED[byte])
        if byte in _SIGNED:
            start, size = self._pos, _SIGNED[byte]
            value = self._number(size)
            if value >> (8 * size - 1) == 0:
                return value
            self._pos = start
        raise self._unexpected("an integer of 0 and up")

    def id_bytes(self) -> bytes:
        """Read a 128-bit number: 16 bytes as bin8, or an integer."""
        if self._peek() != 0xC4:
            return self.integer().to_bytes(16, "big")
        data = self._sized(_BIN[0xC4])
        if len(data) != 16:
            raise self._unexpected("16 bytes")
        return data

    def id(self) -> UUID:
        """Read a 128-bit number as a UUID."""
        return UUID(bytes=self.id_bytes())

    def payload(self) -> bytes:
        """Read bytes: bin, str, or an array of integers."""
        byte = self._peek()
        if byte in _BIN:
            return self._sized(_BIN[byte])
        if byte in _STR or 0xA0 <= byte <= 0xBF:
            return self._text_bytes(byte)
        return bytes(self.byte_list())

    def byte_list(self) -> list[int]:
        """Read bytes whose own form is an array of integers; bin will do."""
        byte = self._peek()
        if byte in _BIN:
            return list(self._sized(_BIN[byte]))
        values = [self.integer() for _ in range(self.array())]
        if values and max(values) > 0xFF:
            raise self._unexpected("integers below 256")
        return values

    def text(self) -> str:
        """Read a UTF-8 string."""
        byte = self._peek()
        if not (byte in _STR or 0xA0 <= byte <= 0xBF):
            raise self._unexpected("a string")
        try:
            return self._text_bytes(byte).decode()
        except UnicodeDecodeError:
            raise MalformedBodyError("a string is not UTF-8") from None

    def array(self) -> int:
        """Read an array's header; returns how many elements follow."""
        byte = self._peek()
        if 0x90 <= byte <= 0x9F:
            self._pos += 1
            return self._counted(byte & 0x0F, bytes_each=1)
        if byte in _ARRAY:
            return self._counted(self._number(_ARRAY[byte]), bytes_each=1)
        raise self._unexpected("an array")

    def map(self) -> int:
        """Read a map's header; returns how many pairs follow."""
        byte = self._peek()
        if 0x80 <= byte <= 0x8F:
            self._pos += 1
            return self._counted(byte & 0x0F, bytes_each=2)
        if byte in _MAP:
            return self._counted(self._number(_MAP[byte]), bytes_each=2)
        raise self._unexpected("a map")

    def _counted(self, count: int, *, bytes_each: int) -> int:
        """Refuse a count that the remaining bytes cannot hold, before anyone believes it."""
        if count * bytes_each > len(self._data) - self._pos:
            raise MalformedBodyError(f"{count} elements are announced, more than the body holds")
        self._values += count
        if self._values > VALUES_MAX:
            raise MalformedBodyError(f"more than {VALUES_MAX} values in an unusual form")
        return count

    def _peek(self) -> int:
        if self._pos >= len(self._data):
            raise MalformedBodyError("the body ends too early")
        return self._data[self._pos]

    def _number(self, size: int) -> int:
        """Read what follows a marker byte as a big-endian number of ``size`` bytes."""
        start = self._pos + 1
        end = start + size
        if end > len(self._data):
            raise MalformedBodyError("the body ends too early")
        self._pos = end
        return int.from_bytes(self._data[start:end], "big")

    def _sized(self, size: int) -> bytes:
        return self._bytes(self._number(size))

    def _text_bytes(self, byte: int) -> bytes:
        if byte in _STR:
            return self._sized(_STR[byte])
        self._pos += 1
        return self._bytes(byte & 0x1F)

    def _bytes(self, length: int) -> bytes:
        end = self._pos + length
        if end > len(self._data):
            raise MalformedBodyError(f"{length} bytes are announced, more than the body holds")
        data = self._data[self._pos : end]
        self._pos = end
        return data

    def _unexpected(self, wanted: str) -> MalformedBodyError:
        return MalformedBodyError(f"{wanted} is expected at byte {self._pos}")
