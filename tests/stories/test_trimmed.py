"""Trimmed and deleted aggregates: nothing is invented, nothing is recreated, nothing is guessed."""

from __future__ import annotations

import pytest

from landed.commands import Applied, Fault, FaultKind, How, Seen, Unresolved
from landed.errors import SequenceTakenError
from tests.stories.faulty import Answer, LandAt
from tests.stories.fleet import Fleet, Replica, X, done, fleet, key
from tests.stories.snapshots import SnapshotAccounts, take_snapshot


async def _six_versions(it: Fleet, *replicas: Replica) -> None:
    for number in range(5):
        await it.give(X, 1, name=f"event {number}")
    for replica in replicas:
        await replica.loop.look(replica.key_of(X))


@pytest.mark.scenario("SWA-68", "BC-06")
async def test_ownership_on_a_trimmed_account_is_read_once_again_from_what_is_left() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await _six_versions(it, a, b)
        await it.trim(X, 5)
        a.log.on_write(Answer(SequenceTakenError(highest_seq=7, attempted_seq=7)))
        pause = a.log.pause("after_read")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 50, key("K1"))
        pause.go_on()
        outcome = done(await request)
        assert outcome.how is How.ORIGINAL
        asked = [r.filters.from_version for r in a.log.reads if r.filters.min_client_seq == 7]
        assert asked == [1, 5]
        assert a.owners_asked() == ["ours"]


@pytest.mark.scenario("SWA-69", "BC-06")
async def test_a_contested_sequence_that_was_trimmed_away_is_unknown_and_a_retry_goes_on() -> None:
    async with fleet(1, domain=SnapshotAccounts()) as it:
        (a,) = it.replicas
        await _six_versions(it)
        await take_snapshot(it, X, 105)
        await it.trim(X, 7)
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unresolved), outcome
        assert outcome.applied is Applied.UNKNOWN
        assert a.sent_seqs() == [1], "no fresh sequence in the call that learned the mark"
        again = done(await a.deposit(X, 50, key("K1")))
        assert a.sent_seqs() == [1, 7]
        assert (again.how, again.result.balance_cents) == (How.FRESH, 155)


@pytest.mark.scenario("SWA-70")
async def test_a_cold_replica_on_a_trimmed_account_invents_no_balance() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await _six_versions(it, a)
        await it.trim(X, 5)
        b.forget()
        outcome = await b.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert (outcome.kind, outcome.applied) == (FaultKind.TRIMMED, Applied.NOT_APPLIED)
        assert b.log.writes == []
        assert isinstance(await b.loop.look(b.key_of(X)), Fault)
        assert done(await a.deposit(X, 50, key("K1"))).result.balance_cents == 155


async def test_a_cold_replica_folds_a_trimmed_account_from_its_snapshot() -> None:
    async with fleet(2, domain=SnapshotAccounts()) as it:
        a, b = it.replicas
        await _six_versions(it, a)
        await take_snapshot(it, X, 105)
        await it.trim(X, 7)
        b.forget()
        assert await b.loop.look(b.key_of(X)) == Seen(105, 7)
        first = done(await a.deposit(X, 50, key("K1")))
        assert first.result.balance_cents == 155
        again = done(await b.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)


async def test_a_replica_that_slept_through_a_trim_goes_on_from_the_snapshot() -> None:
    async with fleet(2, domain=SnapshotAccounts()) as it:
        a, b = it.replicas
        b.forget()
        await b.loop.look(b.key_of(X))
        await _six_versions(it, a)
        await take_snapshot(it, X, 105)
        await it.trim(X, 7)
        assert await b.loop.look(b.key_of(X)) == Seen(105, 7)
        outcome = await b.deposit(X, 5, key("K1"))
        assert isinstance(outcome, Unresolved), "its own sequences went with the history"
        assert done(await b.deposit(X, 5, key("K1"))).result.balance_cents == 110


@pytest.mark.scenario("SWA-71")
async def test_a_deleted_account_is_closed_and_its_last_answers_are_still_given() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        first = done(await a.deposit(X, 50, key("K1")))
        await it.delete(X, allow_recreate=False)
        for replica in (a, b):
            outcome = await replica.deposit(X, 1, key(f"K {replica.name}"))
            assert isinstance(outcome, Fault), outcome
            assert (outcome.kind, outcome.applied) == (FaultKind.CLOSED, Applied.NOT_APPLIED)
            seen = await replica.loop.look(replica.key_of(X))
            assert isinstance(seen, Fault), "a closed account is not an empty one"
        assert await it.history(X) == []
        again = done(await a.deposit(X, 50, key("K1")))
        assert (again.how, again.results) == (How.ORIGINAL, first.results)


@pytest.mark.scenario("SWA-72")
async def test_a_deleted_account_is_not_recreated_even_where_the_log_would_allow_it() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await a.deposit(X, 50, key("K1"))
        await it.delete(X, allow_recreate=True)
        outcome = await a.deposit(X, 1, key("K2"))
        assert isinstance(outcome, Fault), outcome
        assert outcome.kind is FaultKind.CLOSED
        assert (a.log.details_asked, len(a.log.writes)) == (1, 1)
        cold = await b.deposit(X, 1, key("K3"))
        assert isinstance(cold, Fault), cold
        assert cold.kind is FaultKind.CLOSED, "a conflict that reports a version was looked into"
        assert b.log.details_asked == 1
        assert await it.history(X) == []


@pytest.mark.scenario("SWA-71", "SWA-72")
@pytest.mark.parametrize("allow_recreate", [False, True])
async def test_an_account_that_closes_under_a_write_is_told_as_closed(
    allow_recreate: bool,
) -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        pause = a.log.pause("before_send")
        request = a.start_deposit(X, 1, key("K1"))
        await pause.reached.wait()
        await it.delete(X, allow_recreate=allow_recreate)
        pause.go_on()
        outcome = await request
        assert await it.history(X) == [], "it is not recreated"
        assert isinstance(outcome, Fault), outcome
        assert (outcome.kind, outcome.applied) == (FaultKind.CLOSED, Applied.NOT_APPLIED)


@pytest.mark.scenario("SWA-73")
async def test_an_account_that_someone_recreated_is_a_fault_and_not_a_wrong_balance() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await a.deposit(X, 50, key("K1"))
        await it.delete(X, allow_recreate=True)
        await it.write_foreign(X, 7)
        outcome = await a.deposit(X, 1, key("K2"))
        assert isinstance(outcome, Fault), outcome
        assert outcome.kind is FaultKind.REGRESSED
        assert len(await it.history(X)) == 1


@pytest.mark.scenario("SWA-73")
async def test_a_write_that_lands_in_another_life_of_the_account_is_a_fault() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(LandAt(7))
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert (outcome.kind, outcome.applied) == (FaultKind.REGRESSED, Applied.APPLIED)
        (view,) = await a.projection.load((a.key_of(X),), key("K1"), it.domain)
        assert view.version == 1, "the cursor did not move"
        assert view.answered is not None, "the answer is kept all the same"


async def test_an_event_that_nobody_understands_stops_the_fold() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await take_snapshot(it, X, 100)
        it.unreadable.add(X)
        outcome = await a.deposit(X, 1, key("K1"))
        assert isinstance(outcome, Fault), outcome
        assert outcome.kind is FaultKind.UNDECODABLE
        assert a.log.writes == []
