"""One flush's worth of admitted changes, numbered, with whoever waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from landed.engines.port import Done, Staged
from landed.engines.standing import Standing
from landed.log import Answer, Batch, Delete, Event, FeedKind, Head, Mutation, Trim, Write
from landed.log.judge import Admitted

Pair = tuple[bytes, int]
"""A packed aggregate key and a client id as a number: builtins, because they hash in C."""

_EVENT_OVERHEAD: Final = 64
"""What an event costs besides its payload, in memory and on disk, about."""

_WRITTEN: Final = FeedKind.WRITTEN  # an enumeration's members are looked up slowly

_tuple_new = tuple.__new__


class Group:
    """Changes that share one flush: made durable, published and answered together, or failed."""

    __slots__ = ("_gathered", "_seqs", "answers", "bytes", "has_ends", "judged_again", "staged")

    def __init__(self) -> None:
        self.staged: list[Staged] = []
        """In the order in which they were admitted."""
        self.answers: list[tuple[Done, Answer]] = []
        """What to answer, and to whom, once the group is durable."""
        self.judged_again: list[tuple[Mutation, Done]] = []
        """Requests whose answer rests on a change that is not durable yet (log rule W19)."""
        self.bytes = 0
        self.has_ends = False
        """Whether one of them is a trim or a delete."""
        self._seqs: dict[Pair, int] = {}
        self._gathered = 0

    @property
    def heads(self) -> dict[bytes, Head]:
        """The newest head the group gives each aggregate, by packed key."""
        return {staged.key.packed: staged.head for staged in self.staged}

    def highest_seq(self, pair: Pair) -> int | None:
        """The highest client_seq of a pair's batches in the group; None if it has none.

        Gathered when somebody asks, each batch once: most groups are never asked.
        """
        seqs = self._seqs
        for staged in self.staged[self._gathered :]:
            if staged.batch is not None:
                one = (staged.key.packed, staged.client_id.int)
                seqs[one] = max(seqs.get(one, 0), staged.mark)
        self._gathered = len(self.staged)
        return seqs.get(pair)

    def add_write(
        self,
        write: Write,
        steps: Admitted,
        standings: Sequence[Standing],
        now_ms: int,
        position: int,
    ) -> int:
        """Stage an admitted write after a feed position; return the last position it took.

        Named tuples are made by the tuple's own constructor here, a third of the cost: this is the
        hot path, and their fields stand in their order a few lines away.
        """
        client_id, legs, user_id = write
        for leg, step, standing in zip(legs, steps, standings, strict=True):
            key, head, highest_seq = step
            position += 1
            events = leg.events
            _, _, version, event_seq, _, _, _, _, _, _ = head
            numbered = _numbered(events, event_seq - len(events))
            batch = _tuple_new(Batch, (version, client_id, user_id, now_ms, numbered))
            staged = (key, _WRITTEN, position, head, batch, client_id, highest_seq, standing)
            self.staged.append(_tuple_new(Staged, staged))
            self.bytes += size_of(events)
        return position

    def add_other(
        self,
        change: Trim | Delete,
        steps: Admitted,
        standings: Sequence[Standing],
        position: int,
    ) -> int:
        """Stage an admitted trim or delete, likewise."""
        self.has_ends = True
        kind = FeedKind.TRIMMED if type(change) is Trim else FeedKind.DELETED
        for step, standing in zip(steps, standings, strict=True):
            position += 1
            self.staged.append(
                Staged(step.key, kind, position, step.head, None, change.client_id, 0, standing)
            )
            self.bytes += _EVENT_OVERHEAD
        return position


def size_of(events: Sequence[Event]) -> int:
    """Bytes that events take, about; for bounds on memory and on the length of a flush."""
    if len(events) == 1:
        return len(events[0].value) + _EVENT_OVERHEAD
    return sum([len(event.value) for event in events]) + _EVENT_OVERHEAD * len(events)


def _numbered(events: tuple[Event, ...], event_seq: int) -> tuple[Event, ...]:
    """Give events the numbers after ``event_seq``, whatever the writer put there (log rule W11)."""
    numbered = []
    for client_seq, _, event_id, event_ms, type_major, type_minor, value, iv in events:
        event_seq += 1
        event = (client_seq, event_seq, event_id, event_ms, type_major, type_minor, value, iv)
        numbered.append(_tuple_new(Event, event))
    return tuple(numbered)


def size_of_change(change: Mutation) -> int:
    """The same of a whole request."""
    if isinstance(change, Write):
        return sum(size_of(leg.events) for leg in change.legs)
    return _EVENT_OVERHEAD
