"""Scan on miss: for services that must honour late retries and cannot widen their window."""

from __future__ import annotations

import pytest

from landed.commands import How, KeyReused, Policy
from tests.stories.fleet import X, Y, done, fleet, key

HOUR = Policy(scan_horizon_s=3600.0)


@pytest.mark.scenario("SWA-74")
@pytest.mark.parametrize("step_ms", [0, 86_400_000, -86_400_000])
async def test_a_late_retry_is_found_in_the_log_itself(step_ms: int) -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        a.clock.step_wall(step_ms)
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(600.0)
        await a.deposit(X, 1, key("newer"))
        again = done(await a.deposit(X, 50, key("K1")))
        assert again.how is How.REBUILT
        assert again.result.balance_cents == 151
        assert len(a.log.writes) == 2
        kept = done(await a.deposit(X, 50, key("K1")))
        assert (kept.how, kept.results) == (How.REBUILT, again.results)


@pytest.mark.scenario("SWA-74")
async def test_an_event_exactly_at_the_horizon_is_found_and_one_beyond_it_is_not() -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        await a.loop.look(a.key_of(X))
        await it.give(X, 1, name="at the bound")
        await it.pass_time(3600.0)
        await it.give(X, 1, name="the newest")
        it.expired.add(key("beyond"))
        await a.loop.look(a.key_of(X))
        bound = (await it.history(X))[-1].server_ms - 3_600_000
        found = (await it.history(X))[1]
        assert bound - 1000 <= found.server_ms <= bound
        outcome = done(await a.deposit(X, 1, key(f"at the bound {X}")))
        assert outcome.how is How.REBUILT
        assert a.log.writes == []


@pytest.mark.scenario("SWA-74")
async def test_a_request_found_by_a_scan_is_checked_for_its_wish() -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        await a.deposit(X, 50, key("K1"))
        await it.pass_time(600.0)
        assert isinstance(await a.deposit(X, 51, key("K1")), KeyReused)


@pytest.mark.scenario("SWA-74")
async def test_one_leg_found_by_a_scan_proves_a_whole_transfer() -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        await a.transfer(X, Y, 30, key("K1"))
        await it.pass_time(600.0)
        again = done(await a.transfer(X, Y, 30, key("K1")))
        assert again.how is How.REBUILT
        assert [result.balance_cents for result in again.results] == [70, 30]
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-74")
async def test_a_scan_that_sees_more_than_the_catch_up_is_settled_by_a_new_one() -> None:
    async with fleet(2, policy=HOUR) as it:
        a, b = it.replicas
        pause = a.log.pause("after_read")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        first = done(await b.deposit(X, 50, key("K1")))
        pause.go_on()
        outcome = done(await request)
        assert (outcome.how, outcome.results) == (How.ORIGINAL, first.results)
        assert a.log.writes == []


@pytest.mark.scenario("SWA-74")
async def test_a_replica_that_folded_nothing_but_its_own_writes_scans_all_the_same() -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        await a.deposit(Y, 50, key("K1"))
        await it.pass_time(600.0)
        assert done(await a.deposit(Y, 50, key("K1"))).how is How.REBUILT
        assert await it.count(key("K1"), Y) == 1


async def test_a_scan_costs_one_read_for_each_new_request_and_none_for_a_new_account() -> None:
    async with fleet(1, policy=HOUR) as it:
        (a,) = it.replicas
        await a.deposit(X, 50, key("K1"))
        await a.deposit(Y, 50, key("K2"))
        asked = [read.key.id for read in a.log.reads if read.filters.min_server_ms is not None]
        assert asked == [X]
