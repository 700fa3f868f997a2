"""One flush's worth of admitted changes, numbered, with whoever waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from landed.engines.port import Done, Staged
from landed.log import Batch, Delete, Event, FeedKind, Head, Mutation, Trim, Write
from landed.log.judge import Admitted

Pair = tuple[bytes, int]
"""A packed aggregate key and a client id as a number: builtins, because they hash in C."""

_EVENT_OVERHEAD: Final = 64
"""What an event costs besides its payload, in memory and on disk, about."""

_tuple_new = tuple.__new__


class Group:
    """Changes that share one flush: made durable, published and answered together, or failed."""

    __slots__ = ("answers", "bytes", "heads", "judged_again", "seqs", "staged")

    def __init__(self) -> None:
        self.staged: list[Staged] = []
        """In the order in which they were admitted."""
        self.answers: list[tuple[Done, object]] = []
        """What to answer, and to whom, once the group is durable."""
        self.judged_again: list[tuple[Mutation, Done]] = []
        """Requests whose answer rests on a change that is not durable yet (log rule W19)."""
        self.heads: dict[bytes, Head] = {}
        """The newest head the group gives each aggregate, by packed key."""
        self.seqs: dict[Pair, int] = {}
        """The highest client_seq of each pair's batches in the group."""
        self.bytes = 0

    def add_write(self, write: Write, steps: Admitted, now_ms: int, position: int) -> int:
        """Stage an admitted write after a feed position; return the last position it took."""
        client_id = write.client_id
        for leg, step in zip(write.legs, steps, strict=True):
            position += 1
            head = step.head
            events = _numbered(leg.events, head.event_seq - len(leg.events))
            # The tuple's own constructor: a third of the cost of the class's, on the hot path.
            batch = _tuple_new(Batch, (head.version, client_id, write.user_id, now_ms, events))
            staged = (
                leg.key,
                FeedKind.WRITTEN,
                position,
                head,
                batch,
                client_id,
                step.highest_seq,
            )
            self.staged.append(_tuple_new(Staged, staged))
            packed = leg.key.packed
            self.heads[packed] = head
            pair = (packed, client_id.int)
            seen = self.seqs.get(pair)
            if seen is None or seen < step.highest_seq:
                self.seqs[pair] = step.highest_seq
            self.bytes += size_of(leg.events)
        return position

    def add_other(self, change: Trim | Delete, steps: Admitted, position: int) -> int:
        """Stage an admitted trim or delete, likewise."""
        kind = FeedKind.TRIMMED if type(change) is Trim else FeedKind.DELETED
        for step in steps:
            position += 1
            self.staged.append(
                Staged(step.key, kind, position, step.head, None, change.client_id, 0)
            )
            self.heads[step.key.packed] = step.head
            self.bytes += _EVENT_OVERHEAD
        return position


def size_of(events: Iterable[Event]) -> int:
    """Bytes that events take, about; for bounds on memory and on the length of a flush."""
    size = 0
    for event in events:
        size += len(event.value) + _EVENT_OVERHEAD
    return size


def _numbered(events: tuple[Event, ...], event_seq: int) -> tuple[Event, ...]:
    """Give events the numbers after ``event_seq``, whatever the writer put there (log rule W11)."""
    if len(events) == 1:
        event = events[0]
        return (_tuple_new(Event, (event[0], event_seq + 1, *event[2:])),)
    return tuple(
        _tuple_new(Event, (event[0], at, *event[2:]))
        for at, event in enumerate(events, event_seq + 1)
    )
