"""The rules, in their order; nowhere else.

Each function takes a request and the accepted tail (every change that passed, durable or not) and
says what the change would make of it, or why not. Nothing here changes anything: an engine stages
the result, and a refusal therefore leaves no trace (log rules W17, I14).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from landed.ids import AggregateKey, ClientId
from landed.log.answer import (
    AggregateClosed,
    AggregateMissing,
    NoEvents,
    Refusal,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    TrimBeyondEnd,
    VersionConflict,
)
from landed.log.event import Event
from landed.log.head import Head, Life
from landed.log.write import Delete, Trim, Write

_new = tuple.__new__  # past the constructor, a third of the cost: one of each for every write
_LIVE: Final = Life.LIVE  # an enumeration's members are looked up slowly
_DELETED: Final = Life.DELETED


class Tail(Protocol):
    """The accepted tail, as the law sees it."""

    def head(self, key: AggregateKey) -> Head:
        """The head with every accepted change in it; ``NEVER`` if there is none."""

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        """The highest client_seq ever committed by the pair; 0 if none."""

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        """The highest client_seq of the pair's batches that are not durable yet; None if none."""


class Step(NamedTuple):
    """What an admitted change makes of one aggregate."""

    key: AggregateKey
    head: Head
    highest_seq: int
    """The highest client_seq of the batch, for the pair's mark; 0 for trims and deletes."""


Admitted = tuple[Step, ...]
"""One step a leg, in the order of the legs. Empty: admitted and without effect."""


def judge_write(write: Write, tail: Tail, *, now_ms: int, seq_jump_max: int) -> Admitted | Refusal:
    """Say whether a write may be appended, and what it makes of each aggregate.

    The guard comes before the sequence because a writer with a stale view must learn of the
    conflict, not of a duplicate: obeying the wrong one doubles the write.

    Args:
        write: one or more legs, each key once.
        tail: the accepted tail; every aggregate and pair named is known to it.
        now_ms: server time to stamp, milliseconds since 1970.
        seq_jump_max: how far above the mark an enforced sequence may lie; 0 for no bound.

    Returns:
        One step a leg, or the first refusal: shape of all legs first, then leg by leg.

    Source: log rules W2 to W8, I3 to I9, M1, M3; mission 1, "Why the ambiguous arm works".
    """
    client_id, legs, _ = write
    for leg in legs:
        events = leg.events
        if not events:
            return NoEvents(leg.key)
        for event in events:
            if event.type_major == 0:
                return ReservedType(leg.key, event.client_seq)
    steps = []
    for key, events, expected_version, allow_create, enforce_sequence in legs:
        head = tail.head(key)
        lowest, highest = _span(events)
        refusal = None if head.life is _LIVE else _existence(key, allow_create, head)
        if refusal is None and expected_version is not None:
            refusal = _guard(key, expected_version, head)
        if refusal is None and enforce_sequence:
            refusal = _sequence(key, client_id, lowest, highest, tail, seq_jump_max)
        if refusal is not None:
            return refusal
        steps.append(_new(Step, (key, _appended(head, len(events), write, now_ms), highest)))
    return tuple(steps)


def judge_delete(delete: Delete, tail: Tail, *, now_ms: int) -> Admitted | Refusal:
    """Say whether aggregates may be deleted, all or none (log rules D2 to D4).

    A missing aggregate anywhere beats a conflict anywhere.
    """
    for leg in delete.legs:
        if tail.head(leg.key).life is not _LIVE:
            return AggregateMissing(leg.key)
    steps = []
    for leg in delete.legs:
        head = tail.head(leg.key)
        refusal = _guard(leg.key, leg.expected_version, head)
        if refusal is not None:
            return refusal
        ended = head._replace(
            life=_DELETED,
            allow_recreate=leg.allow_recreate,
            allow_continuation=leg.allow_continuation,
            last_ms=now_ms,
            last_client=delete.client_id,
            last_user=delete.user_id,
        )
        steps.append(Step(leg.key, ended, 0))
    return tuple(steps)


def judge_trim(trim: Trim, tail: Tail, *, now_ms: int) -> Admitted | Refusal:
    """Say whether the floor of an aggregate may rise (log rules T1 to T3).

    The floor only moves up; a trim at or below it succeeds and changes nothing.
    """
    head = tail.head(trim.key)
    if head.life is not _LIVE:
        return AggregateMissing(trim.key)
    if trim.keep_from <= head.floor:
        return ()
    if trim.keep_from > head.version:
        return TrimBeyondEnd(trim.keep_from, head.version)
    raised = head._replace(
        floor=trim.keep_from,
        last_ms=now_ms,
        last_client=trim.client_id,
        last_user=trim.user_id,
    )
    return (Step(trim.key, raised, 0),)


def _existence(key: AggregateKey, allow_create: bool, head: Head) -> Refusal | None:
    life = head.life
    if life is _DELETED and not head.allow_recreate:
        return AggregateClosed(key)
    if life is not _LIVE and not allow_create:
        return AggregateMissing(key)
    return None


def _guard(key: AggregateKey, expected: int | None, head: Head) -> Refusal | None:
    """Compare with the newest version, of a deleted aggregate the one at deletion (W5, W6)."""
    if expected is not None and expected != head.version:
        return VersionConflict(key, expected, head.version)
    return None


def _span(events: tuple[Event, ...]) -> tuple[int, int]:
    """The lowest and the highest client_seq: one is checked, the other recorded (I6)."""
    if len(events) == 1:
        seq = events[0].client_seq
        return seq, seq
    seqs = [event.client_seq for event in events]
    return min(seqs), max(seqs)


def _sequence(
    key: AggregateKey,
    client_id: ClientId,
    lowest: int,
    highest: int,
    tail: Tail,
    jump_max: int,
) -> Refusal | None:
    """Compare an enforced leg with the mark and with what is in flight (I3, I9)."""
    mark = tail.mark(key, client_id)
    in_flight = tail.in_flight(key, client_id)
    highest_seen = mark if in_flight is None else max(mark, in_flight)
    if in_flight is not None and in_flight >= lowest:
        return SequenceInFlight(key, highest_seen, lowest)
    # A mark of 0 counts as absent: 0 is not a sequence (I8).
    if mark and lowest <= mark:
        return SequenceTaken(key, mark, lowest)
    if jump_max and highest > highest_seen + jump_max:
        return SequenceJump(key, highest_seen, highest)
    return None


def _appended(head: Head, count: int, write: Write, now_ms: int) -> Head:
    """The head after one more batch: the same life, a first one, or a new one (W10, W11, D8, D9)."""
    life, incarnation, version, event_seq, floor, _, allow_continuation, _, _, _ = head
    if life is _LIVE:
        version, event_seq = version + 1, event_seq + count
    elif allow_continuation:
        incarnation, version, event_seq = incarnation + 1, version + 1, event_seq + count
        floor = version
    else:
        incarnation, version, event_seq, floor = incarnation + 1, 1, count, 1
    client_id, _, user_id = write
    made = (_LIVE, incarnation, version, event_seq, floor, False, False, now_ms, client_id, user_id)
    return _new(Head, made)
