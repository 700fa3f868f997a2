"""A projection in memory: bounded, and never a cursor without its answers."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.accounts.domain import Accounts, account_key
from landed.clock import MonotonicMs, WallMs
from landed.ids import AggregateKey, EventId
from landed.projections import Advance, Answered, Entry, MemoryProjection, View

DOMAIN = Accounts()


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def wall_ms(self) -> WallMs:
        raise AssertionError("no host's wall clock enters")

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self.now_ms)


def _key(number: int) -> AggregateKey:
    return account_key(UUID(int=number))


def _id(number: int) -> EventId:
    return EventId(UUID(int=100 + number))


def _step(
    number: int = 1,
    *,
    base: int = 0,
    version: int = 1,
    answers: tuple[tuple[int, float], ...] = ((1, 100.0),),
) -> Advance[int]:
    entries = tuple(
        Entry(_id(n), Answered(version * 10, version, b"f"), life) for n, life in answers
    )
    return Advance(_key(number), base, version * 10, version, version, 5, entries)


async def _look(projection: MemoryProjection[int], number: int = 1, event: int = 1) -> View[int]:
    (view,) = await projection.load((_key(number),), _id(event), DOMAIN)
    return view


async def test_looking_at_what_was_never_folded_admits_nothing() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    assert (await _look(projection)).version == 0
    assert len(projection) == 0


async def test_it_is_bounded_and_evicts_the_one_that_was_not_touched_longest() -> None:
    projection: MemoryProjection[int] = MemoryProjection(aggregates_max=2, clock=HandClock())
    await projection.advance(_step(1))
    await projection.advance(_step(2))
    await _look(projection, 1)
    await projection.advance(_step(3))
    assert len(projection) == 2
    assert [(await _look(projection, n)).version for n in (1, 2, 3)] == [1, 0, 1]


async def test_an_aggregate_goes_with_its_answers_and_never_without() -> None:
    projection: MemoryProjection[int] = MemoryProjection(aggregates_max=1, clock=HandClock())
    await projection.advance(_step(1))
    await projection.advance(_step(2))
    assert (await _look(projection, 1)).answered is None
    assert not await projection.advance(_step(1, base=1, version=2)), "the catch-up starts over"
    assert (await _look(projection, 1)).version == 0
    await projection.record([_step(1, base=1, version=2)])
    assert (await _look(projection, 1)).version == 0, "no tail on an empty state"


async def test_expired_answers_do_not_pile_up() -> None:
    clock = HandClock()
    projection: MemoryProjection[int] = MemoryProjection(clock=clock)
    for number in range(10_000):
        await projection.advance(_step(base=number, version=number + 1, answers=((number, 100.0),)))
        clock.now_ms += 1.0
    assert len(projection._aggregates[_key(1)].answers) <= 200


@pytest.mark.parametrize(("log", "epoch", "left"), [(1, 0, 1), (2, 0, 0), (1, 1, 0)])
async def test_another_log_or_a_restored_one_is_folded_anew(
    log: int, epoch: int, left: int
) -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    await projection.meet(log_id=UUID(int=1), restore_epoch=0)
    await projection.advance(_step())
    await projection.meet(log_id=UUID(int=log), restore_epoch=epoch)
    assert len(projection) == left


def test_a_projection_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MemoryProjection(aggregates_max=0)
