"""Every identity on one page, so that no two of them are mixed up.

Floor 0. Three 128-bit numbers name an aggregate, one names a writer, one names a request.
"""

from __future__ import annotations

from typing import Final, NewType
from uuid import UUID

ClientId = NewType("ClientId", UUID)
"""A writer's durable identity. It names the service, never a replica and never a request."""

EventId = NewType("EventId", UUID)
"""The caller's own key, stamped on the event. The log stores it and never looks inside."""

UserId = NewType("UserId", UUID)
"""On whose behalf a writer wrote. Stored and filtered by, never interpreted."""

_PART_BYTES: Final = 16
PACKED_BYTES: Final = 3 * _PART_BYTES

_new = object.__new__  # past the constructor: one key for every request read


class AggregateKey:
    """Name one aggregate: organisation, aggregate type and aggregate id.

    All three parts must match for two keys to be the same aggregate, and every 128-bit value is
    legal in every part, zero included (log rule G1).

    The parts are kept as 48 packed bytes, because a key is hashed and compared several times for
    each write and sent and stored as bytes, while its parts are rarely looked at.
    """

    __slots__ = ("packed",)

    packed: bytes
    """48 bytes: the three parts, big-endian, one after another."""

    def __init__(self, org: UUID, type: UUID, id: UUID) -> None:
        self.packed = org.bytes + type.bytes + id.bytes

    @classmethod
    def from_packed(cls, packed: bytes) -> AggregateKey:
        """Take a key back from its 48 packed bytes.

        Raises:
            ValueError: the bytes are not exactly 48.
        """
        if len(packed) != PACKED_BYTES:
            raise ValueError(f"a packed aggregate key has {PACKED_BYTES} bytes, not {len(packed)}")
        key = _new(cls)
        key.packed = packed
        return key

    @property
    def org(self) -> UUID:
        return UUID(bytes=self.packed[:16])

    @property
    def type(self) -> UUID:
        return UUID(bytes=self.packed[16:32])

    @property
    def id(self) -> UUID:
        return UUID(bytes=self.packed[32:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AggregateKey) and self.packed == other.packed

    def __lt__(self, other: AggregateKey) -> bool:
        return self.packed < other.packed

    def __hash__(self) -> int:
        return hash(self.packed)  # which bytes remember

    def __reduce__(self) -> tuple[object, ...]:
        return (AggregateKey.from_packed, (self.packed,))

    def __repr__(self) -> str:
        return f"AggregateKey(org={self.org}, type={self.type}, id={self.id})"

    def __str__(self) -> str:
        return f"{self.org}/{self.type}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> AggregateKey:
        """Read a key from its printed form, ``org/type/id``.

        Raises:
            ValueError: the text is not three UUIDs separated by slashes.
        """
        parts = text.split("/")
        if len(parts) != 3:
            raise ValueError(f"an aggregate key is written org/type/id, three UUIDs: {text!r}")
        org, type_, id_ = (UUID(part) for part in parts)
        return cls(org, type_, id_)
