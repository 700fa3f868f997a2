"""The same key at the same moment: resolved, not refused. Every caller gets the same answer."""

from __future__ import annotations

import asyncio

import pytest

from landed.accounts.domain import Deposit
from landed.commands import Done, How, KeyReused
from tests.stories.fleet import X, done, fleet, key


@pytest.mark.scenario("SWA-34")
async def test_one_key_on_two_replicas_at_the_same_instant_is_one_event() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        both = await asyncio.gather(a.deposit(X, 50, key("K1")), b.deposit(X, 50, key("K1")))
        assert done(both[0]).results == done(both[1]).results
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-35")
async def test_one_key_five_times_on_one_replica_at_once_is_one_event() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        five = await asyncio.gather(*[a.deposit(X, 50, key("K1")) for _ in range(5)])
        assert len({done(outcome).result.balance_cents for outcome in five}) == 1
        assert sorted(done(outcome).how for outcome in five) == [How.FRESH] + [How.ORIGINAL] * 4
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-36")
async def test_one_key_for_two_amounts_at_once_is_one_event_and_one_refusal() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        both = await asyncio.gather(a.deposit(X, 50, key("K1")), b.deposit(X, 51, key("K1")))
        assert sorted(type(outcome).__name__ for outcome in both) == ["Done", "KeyReused"]
        assert await it.count(key("K1")) == 1


async def test_a_key_that_is_used_for_another_wish_is_refused_on_every_replica() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await a.deposit(X, 50, key("K1"))
        for replica in (a, b):
            assert isinstance(await replica.deposit(X, 51, key("K1")), KeyReused)
            assert isinstance(await replica.withdraw(X, 50, key("K1")), KeyReused)
            assert isinstance(await replica.deposit(X, 50, key("K1")), Done)


@pytest.mark.scenario("SWA-37")
async def test_a_replica_that_slept_after_looking_answers_with_the_original() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("after_read")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        first = done(await b.deposit(X, 50, key("K1")))
        pause.go_on()
        outcome = done(await request)
        assert outcome.how is How.ORIGINAL
        assert outcome.results == first.results
        assert len(a.log.writes) == 1, "its write met a conflict"


@pytest.mark.scenario("SWA-37")
async def test_a_request_folded_while_another_one_asks_which_log_it_is_is_not_read_past() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = done(await b.deposit(X, 50, key("K1")))
        pause = a.log.pause("before_info")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await a.loop.look(a.key_of(X))
        await b.deposit(X, 1, key("newer"))
        pause.go_on()
        outcome = done(await request)
        assert (outcome.how, outcome.results) == (How.ORIGINAL, first.results)
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-38")
async def test_a_replica_that_slept_after_sending_records_without_harm() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("after_send")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        retried = done(await b.deposit(X, 50, key("K1")))
        assert retried.how is How.ORIGINAL
        await b.deposit(X, 1, key("K2"))
        pause.go_on()
        assert done(await request).results == retried.results
        assert done(await a.deposit(X, 50, key("K1"))).results == retried.results
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("BC-17")
async def test_twelve_copies_of_one_key_over_three_replicas_are_one_event() -> None:
    async with fleet(3, holding=1000) as it:
        twelve = await asyncio.gather(
            *[it.replicas[n % 3].deposit(X, 500, key("K1")) for n in range(12)]
        )
        answers = [outcome for outcome in twelve if isinstance(outcome, Done)]
        assert answers
        for number, outcome in enumerate(twelve):
            if not isinstance(outcome, Done):
                assert outcome.is_retryable
                answers.append(done(await it.replicas[number % 3].deposit(X, 500, key("K1"))))
        await it.pass_time(60.0)
        later = [await it.replicas[(n + 1) % 3].deposit(X, 500, key("K1")) for n in range(12)]
        answers.extend(done(outcome) for outcome in later)
        assert {(one.result.balance_cents, one.result.aggregate_version) for one in answers} == {
            (1500, 2)
        }
        assert await it.count(key("K1")) == 1


async def test_a_cancelled_request_is_passed_on_and_its_retry_finds_what_landed() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        pause = a.log.pause("after_send")
        request = a.start(Deposit(X, 50), key("K1"))
        await pause.reached.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert done(await a.deposit(X, 50, key("K1"))).how is How.ORIGINAL
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-81")
async def test_a_caller_that_hangs_up_while_the_loop_backs_off_can_come_back() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("before_send")
        request = a.start(Deposit(X, 50), key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 1, key("K2"))
        pause.go_on()
        while not any(name == "loop.backed_off" for name, _ in a.facts):
            await asyncio.sleep(0.0001)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        done(await b.deposit(X, 50, key("K1")))
        assert await it.count(key("K1")) == 1
