"""Events, the batches they land in, and the entries of the feed."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from landed.ids import AggregateKey, ClientId, EventId, UserId


class Event(NamedTuple):
    """An immutable fact in the log, in the field order of the protocol.

    A writer fills everything but ``event_seq``, which the log assigns whatever a writer puts there
    (log rule W11). A named tuple because a page may hold a hundred thousand of them.
    """

    client_seq: int
    """The writer's own number for it, per aggregate; the log's key. 1 and up; 0 means none."""
    event_seq: int
    """Position among the events of its aggregate, 1-based; assigned by the log."""
    event_id: EventId | None
    """The caller's key. Opaque to the log; need not be unique."""
    event_ms: int
    """The writer's time, by convention milliseconds since 1970. Never checked, never an order."""
    type_major: int
    """What kind of event it is; 1 and up, 0 is refused."""
    type_minor: int
    value: bytes
    """The payload, opaque to the log; may be empty."""
    iv: bytes | None = None
    """12 bytes if the payload is encrypted; the log then never looks into it."""

    @classmethod
    def new(
        cls,
        type_major: int,
        value: bytes,
        *,
        client_seq: int,
        event_id: UUID | None,
        type_minor: int = 0,
        event_ms: int = 0,
        iv: bytes | None = None,
    ) -> Event:
        """Make an event to be written. The two keys must be said, if only as 0 and None."""
        return cls(
            client_seq,
            0,
            None if event_id is None else EventId(event_id),
            event_ms,
            type_major,
            type_minor,
            value,
            iv,
        )


class Batch(NamedTuple):
    """The events that one write appended to one aggregate, as read back."""

    version: int
    """1-based and contiguous within one life of the aggregate."""
    client_id: ClientId
    user_id: UserId | None
    server_ms: int
    """When the log accepted it, milliseconds since 1970. Does not define order."""
    events: tuple[Event, ...]


class FeedKind(IntEnum):
    """What happened at a position of the feed."""

    DELETED = 0
    WRITTEN = 1
    TRIMMED = 3


class FeedEntry(NamedTuple):
    """One change of one aggregate, at its place in the order of the whole log."""

    position: int
    """1-based, rising, with gaps; never reused and never reordered."""
    key: AggregateKey
    kind: FeedKind
    batch: Batch | None
    """The batch written; None for the other kinds."""
    version: int
    """WRITTEN: the batch's version. TRIMMED: the first version left. DELETED: the last version."""
