"""A conflict means that the world has changed: look first, decide again, take a fresh sequence."""

from __future__ import annotations

import asyncio

import pytest

from landed.accounts.domain import Deposit, account_key, fingerprint_of
from landed.commands import (
    Applied,
    Command,
    Conflicted,
    Fault,
    FaultKind,
    How,
    NewEvent,
    Policy,
    Reject,
    Rejected,
    Unresolved,
)
from landed.errors import VersionConflictError
from landed.ids import EventId
from tests.stories.faulty import Answer, DelayApply, LoseRequest
from tests.stories.fleet import X, done, fleet, key, until

PATIENT = Policy(attempts_max=9)


@pytest.mark.scenario("SWA-16")
async def test_two_replicas_that_deposit_at_once_both_land_once() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        both = await asyncio.gather(a.deposit(X, 1, key("K1")), b.deposit(X, 2, key("K2")))
        assert {done(outcome).result.aggregate_version for outcome in both} == {2, 3}
        assert await it.count(key("K1")) == await it.count(key("K2")) == 1


@pytest.mark.scenario("SWA-17")
async def test_ten_deposits_at_once_land_once_or_are_proven_not_applied() -> None:
    async with fleet(2) as it:
        outcomes = await asyncio.gather(
            *[it.replicas[n % 2].deposit(X, 1 + n, key(f"K{n}")) for n in range(10)]
        )
        for number, outcome in enumerate(outcomes):
            landed = await it.count(key(f"K{number}"))
            assert landed == (0 if isinstance(outcome, Conflicted) else 1), outcome
        assert any(not isinstance(outcome, Conflicted) for outcome in outcomes)


@pytest.mark.scenario("SWA-18")
async def test_a_foreign_writer_causes_a_conflict_and_does_not_move_our_sequence() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        pause = a.log.pause("before_send")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await it.write_foreign(X, 7, client_seq=900)
        pause.go_on()
        outcome = done(await request)
        assert (outcome.result.balance_cents, outcome.result.aggregate_version) == (157, 3)
        assert a.sent_seqs() == [2, 2]


async def test_a_conflict_with_a_sibling_takes_a_fresh_sequence_at_once() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("before_send")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 7, key("K2"))
        pause.go_on()
        assert done(await request).result.balance_cents == 157
        assert a.sent_seqs() == [2, 3], "the held one would only ever bounce"
        assert a.owners_asked() == []


@pytest.mark.scenario("SWA-22", "SWA-23")
async def test_a_conflict_after_a_timeout_does_not_deposit_twice() -> None:
    async with fleet(1, policy=PATIENT) as it:
        (a,) = it.replicas
        await a.loop.look(account_key(X))
        it.lane.gate.hold()
        a.log.on_write(DelayApply(0.0))
        request = a.start_deposit(X, 50, key("K1"))
        await until(lambda: len(a.log.writes) >= 3)
        it.lane.gate.release()
        outcome = done(await request)
        assert outcome.how is How.ORIGINAL
        assert len(a.log.writes) >= 3
        assert set(a.sent_seqs()) == {2}, "nothing was visible, so nothing else was free"
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-24")
async def test_an_unknown_attempt_that_a_sibling_beat_is_judged_dead_and_decided_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(LoseRequest())
        first, second = a.log.pause("before_send"), a.log.pause("before_send")
        request = a.start_deposit(X, 50, key("K1"))
        first.go_on()
        await second.reached.wait()
        await b.deposit(X, 7, key("K2"))
        second.go_on()
        outcome = done(await request)
        assert outcome.result.balance_cents == 157
        assert a.sent_seqs() == [2, 2, 3]
        assert a.owners_asked() == ["a sibling's"]
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-25")
async def test_a_delayed_copy_of_a_rejected_withdrawal_is_harmless() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(DelayApply(60.0))
        _, second = a.log.pause("before_read"), a.log.pause("before_read")
        _.go_on()
        request = a.start_withdrawal(X, 80, key("K1"))
        await second.reached.wait()
        done(await b.withdraw(X, 50, key("K2")))
        second.go_on()
        outcome = await request
        assert isinstance(outcome, Rejected), outcome
        assert outcome.reason.code == "insufficient_funds"
        assert outcome.applied is Applied.NOT_APPLIED
        await a.log.settle()
        assert await it.count(key("K1")) == 0


@pytest.mark.scenario("SWA-26")
async def test_no_rule_rejects_while_an_earlier_attempt_may_still_land() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(DelayApply(60.0))
        is_open = iter([True, False])

        def decide(_balance: int) -> NewEvent | Reject:
            return NewEvent(1, b'{"AmountCents":50}') if next(is_open) else Reject("shop_closed")

        command = Command.on(
            account_key(X),
            event_id=key("K1"),
            fingerprint=fingerprint_of(Deposit(X, 50)),
            decide=decide,
            respond=lambda balance, _version: balance,
        )
        outcome = await a.loop.execute(command)
        assert isinstance(outcome, Unresolved), outcome
        await a.log.settle()
        assert await it.count(key("K1")) == 1, "and it did land"
        again = done(await a.deposit(X, 50, EventId(key("K1"))))
        assert again.how is How.ORIGINAL


@pytest.mark.scenario("SWA-29")
async def test_an_aggregate_that_is_shorter_than_it_was_stops_the_loop_at_once() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(VersionConflictError(expected=1, actual=0)))
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert outcome.kind is FaultKind.REGRESSED
        assert len(a.log.writes) == 1


async def test_a_conflict_that_never_ends_is_proven_not_applied() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(*[Answer(VersionConflictError(expected=None, actual=None))] * 5)
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Conflicted), outcome
        assert outcome.is_retryable
