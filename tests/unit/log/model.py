"""A naive model of the log, written from the sentences of log-semantics and from nothing else.

It keeps every accepted change in one plain list, and finds every answer by walking that list from
its beginning. Slow, and easy to believe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from landed.ids import AggregateKey, ClientId
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    Delete,
    Leg,
    Mutation,
    NoEvents,
    Refusal,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    Trim,
    TrimBeyondEnd,
    VersionConflict,
    Write,
)


@dataclass
class ModelBatch:
    version: int
    client: ClientId
    seqs: list[int]
    event_seqs: list[int]
    is_durable: bool


@dataclass
class Life:
    batches: list[ModelBatch] = field(default_factory=list)
    first: int = 1
    floor: int = 1
    deleted: tuple[bool, bool] | None = None
    """Whether it may be recreated, and whether counting then goes on."""


@dataclass
class Accepted:
    change: Mutation
    is_durable: bool = False


class Model:
    """The accepted changes, in order; those at the end may not be durable yet."""

    def __init__(self, seq_jump_max: int = 0) -> None:
        self.accepted: list[Accepted] = []
        self.seq_jump_max = seq_jump_max

    # --- what happens to the list

    def take(self, change: Mutation) -> tuple[int, ...] | Refusal:
        """The answer to a change: its versions (none for trims and deletes), or the refusal."""
        refusal = self.refusal(change)
        if refusal is not None:
            return refusal
        if isinstance(change, Trim) and change.keep_from <= self.lives(change.key)[-1].floor:
            return ()
        self.accepted.append(Accepted(change))
        if isinstance(change, Write):
            return tuple(self.lives(leg.key)[-1].batches[-1].version for leg in change.legs)
        return ()

    def settle(self, count: int) -> None:
        """The first ``count`` changes in flight are durable now."""
        for each in [each for each in self.accepted if not each.is_durable][:count]:
            each.is_durable = True

    def roll_back(self) -> None:
        """Nothing in flight was ever sent (C6)."""
        self.accepted = [each for each in self.accepted if each.is_durable]

    def durable(self) -> Model:
        """What readers may see (C2)."""
        visible = Model(self.seq_jump_max)
        visible.accepted = [each for each in self.accepted if each.is_durable]
        return visible

    # --- what the list says

    def lives(self, key: AggregateKey) -> list[Life]:
        """Every life the key has had, its last one last."""
        lives: list[Life] = []
        for each in self.accepted:
            change = each.change
            if isinstance(change, Trim):
                if change.key == key:
                    lives[-1].floor = change.keep_from
                continue
            for leg in change.legs:
                if leg.key != key:
                    continue
                if isinstance(change, Delete):
                    lives[-1].deleted = (leg.allow_recreate, leg.allow_continuation)  # type: ignore[union-attr]
                    continue
                if not lives or lives[-1].deleted is not None:
                    lives.append(self._next_life(lives))
                self._append(lives, change.client_id, leg, each.is_durable)  # type: ignore[arg-type]
        return lives

    def _next_life(self, lives: list[Life]) -> Life:
        if lives and lives[-1].deleted is not None and lives[-1].deleted[1]:
            first = lives[-1].batches[-1].version + 1  # D8
            return Life(first=first, floor=first)
        return Life()  # D9, and the very first life

    def _append(self, lives: list[Life], client: ClientId, leg: Leg, is_durable: bool) -> None:
        life = lives[-1]
        before = life.batches[-1:]
        goes_on = len(lives) > 1 and lives[-2].deleted is not None and lives[-2].deleted[1]
        if not before and goes_on:
            before = lives[-2].batches[-1:]
        version = before[0].version + 1 if before else 1
        event_seq = before[0].event_seqs[-1] if before else 0
        seqs = [event.client_seq for event in leg.events]
        numbers = [event_seq + n for n in range(1, len(seqs) + 1)]
        life.batches.append(ModelBatch(version, client, seqs, numbers, is_durable))

    def guard_version(self, key: AggregateKey) -> int:
        """W6: 0, or the newest version of the newest life, deleted or not."""
        lives = self.lives(key)
        return lives[-1].batches[-1].version if lives else 0

    def batches_of(self, key: AggregateKey, client: ClientId) -> list[ModelBatch]:
        return [b for life in self.lives(key) for b in life.batches if b.client == client]

    def mark(self, key: AggregateKey, client: ClientId) -> int:
        """I2, I5, I15: the highest sequence of any event ever committed, over all lives."""
        durable = [b for b in self.batches_of(key, client) if b.is_durable]
        return max((seq for b in durable for seq in b.seqs), default=0)

    # --- the checks, in their order

    def refusal(self, change: Mutation) -> Refusal | None:
        if isinstance(change, Trim):
            return self._trim(change)
        if isinstance(change, Delete):
            return self._delete(change)
        for leg in change.legs:  # W2
            if len(leg.events) == 0:
                return NoEvents(leg.key)
            for event in leg.events:
                if event.type_major == 0:
                    return ReservedType(leg.key, event.client_seq)
        for leg in change.legs:  # M3, W3
            for check in (self._exists(leg), self._guarded(leg), self._fresh(leg, change)):
                if check is not None:
                    return check
        return None

    def _exists(self, leg: Leg) -> Refusal | None:
        """W4."""
        lives = self.lives(leg.key)
        if not lives:
            return None if leg.allow_create else AggregateMissing(leg.key)
        deleted = lives[-1].deleted
        if deleted is None:
            return None
        if not deleted[0]:
            return AggregateClosed(leg.key)
        return None if leg.allow_create else AggregateMissing(leg.key)

    def _guarded(self, leg: Leg) -> Refusal | None:
        """W5."""
        current = self.guard_version(leg.key)
        if leg.expected_version is None or leg.expected_version == current:
            return None
        return VersionConflict(leg.key, leg.expected_version, current)

    def _fresh(self, leg: Leg, write: Write) -> Refusal | None:
        """I3 to I9, and the bound on jumps."""
        if not leg.enforce_sequence:
            return None
        lowest = min(event.client_seq for event in leg.events)
        highest = max(event.client_seq for event in leg.events)
        mark = self.mark(leg.key, write.client_id)
        flying = [
            max(b.seqs) for b in self.batches_of(leg.key, write.client_id) if not b.is_durable
        ]
        seen = max([mark, *flying])
        if any(each >= lowest for each in flying):  # I9
            return SequenceInFlight(leg.key, seen, lowest)
        if mark != 0 and lowest <= mark:  # I3, I8
            return SequenceTaken(leg.key, mark, lowest)
        if self.seq_jump_max and highest > seen + self.seq_jump_max:
            return SequenceJump(leg.key, seen, highest)
        return None

    def _is_live(self, key: AggregateKey) -> bool:
        lives = self.lives(key)
        return bool(lives) and lives[-1].deleted is None

    def _trim(self, trim: Trim) -> Refusal | None:
        """T1."""
        if not self._is_live(trim.key):
            return AggregateMissing(trim.key)
        newest = self.guard_version(trim.key)
        if trim.keep_from > max(newest, self.lives(trim.key)[-1].floor):
            return TrimBeyondEnd(trim.keep_from, newest)
        return None

    def _delete(self, delete: Delete) -> Refusal | None:
        """D2."""
        for leg in delete.legs:
            if not self._is_live(leg.key):
                return AggregateMissing(leg.key)
        for leg in delete.legs:
            current = self.guard_version(leg.key)
            if leg.expected_version is not None and leg.expected_version != current:
                return VersionConflict(leg.key, leg.expected_version, current)
        return None
