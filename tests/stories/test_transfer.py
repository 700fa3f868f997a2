"""Two aggregates, one request: all of it, or nothing of it, and one answer for both legs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from landed.commands import (
    Applied,
    Conflicted,
    Done,
    Fault,
    FaultKind,
    How,
    KeyReused,
    Rejected,
    Unresolved,
)
from landed.errors import AggregateMissingError, SequenceTakenError
from landed.limits import Limits
from landed.projections import Advance
from tests.stories.faulty import Answer, LoseAnswer, Pass
from tests.stories.fleet import StoryProjection, X, Y, done, fleet, key

TAKEN = SequenceTakenError(highest_seq=2, attempted_seq=2)
HIDDEN = AggregateMissingError(code=1001)


def _balances(outcome: object) -> tuple[int, ...]:
    assert isinstance(outcome, Done), outcome
    return tuple(result.balance_cents for result in outcome.results)


@pytest.mark.scenario("SWA-58")
async def test_a_transfer_lands_once_and_both_replicas_answer_for_both_legs() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = await a.transfer(X, Y, 30, key("K1"))
        assert _balances(first) == (70, 30)
        for replica in (b, a):
            again = done(await replica.transfer(X, Y, 30, key("K1")))
            assert (again.how, _balances(again)) == (How.ORIGINAL, (70, 30))
        assert [await it.count(key("K1"), account) for account in (X, Y)] == [1, 1]


@pytest.mark.scenario("SWA-59")
async def test_a_transfer_whose_answer_is_lost_is_not_sent_again() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(LoseAnswer())
        assert _balances(await a.transfer(X, Y, 30, key("K1"))) == (70, 30)
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-60")
async def test_a_leg_whose_answer_has_expired_is_rebuilt_and_never_written_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await it.give(Y, 500)
        b.forget()
        await a.transfer(X, Y, 30, key("K1"))
        await it.pass_time(80.0)
        await a.deposit(Y, 7, key("newer on Y"))
        # Y's tip is new, so its leg has 20 s left on B; X's leg is X's own tip and has 100 s.
        await b.loop.look(b.key_of(Y))
        await b.loop.look(b.key_of(X))
        await it.pass_time(30.0)
        again = done(await b.transfer(X, Y, 30, key("K1")))
        assert again.how is How.REBUILT
        assert _balances(again) == (70, 537)
        assert b.log.writes == []


@pytest.mark.scenario("SWA-61")
async def test_a_leg_that_was_looked_at_before_the_landing_is_looked_at_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("after_read")
        request = a.start_transfer(X, Y, 30, key("K1"))
        await pause.reached.wait()
        await b.transfer(X, Y, 30, key("K1"))
        pause.go_on()
        outcome = done(await request)
        assert (outcome.how, _balances(outcome)) == (How.ORIGINAL, (70, 30))
        assert a.log.writes == []


@pytest.mark.scenario("SWA-62")
async def test_one_leg_that_is_ours_proves_the_whole_transfer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(Answer(TAKEN))
        # Catch-up of X and of Y, then the owner of X's sequence, which is hidden.
        a.log.on_read(Pass(), Pass(), Answer(HIDDEN))
        first, second = a.log.pause("after_read"), a.log.pause("after_read")
        first.go_on()
        await it.give(Y, 5)
        request = a.start_transfer(X, Y, 30, key("K1"))
        await second.reached.wait()
        await b.transfer(X, Y, 30, key("K1"))
        second.go_on()
        outcome = done(await request)
        assert (outcome.how, _balances(outcome)) == (How.ORIGINAL, (70, 35))
        assert a.owners_asked() == ["ours"]
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-62")
async def test_one_leg_that_is_a_siblings_disproves_the_whole_transfer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(Answer(TAKEN))
        pause = a.log.pause("before_send")
        request = a.start_transfer(X, Y, 30, key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 1, key("K2"))
        pause.go_on()
        assert _balances(await request) == (71, 30)
        assert a.owners_asked() == ["a sibling's"]
        assert [leg.events[0].client_seq for leg in a.log.writes[-1].legs] == [3, 1]


@pytest.mark.scenario("SWA-62")
async def test_no_leg_that_is_written_leaves_the_transfer_unresolved() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(TAKEN))
        outcome = await a.transfer(X, Y, 30, key("K1"))
        assert isinstance(outcome, Unresolved), outcome
        assert outcome.applied is Applied.UNKNOWN
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-63")
async def test_opposite_transfers_at_once_keep_the_money() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await it.give(Y, 100)
        for number in range(50):
            both = await asyncio.gather(
                a.transfer(X, Y, 3, key(f"there {number}")),
                b.transfer(Y, X, 2, key(f"back {number}")),
            )
            assert all(isinstance(outcome, Done | Conflicted | Rejected) for outcome in both)
        seen = [await a.loop.look(a.key_of(account)) for account in (X, Y)]
        assert sum(one.state for one in seen) == 200


@pytest.mark.scenario("SWA-64")
async def test_a_key_of_a_deposit_is_refused_for_a_transfer_of_the_same_account() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await a.deposit(X, 30, key("K1"))
        for replica in (a, b):
            outcome = await replica.transfer(X, Y, 30, key("K1"))
            assert isinstance(outcome, KeyReused), outcome
        assert await it.history(Y) == []


@pytest.mark.scenario("SWA-65")
async def test_legs_on_two_shards_are_a_fault_at_once() -> None:
    async with fleet(1, limits=Limits(num_shards=64)) as it:
        (a,) = it.replicas
        outcome = await a.transfer(X, Y, 30, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert (outcome.kind, outcome.code) == (FaultKind.REFUSED, 9001)
        assert outcome.applied is Applied.NOT_APPLIED
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-66")
async def test_legs_that_were_recorded_apart_are_each_safe_alone() -> None:
    class OneLeg(StoryProjection):
        async def record(self, steps: Sequence[Advance[Any]], /) -> None:
            await super().record(steps[:1])

    async with fleet(2) as it:
        a, b = it.replicas
        a.use(OneLeg(a.make_projection()))
        first = await a.transfer(X, Y, 30, key("K1"))
        for replica in (a, b):
            again = done(await replica.transfer(X, Y, 30, key("K1")))
            assert (again.how, _balances(again)) == (How.ORIGINAL, _balances(first))


@pytest.mark.scenario("SWA-67")
async def test_a_transfer_to_itself_is_rejected_before_anything_is_read() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        outcome = await a.transfer(X, X, 30, key("K1"))
        assert isinstance(outcome, Rejected), outcome
        assert outcome.states == ()
        assert (a.log.reads, a.log.writes) == ([], [])


async def test_a_conflict_on_one_leg_decides_on_fresh_states_of_both() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("before_send")
        request = a.start_transfer(X, Y, 80, key("K1"))
        await pause.reached.wait()
        await b.withdraw(X, 50, key("K2"))
        pause.go_on()
        outcome = await request
        assert isinstance(outcome, Rejected), outcome
        assert outcome.states == (50, 0)


async def test_a_closed_account_does_not_hide_that_the_transfer_landed() -> None:
    async with fleet(2) as it:
        a, _ = it.replicas
        await a.transfer(X, Y, 30, key("K1"))
        await it.delete(X, allow_recreate=False)
        done(await a.transfer(X, Y, 30, key("K1")))
        a.forget()
        outcome = await a.transfer(X, Y, 30, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert outcome.kind is FaultKind.CLOSED
        assert outcome.applied is Applied.APPLIED, "Y still shows it"


async def test_a_leg_that_cannot_be_seen_is_not_answered_with_an_invented_balance() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await it.give(Y, 500)
        await a.transfer(X, Y, 30, key("K1"))
        a.forget()
        a.log.on_read(Pass(), *[Answer(HIDDEN)] * 5)
        a.log.on_details(*[HIDDEN] * 5)
        outcome = await a.transfer(X, Y, 30, key("K1"))
        assert isinstance(outcome, Unresolved), outcome
        assert outcome.applied is Applied.APPLIED
        assert len(a.log.writes) == 1
