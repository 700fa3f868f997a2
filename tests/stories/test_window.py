"""The window: how long a retry gets its answer, measured by the server's time and nobody's clock."""

from __future__ import annotations

import pytest

from landed.commands import How
from tests.stories.fleet import X, done, fleet, key

DAY_MS = 86_400_000
LIFE_S = 100.0
"""Window and margin of the default policy."""


@pytest.mark.scenario("SWA-39")
async def test_a_retry_within_the_window_gets_its_answer_and_one_after_it_writes_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        await it.pass_time(89.0)
        for replica in (a, b):
            assert done(await replica.deposit(X, 50, key("K1"))).results == first.results
        await it.pass_time(LIFE_S + 2.0 - 89.0)
        it.expired.add(key("K1"))
        again = done(await a.deposit(X, 50, key("K1")))
        assert again.how is How.FRESH
        assert again.result.balance_cents == 200
        assert await it.count(key("K1")) == 2


@pytest.mark.scenario("SWA-39")
async def test_a_replay_does_not_extend_the_window() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(60.0)
        assert done(await a.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        await it.pass_time(42.0)
        it.expired.add(key("K1"))
        assert done(await a.deposit(X, 50, key("K1"))).how is How.FRESH


@pytest.mark.scenario("SWA-40", "SWA-41")
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, DAY_MS, -DAY_MS])
async def test_no_hosts_clock_shortens_the_window(step_ms: int) -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        b.clock.step_wall(-step_ms)
        first = done(await a.deposit(X, 50, key("K1")))
        a.clock.step_wall(step_ms)
        await it.pass_time(89.0)
        for replica in (a, b):
            again = done(await replica.deposit(X, 50, key("K1")))
            assert (again.how, again.results) == (How.ORIGINAL, first.results)
        await it.pass_time(13.0)
        it.expired.add(key("K1"))
        assert done(await a.deposit(X, 50, key("K1"))).how is How.FRESH


@pytest.mark.scenario("SWA-42")
async def test_the_writers_own_answer_lives_a_whole_window_on_an_idle_account() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await a.loop.look(a.key_of(X))
        await it.pass_time(86_400.0)
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(80.0)
        assert done(await a.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-43")
async def test_a_replayed_answer_lives_as_long_as_its_event_has_left() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        b.forget()
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(80.0)
        await a.deposit(X, 1, key("newer"))
        await b.loop.look(b.key_of(X))
        await it.pass_time(5.0)
        assert done(await b.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        await it.pass_time(14.0)
        assert done(await b.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        await it.pass_time(2.0)
        it.expired.add(key("K1"))
        assert done(await b.deposit(X, 50, key("K1"))).how is How.FRESH


@pytest.mark.scenario("SWA-44")
async def test_folding_what_others_wrote_does_not_drop_our_own_answer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        await it.pass_time(80.0)
        for number in range(5):
            await b.deposit(X, 1, key(f"other {number}"))
        await a.loop.look(a.key_of(X))
        await it.pass_time(8.0)
        assert done(await a.deposit(X, 50, key("K1"))).results == first.results


@pytest.mark.scenario("SWA-46")
async def test_a_key_that_ran_again_after_its_window_gets_the_second_answer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        it.expired.add(key("K1"))
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(LIFE_S + 1.0)
        second = done(await a.deposit(X, 50, key("K1")))
        assert (second.how, second.result.balance_cents) == (How.FRESH, 200)
        for replica in (a, b):
            again = done(await replica.deposit(X, 50, key("K1")))
            assert (again.how, again.results) == (How.ORIGINAL, second.results)


async def test_an_event_that_this_very_catch_up_found_is_a_hit_whatever_its_age() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        b.forget()
        first = done(await a.deposit(X, 50, key("K1")))
        await it.pass_time(1000.0)
        await a.deposit(X, 1, key("newer"))
        again = done(await b.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)
