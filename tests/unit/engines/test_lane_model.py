"""A lane against the naive model of the law: held, failed and settled flushes, small caches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from landed.conformance.trial import A, leg
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.errors import StorageError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    Answer,
    BelowFloor,
    Deleted,
    Details,
    GetDetails,
    Landed,
    Mutation,
    NoEvents,
    Page,
    Read,
    ReadFilters,
    TrimBeyondEnd,
    Trimmed,
    Unknown,
    Write,
)
from tests.unit.engines.scripted import ScriptedStore, open_scripted
from tests.unit.log.changes import KEYS, long_history
from tests.unit.log.model import Model

JUMP_MAX = 6
LIMITS = replace(Limits(), client_seq_jump_max=JUMP_MAX)


async def assert_readers_see(lane: Lane, durable: Model, key: AggregateKey) -> None:
    lives = durable.lives(key)
    details = await ask(lane, GetDetails(key))
    read = await ask(lane, Read(key))
    if not lives:
        assert details == read == AggregateMissing(key)
        return
    last = lives[-1]
    assert isinstance(details, Details)
    assert (details.version, details.event_seq, details.is_deleted) == (
        last.batches[-1].version,
        last.batches[-1].event_seqs[-1],
        last.deleted is not None,
    )
    if last.deleted is not None:
        assert read == AggregateMissing(key)
        return
    if last.floor > 1:
        assert read == BelowFloor(1, last.floor)
    page = await ask(lane, Read(key, ReadFilters(last.floor)))
    assert isinstance(page, Page)
    read_back = [
        (b.version, b.client_id, [(e.client_seq, e.event_seq) for e in b.events])
        for b in page.batches
    ]
    expected = [
        (b.version, b.client, list(zip(b.seqs, b.event_seqs, strict=True)))
        for b in last.batches
        if b.version >= last.floor
    ]
    assert read_back == expected


def rests_on_flight(answer: object, change: Mutation, model: Model) -> bool:
    """Whether the lane may put the answer off until what is in flight has settled (W19)."""
    in_flight = [each.change for each in model.accepted if not each.is_durable]
    named = {
        leg.key if hasattr(leg, "key") else leg
        for each in in_flight
        for leg in (each.legs if hasattr(each, "legs") else (each,))
    }
    mine = {leg.key for leg in change.legs} if hasattr(change, "legs") else {change.key}
    is_soft = isinstance(answer, (AggregateClosed, AggregateMissing, TrimBeyondEnd)) or answer == ()
    return is_soft and not isinstance(answer, Write) and bool(named & mine)


async def run(history: list[Mutation | int | None], limits: Limits) -> int:
    """Play a history; a number flushes all that is in flight, None makes that flush fail."""
    store = ScriptedStore(limits)
    lane, _ = await open_scripted(limits, store=store)
    model = Model(JUMP_MAX)
    pending: list[tuple[asyncio.Future[Answer], object]] = []
    checked = 0
    lane.gate.hold()
    for step in [*history, 1]:
        if isinstance(step, int) or step is None:
            assert await ask(lane, Write(A, (leg(KEYS[0]),))) == NoEvents(KEYS[0]), "all are judged"
            if step is None and any(not each.is_durable for each in model.accepted):
                lane.gate.fails_next = StorageError("made to fail")
            lane.gate.release()
            answers = [await answer for answer, _ in pending]
            for answer, (_, expected) in zip(answers, pending, strict=True):
                assert answer == (expected if step is not None else Unknown(_detail(answer)))
            if step is None:
                model.roll_back()
            else:
                model.settle(len(model.accepted))
            pending.clear()
            for key in KEYS:
                await assert_readers_see(lane, model.durable(), key)
            lane.gate.hold()
            continue
        before = list(model.accepted)
        expected = model.take(step)
        admitted = len(model.accepted) > len(before)
        if not admitted and rests_on_flight(expected, step, model):
            model.accepted = before
            continue  # put off: what it is answered in the end has obligations of its own
        answer = ask(lane, step)
        if not admitted:
            assert await answer == (Trimmed() if expected == () else expected)
            checked += 1
        elif isinstance(step, Write):
            pending.append((answer, Landed(expected)))  # type: ignore[arg-type]
        else:
            pending.append((answer, Trimmed() if hasattr(step, "keep_from") else Deleted()))
    lane.gate.release()
    await lane.close()
    return checked


def _detail(answer: object) -> str:
    assert isinstance(answer, Unknown), answer
    return answer.detail


@pytest.mark.scenario("W9", "C2", "C6", "I9", "I17")
@pytest.mark.parametrize(
    "limits",
    [LIMITS, replace(LIMITS, cached_heads_max=0, cached_marks_max=0)],
    ids=["warm", "cold"],
)
async def test_a_lane_agrees_with_the_naive_model(limits: Limits) -> None:
    checked = 0
    for seed in range(30):
        checked += await run(long_history(Random(seed).randrange(2**32), steps=50), limits)
    assert checked > 300, "most refusals are compared"
