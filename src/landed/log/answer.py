"""What the log may answer: yes, one of the noes, or nobody knows. Closed unions."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from landed.ids import AggregateKey, ClientId, UserId
from landed.log.event import Batch, FeedEntry

_Kind = TypeVar("_Kind", bound=type)


def _told_apart(kind: _Kind) -> _Kind:
    """Make an answer equal only to its own kind.

    A named tuple equals any tuple of the same values: a sequence in flight would equal one that is
    taken, and every answer without fields would equal every other.
    """
    kind.__eq__ = _equals  # type: ignore[assignment,method-assign]
    kind.__ne__ = _differs  # type: ignore[assignment,method-assign]
    kind.__hash__ = tuple.__hash__  # type: ignore[assignment,method-assign]
    return kind


def _equals(answer: tuple[object, ...], other: object) -> bool:
    return type(answer) is type(other) and tuple.__eq__(answer, other)


def _differs(answer: tuple[object, ...], other: object) -> bool:
    return not _equals(answer, other)


# --- Yes ----------------------------------------------------------------------------------------


@_told_apart
class Landed(NamedTuple):
    """The write is durable and readable. One new version a leg, in the order of the legs."""

    versions: tuple[int, ...]
    """Over the wire a write of several legs is not told its versions (log rule W12): then empty."""


@_told_apart
class Trimmed(NamedTuple):
    """The trim holds, or held already."""


@_told_apart
class Deleted(NamedTuple):
    """Every aggregate named is deleted."""


@_told_apart
class Page(NamedTuple):
    """A prefix of what the read selects, in ascending version order."""

    batches: tuple[Batch, ...]
    next_version: int | None
    """Where to go on. Its absence, not an empty page, ends the reading (log rule R10)."""


@_told_apart
class Details(NamedTuple):
    """An aggregate's state without its events (log rules N). Deleted ones answer too."""

    first_version: int
    """The first readable version; 0 if deleted."""
    version: int
    event_seq: int
    is_deleted: bool
    allow_recreate: bool
    allow_continuation: bool
    last_server_ms: int
    last_client_id: ClientId
    last_user_id: UserId | None


@_told_apart
class FeedPage(NamedTuple):
    """Entries after the position asked for, in feed order."""

    entries: tuple[FeedEntry, ...]
    next_after: int
    """What to ask after next; past entries that are gone, never past one that may still come."""
    is_at_end: bool
    """Nothing more was durable when the page was read."""


# --- No: this attempt changed nothing -----------------------------------------------------------
# `key` names the leg at fault; it does not travel over the wire (log rule M3), so a client has None.
# A number is None where a node did not say it; None is never 0 (pool rule CP-75).


@_told_apart
class NoEvents(NamedTuple):
    key: AggregateKey | None


@_told_apart
class ReservedType(NamedTuple):
    """An event has major type 0."""

    key: AggregateKey | None
    client_seq: int | None


@_told_apart
class SequenceTaken(NamedTuple):
    """At or below the mark, durably. By whom is another question (log rule I12)."""

    key: AggregateKey | None
    highest_seq: int | None
    attempted_seq: int | None


@_told_apart
class SequenceInFlight(NamedTuple):
    """At or below a sequence that is accepted but not yet durable (log rule I9)."""

    key: AggregateKey | None
    highest_seq: int | None
    attempted_seq: int | None


@_told_apart
class SequenceJump(NamedTuple):
    """So far above the mark that it looks like a mistake; it would close off all in between."""

    key: AggregateKey | None
    highest_seq: int | None
    attempted_seq: int | None


@_told_apart
class VersionConflict(NamedTuple):
    key: AggregateKey | None
    expected: int | None
    actual: int | None


@_told_apart
class AggregateMissing(NamedTuple):
    """Never written, or deleted, and the request does not create it."""

    key: AggregateKey | None


@_told_apart
class AggregateClosed(NamedTuple):
    """Deleted for good."""

    key: AggregateKey | None


@_told_apart
class BelowFloor(NamedTuple):
    """A read from below the first version left."""

    requested: int | None
    first_version: int | None


@_told_apart
class TrimBeyondEnd(NamedTuple):
    requested: int | None
    version: int | None


@_told_apart
class Misrouted(NamedTuple):
    """The keys lie on several shards, or there is nothing to route by."""

    is_nothing: bool
    num_shards: int | None
    detail: str


@_told_apart
class Busy(NamedTuple):
    """Shedding load; nothing was accepted."""


@_told_apart
class NotLoaded(NamedTuple):
    """What the change would be judged by is damaged in the store; nothing was accepted."""

    detail: str


@_told_apart
class NotLeader(NamedTuple):
    leader_address: str | None


Refusal = (
    NoEvents
    | ReservedType
    | SequenceTaken
    | SequenceInFlight
    | SequenceJump
    | VersionConflict
    | AggregateMissing
    | AggregateClosed
    | BelowFloor
    | TrimBeyondEnd
    | Misrouted
    | Busy
    | NotLoaded
    | NotLeader
)

# --- Nobody knows -------------------------------------------------------------------------------


@_told_apart
class Unknown(NamedTuple):
    """The step that makes it durable failed; it may or may not come to light.

    For a read: the store could not be read; nothing was changed.
    """

    detail: str


Success = Landed | Trimmed | Deleted | Page | Details | FeedPage
Answer = Success | Refusal | Unknown
