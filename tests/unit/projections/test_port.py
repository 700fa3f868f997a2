"""What any projection must do, whether replicas fold for themselves or share PostgreSQL."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from landed.accounts.domain import Accounts, account_key
from landed.clock import MonotonicMs, WallMs
from landed.ids import AggregateKey, ClientId, EventId
from landed.projections import Advance, Answered, Entry, MemoryProjection, View
from landed.projections.port import Projection

DOMAIN = Accounts()
CLIENT = ClientId(UUID(int=77))
LOG = UUID(int=1)


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def wall_ms(self) -> WallMs:
        raise AssertionError("no host's wall clock enters")

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self.now_ms)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["memory", "postgres"])
def projection(request: pytest.FixtureRequest, clock: HandClock) -> Projection[int]:
    if request.param == "memory":
        return MemoryProjection(clock=clock)
    states = request.getfixturevalue("shared_states")
    return states.projection(states.name(), CLIENT, lambda: clock.now_ms)  # type: ignore[no-any-return]


def key(number: int = 1) -> AggregateKey:
    return account_key(UUID(int=number))


def id_of(number: int) -> EventId:
    return EventId(UUID(int=100 + number))


def step(
    number: int = 1,
    *,
    base: int = 0,
    version: int = 1,
    answers: tuple[tuple[int, float], ...] = ((1, 100.0),),
    **changes: Any,
) -> Advance[int]:
    entries = tuple(
        Entry(id_of(n), Answered(version * 10, version, b"f"), life) for n, life in answers
    )
    made = Advance(key(number), base, version * 10, version, version, 5, entries)
    return made._replace(**changes)


async def met(projection: Projection[int], *, log: int = 1, epoch: int = 0) -> Projection[int]:
    await projection.meet(log_id=UUID(int=log), restore_epoch=epoch)
    return projection


async def look(projection: Projection[int], number: int = 1, event: int = 1) -> View[int]:
    (view,) = await projection.load((key(number),), id_of(event), DOMAIN)
    return view


async def test_what_was_never_folded_shows_the_initial_state(projection) -> None:
    assert await look(projection) == View(key(1), 0, 0, 0, 0, 0, None), "even before it met a log"
    assert await look(await met(projection)) == View(key(1), 0, 0, 0, 0, 0, None)


async def test_an_answer_is_given_until_its_life_is_over_and_not_a_moment_longer(
    projection, clock
) -> None:
    await (await met(projection)).advance(step())
    clock.now_ms += 99.9
    assert (await look(projection)).answered is not None
    clock.now_ms += 0.1
    view = await look(projection)
    assert (view.answered, view.version) == (None, 1)


async def test_a_look_keeps_the_order_it_was_asked_in(projection) -> None:
    await (await met(projection)).record([step(3), step(2)])
    keys = (key(2), key(1), key(3))
    views = await projection.load(keys, id_of(1), DOMAIN)
    assert [(view.key, view.version) for view in views] == [(key(2), 1), (key(1), 0), (key(3), 1)]


async def test_a_cursor_never_goes_back_and_answers_are_taken_all_the_same(projection) -> None:
    await (await met(projection)).advance(step(version=5))
    assert await projection.advance(step(version=3, answers=((2, 50.0),)))
    view = await look(projection, event=2)
    assert (view.version, view.state) == (5, 50)
    assert view.answered == Answered(30, 3, b"f")


async def test_a_fold_from_where_no_cursor_is_takes_nothing(projection) -> None:
    await met(projection)
    assert not await projection.advance(step(base=1, version=2))
    assert (await look(projection)) == View(key(1), 0, 0, 0, 0, 0, None)
    await projection.advance(step())
    assert not await projection.advance(step(base=2, version=3, answers=((2, 50.0),)))
    view = await look(projection, event=2)
    assert (view.version, view.answered) == (1, None)


async def test_a_record_keeps_its_answer_even_if_the_cursor_has_passed(projection) -> None:
    await (await met(projection)).advance(step(version=5, answers=()))
    await projection.record([step(base=2, version=3)])
    view = await look(projection)
    assert view.version == 5
    assert view.answered == Answered(30, 3, b"f")


async def test_a_record_moves_the_cursor_by_one_version_and_from_its_own_base_only(
    projection,
) -> None:
    await (await met(projection)).record([step(base=0, version=1)])
    assert (await look(projection)).version == 1
    await projection.record([step(base=1, version=7)])
    assert (await look(projection)).version == 1
    await projection.record([step(base=2, version=3)])
    assert (await look(projection)).version == 1
    await projection.record([step(base=1, version=2)])
    assert (await look(projection)).version == 2
    await projection.record([step(2, base=0, version=3)])
    assert (await look(projection, 2)).version == 0


async def test_of_two_answers_the_higher_version_and_the_later_expiry_win(
    projection, clock
) -> None:
    await (await met(projection)).advance(step(version=2, answers=((1, 100.0),)))
    await projection.advance(step(base=2, version=3, answers=((1, 10.0),)))
    clock.now_ms += 50.0
    assert (await look(projection)).answered == Answered(30, 3, b"f")
    await projection.advance(step(version=1, answers=((1, 500.0),)))
    clock.now_ms += 400.0
    assert (await look(projection)).answered == Answered(30, 3, b"f")


async def test_numbers_keep_the_whole_range_of_the_protocol(projection) -> None:
    top = 2**64 - 1
    await (await met(projection)).record([step(client_seq=top, newest_ms=top)])
    await projection.raise_floor(key(), top)
    view = await look(projection)
    assert (view.client_seq, view.client_seq_floor, view.newest_ms) == (top, top, top)


async def test_an_answer_may_have_no_fingerprint_and_be_inexact(projection) -> None:
    entry = Entry(id_of(1), Answered(10, 1, None, is_exact=False), 100.0)
    await (await met(projection)).record([step(entries=(entry,))])
    assert (await look(projection)).answered == entry.answered


async def test_a_floor_is_a_lower_bound_that_only_rises(projection) -> None:
    await (await met(projection)).advance(step())
    await projection.raise_floor(key(), 40)
    await projection.raise_floor(key(), 30)
    view = await look(projection)
    assert (view.client_seq, view.client_seq_floor, view.version) == (1, 40, 1)


@pytest.mark.parametrize(("log", "epoch", "version"), [(1, 0, 1), (2, 0, 0), (1, 1, 0)])
async def test_another_log_or_a_restored_one_is_folded_anew(
    projection, log, epoch, version
) -> None:
    await (await met(projection)).advance(step())
    await met(projection, log=log, epoch=epoch)
    view = await look(projection)
    assert (view.version, view.answered is None) == (version, version == 0)
