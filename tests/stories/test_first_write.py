"""The plain case: a write lands once, and its retry gets the same answer on any replica."""

from __future__ import annotations

import pytest

from landed.commands import Done, How, Rejected
from tests.stories.fleet import X, fleet, key


@pytest.mark.scenario("SWA-1", "SWA-2", "SWA-3")
async def test_a_deposit_lands_once_and_both_replicas_give_its_answer_back() -> None:
    async with fleet(2, holding=None) as it:
        a, b = it.replicas
        first = await a.deposit(X, 50, key("K1"))
        assert isinstance(first, Done)
        assert (first.result.balance_cents, first.result.aggregate_version) == (50, 1)
        assert first.how is How.FRESH
        for replica in (a, b):
            again = await replica.deposit(X, 50, key("K1"))
            assert isinstance(again, Done)
            assert (again.results, again.how) == (first.results, How.ORIGINAL)
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-4")
async def test_a_retry_gets_the_first_answer_and_not_the_present_balance() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = await a.deposit(X, 50, key("K1"))
        for number in range(3):
            await b.deposit(X, 1, key(f"later {number}"))
        again = await b.deposit(X, 50, key("K1"))
        assert isinstance(first, Done)
        assert isinstance(again, Done)
        assert again.results == first.results
        assert again.result.balance_cents == 150


@pytest.mark.scenario("SWA-6")
async def test_a_refused_withdrawal_is_decided_afresh_when_it_is_tried_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        refused = await a.withdraw(X, 150, key("K1"))
        assert isinstance(refused, Rejected)
        assert refused.reason.fields == {"balanceCents": 100}
        assert refused.states == (100,)
        assert await it.count(key("K1")) == 0
        await b.deposit(X, 60, key("K2"))
        done = await a.withdraw(X, 150, key("K1"))
        assert isinstance(done, Done)
        assert done.result.balance_cents == 10


@pytest.mark.scenario("SWA-7")
async def test_a_withdrawal_that_emptied_the_account_gets_its_answer_back() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = await a.withdraw(X, 100, key("K1"))
        assert isinstance(first, Done)
        assert first.result.balance_cents == 0
        for replica in (a, b):
            again = await replica.withdraw(X, 100, key("K1"))
            assert isinstance(again, Done), "business rules ran before the hit check"
            assert again.results == first.results


async def test_a_warm_command_costs_exactly_one_read_and_one_write() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await a.deposit(X, 1, key("warming up"))
        reads, writes = len(a.log.reads), len(a.log.writes)
        done = await a.deposit(X, 1, key("K1"))
        assert isinstance(done, Done)
        assert (len(a.log.reads) - reads, len(a.log.writes) - writes) == (1, 1)
        assert a.log.details_asked == 0


async def test_a_retry_whose_answer_is_kept_does_not_touch_the_log() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await a.deposit(X, 1, key("K1"))
        a.log.is_down = True
        again = await a.deposit(X, 1, key("K1"))
        assert isinstance(again, Done)
        assert again.how is How.ORIGINAL
