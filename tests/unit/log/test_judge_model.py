"""The law against a naive model: random changes that settle, fly, or are rolled back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from landed.ids import AggregateKey, ClientId
from landed.log import (
    NEVER,
    AggregateClosed,
    AggregateMissing,
    Delete,
    Head,
    Mutation,
    NoEvents,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    Trim,
    TrimBeyondEnd,
    VersionConflict,
    Write,
)
from landed.log import Life as HeadLife
from landed.log.judge import Admitted, judge_delete, judge_trim, judge_write
from tests.unit.log.changes import KEYS, histories, long_history
from tests.unit.log.model import Model

JUMP_MAX = 6


class SimpleTail:
    """The accepted tail as plain as it can be: durable state, and steps in flight after it."""

    def __init__(self) -> None:
        self.heads: dict[AggregateKey, Head] = {}
        self.marks: dict[tuple[AggregateKey, ClientId], int] = {}
        self.flying: list[tuple[Mutation, Admitted]] = []

    def head(self, key: AggregateKey) -> Head:
        for _, steps in reversed(self.flying):
            for step in steps:
                if step.key == key:
                    return step.head
        return self.heads.get(key, NEVER)

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        return self.marks.get((key, client_id), 0)

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        seqs = [
            step.highest_seq
            for change, steps in self.flying
            for step in steps
            if isinstance(change, Write) and change.client_id == client_id and step.key == key
        ]
        return max(seqs, default=None)

    def settle(self, count: int) -> None:
        for change, steps in self.flying[:count]:
            for step in steps:
                self.heads[step.key] = step.head
                if isinstance(change, Write):
                    pair = (step.key, change.client_id)
                    self.marks[pair] = max(self.marks.get(pair, 0), step.highest_seq)
        del self.flying[:count]


def judge(change: Mutation, tail: SimpleTail) -> object:
    if isinstance(change, Write):
        return judge_write(change, tail, now_ms=1, seq_jump_max=JUMP_MAX)
    if isinstance(change, Trim):
        return judge_trim(change, tail, now_ms=1)
    assert isinstance(change, Delete)
    return judge_delete(change, tail, now_ms=1)


def assert_same_state(tail: SimpleTail, model: Model) -> None:
    for key in KEYS:
        head, lives = tail.head(key), model.lives(key)
        assert head.incarnation == len(lives)
        if not lives:
            assert head == NEVER
            continue
        last = lives[-1]
        assert head.version == last.batches[-1].version
        assert head.event_seq == last.batches[-1].event_seqs[-1]
        assert head.floor == last.floor
        assert (head.life is HeadLife.DELETED) == (last.deleted is not None)
        if last.deleted is not None:
            assert (head.allow_recreate, head.allow_continuation) == last.deleted


@pytest.mark.scenario("W3", "I3", "M1", "C6", "D2", "T1")
@given(histories())
@settings(max_examples=60, deadline=None)
def test_the_law_agrees_with_a_naive_model(history: list[Mutation | int | None]) -> None:
    compare(history)


@pytest.mark.scenario("W3", "I3", "M1", "C6", "D2", "T1")
def test_the_law_agrees_with_a_naive_model_over_long_histories() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        seen += compare(long_history(seed))
    kinds = {
        *(NoEvents, ReservedType, SequenceTaken, SequenceInFlight, SequenceJump, VersionConflict),
        *(AggregateMissing, AggregateClosed, TrimBeyondEnd),
    }
    rare = {name for name in {kind.__name__ for kind in kinds} if seen[name] < 20}
    assert rare == set(), f"the histories must provoke every answer: {seen}"
    assert min(seen["admitted"], seen["without effect"]) > 100


def compare(history: list[Mutation | int | None]) -> Counter[str]:
    seen: Counter[str] = Counter()
    tail, model = SimpleTail(), Model(JUMP_MAX)
    for step in history:
        if step is None:
            tail.flying.clear()
            model.roll_back()
        elif isinstance(step, int):
            tail.settle(step)
            model.settle(step)
        else:
            result, expected = judge(step, tail), model.take(step)
            if type(result) is not tuple:
                seen[type(result).__name__] += 1
                assert result == expected
                continue
            assert type(expected) is tuple
            if isinstance(step, Write):
                assert tuple(step.head.version for step in result) == expected
            seen["admitted" if result else "without effect"] += 1
            if result:
                tail.flying.append((step, result))
        assert_same_state(tail, model)
    for life in (life for key in KEYS for life in model.lives(key)):
        versions = [batch.version for batch in life.batches]
        assert versions == list(range(life.first, life.first + len(versions)))  # W10
        numbers = [number for batch in life.batches for number in batch.event_seqs]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # W11
    return seen
