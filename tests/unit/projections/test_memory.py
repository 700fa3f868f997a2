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


async def test_what_was_never_folded_shows_the_initial_state() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    assert await _look(projection) == View(_key(1), 0, 0, 0, 0, 0, None)
    assert len(projection) == 0, "looking admits nothing"


async def test_an_answer_is_given_until_its_life_is_over_and_not_a_moment_longer() -> None:
    clock = HandClock()
    projection: MemoryProjection[int] = MemoryProjection(clock=clock)
    await projection.advance(_step())
    clock.now_ms += 99.9
    assert (await _look(projection)).answered is not None
    clock.now_ms += 0.1
    view = await _look(projection)
    assert (view.answered, view.version) == (None, 1)


async def test_a_cursor_never_goes_back_and_answers_are_taken_all_the_same() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    await projection.advance(_step(version=5))
    assert await projection.advance(_step(version=3, answers=((2, 50.0),)))
    view = await _look(projection, event=2)
    assert (view.version, view.state) == (5, 50)
    assert view.answered == Answered(30, 3, b"f")


async def test_a_record_keeps_its_answer_even_if_the_cursor_has_passed() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    await projection.advance(_step(version=5, answers=()))
    await projection.record([_step(base=2, version=3)])
    view = await _look(projection)
    assert view.version == 5
    assert view.answered == Answered(30, 3, b"f")


async def test_a_record_moves_the_cursor_by_one_version_and_from_its_own_base_only() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    await projection.record([_step(base=0, version=1)])
    assert (await _look(projection)).version == 1
    await projection.record([_step(base=1, version=7)])
    assert (await _look(projection)).version == 1
    await projection.record([_step(base=2, version=3)])
    assert (await _look(projection)).version == 1


async def test_of_two_answers_the_higher_version_and_the_later_expiry_win() -> None:
    clock = HandClock()
    projection: MemoryProjection[int] = MemoryProjection(clock=clock)
    await projection.advance(_step(version=2, answers=((1, 100.0),)))
    await projection.advance(_step(base=2, version=3, answers=((1, 10.0),)))
    clock.now_ms += 50.0
    assert (await _look(projection)).answered == Answered(30, 3, b"f")
    await projection.advance(_step(version=1, answers=((1, 500.0),)))
    clock.now_ms += 400.0
    assert (await _look(projection)).answered == Answered(30, 3, b"f")


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


async def test_a_floor_is_a_lower_bound_that_only_rises() -> None:
    projection: MemoryProjection[int] = MemoryProjection(clock=HandClock())
    await projection.advance(_step())
    await projection.raise_floor(_key(1), 40)
    await projection.raise_floor(_key(1), 30)
    view = await _look(projection)
    assert (view.client_seq, view.client_seq_floor) == (1, 40)


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
