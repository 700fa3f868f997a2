"""Between the log and the projection: whatever is lost there, the log has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from landed.commands import Applied, How, Unavailable
from landed.errors import StorageError
from landed.projections import Advance
from tests.stories.fleet import StoryProjection, X, done, fleet, key

BROKEN = StorageError("the projection is broken")


@pytest.mark.scenario("SWA-48")
async def test_a_record_that_fails_is_still_a_success_and_the_next_catch_up_heals_it() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await a.loop.look(a.key_of(X))
        a.projection.record_script.append(BROKEN)
        first = done(await a.deposit(X, 50, key("K1")))
        assert first.how is How.FRESH
        assert ("loop.record_failed") in [name for name, _ in a.facts]
        (view,) = await a.projection.load((a.key_of(X),), key("K1"), it.domain)
        assert (view.version, view.answered) == (1, None), "neither moved without the other"
        for replica in (b, a):
            again = done(await replica.deposit(X, 50, key("K1")))
            assert (again.how, again.results) == (How.ORIGINAL, first.results)


@pytest.mark.scenario("SWA-49", "SWA-50", "SWA-53")
@pytest.mark.parametrize("point", ["after applying", "after recording"])
async def test_a_replica_that_dies_after_the_log_applied_loses_nothing(point: str) -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        if point == "after applying":
            pause = a.pause_record()
            dying = a.start_deposit(X, 50, key("K1"))
            await pause.reached.wait()
            dying.cancel()
            await asyncio.wait([dying])
        else:
            await a.deposit(X, 50, key("K1"))
        a.restart()
        outcomes = [done(await replica.deposit(X, 50, key("K1"))) for replica in (b, a)]
        assert [outcome.how for outcome in outcomes] == [How.ORIGINAL] * 2
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-51")
async def test_a_record_whose_acknowledgement_is_lost_doubles_nothing() -> None:
    class Deaf(StoryProjection):
        async def record(self, steps: Sequence[Advance[Any]], /) -> None:
            await super().record(steps)
            raise BROKEN

    async with fleet(2) as it:
        a, b = it.replicas
        a.use(Deaf(a.make_projection()))
        first = done(await a.deposit(X, 50, key("K1")))
        await it.pass_time(89.0)
        for replica in (a, b):
            again = done(await replica.deposit(X, 50, key("K1")))
            assert (again.how, again.results) == (How.ORIGINAL, first.results)


@pytest.mark.scenario("SWA-52")
async def test_recording_after_the_cursor_has_passed_neither_turns_it_back_nor_loses_life() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await it.pass_time(1.0)
        pause = a.pause_record()
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await it.pass_time(50.0)
        await b.deposit(X, 1, key("K2"))
        await a.loop.look(a.key_of(X))
        pause.go_on()
        first = done(await request)
        (view,) = await a.projection.load((a.key_of(X),), key("K1"), it.domain)
        assert view.version == 3
        await it.pass_time(89.0)
        again = done(await a.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)


@pytest.mark.scenario("SWA-55")
async def test_a_projection_that_is_down_before_anything_is_sent_means_not_applied() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.projection.load_script.extend([BROKEN] * 5)
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unavailable), outcome
        assert outcome.applied is Applied.NOT_APPLIED
        assert a.log.writes == []


@pytest.mark.scenario("SWA-56")
async def test_a_hit_in_what_was_just_read_is_answered_even_if_it_cannot_be_kept() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        b.projection.advance_script.append(BROKEN)
        again = done(await b.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)


async def test_nothing_is_sent_on_a_view_that_could_not_be_kept() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.projection.advance_script.extend([BROKEN] * 5)
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unavailable), outcome
        assert a.log.writes == []


@pytest.mark.scenario("SWA-57")
async def test_two_folds_of_one_backlog_at_once_agree() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        for number in range(20):
            await a.deposit(X, 1, key(f"K{number}"))
        await asyncio.gather(*[b.loop.look(b.key_of(X)) for _ in range(3)])
        for number in range(20):
            again = done(await b.deposit(X, 1, key(f"K{number}")))
            assert (again.how, again.result.balance_cents) == (How.ORIGINAL, 101 + number)
        assert b.log.writes == []


@pytest.mark.parametrize("backend", ["memory"], indirect=True)
async def test_an_evicted_account_is_folded_again_and_knows_its_answers() -> None:
    async with fleet(1, aggregates_max=1) as it:
        (a,) = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        done(await a.deposit(key("another account"), 5, key("K2")))
        assert len(a.projection.inner) == 1
        again = done(await a.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)


@pytest.mark.parametrize("backend", ["memory"], indirect=True)
async def test_an_account_evicted_while_it_is_folded_is_folded_from_the_start() -> None:
    async with fleet(1, aggregates_max=1) as it:
        (a,) = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        pause = a.log.pause("after_read")
        request = a.start_deposit(X, 7, key("K2"))
        await pause.reached.wait()
        await it.write_foreign(X, 1)
        done(await a.deposit(key("another account"), 5, key("K3")))
        pause.go_on()
        outcome = done(await request)
        assert outcome.result.balance_cents == 158
        again = done(await a.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)
