"""Two requests share one client id and pick one sequence. A 2002 is never taken at face value."""

from __future__ import annotations

import pytest

from landed.accounts.domain import account_key
from landed.commands import Applied, How, KeyReused, Unresolved
from landed.errors import (
    AggregateMissingError,
    ReadTimeoutError,
    SequenceInFlightError,
    SequenceTakenError,
)
from tests.stories.faulty import Answer, LoseAnswer, Pass
from tests.stories.fleet import Fleet, Replica, X, done, fleet, key

TAKEN = SequenceTakenError(highest_seq=2, attempted_seq=2)
IN_FLIGHT = SequenceInFlightError(highest_seq=2, attempted_seq=2)


@pytest.mark.scenario("SWA-19")
async def test_a_lost_conflict_with_a_sibling_is_not_taken_for_success() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(LoseAnswer())
        pause = a.log.pause("before_send")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 7, key("K2"))
        pause.go_on()
        outcome = done(await request)
        assert outcome.result.balance_cents == 157
        assert a.sent_seqs() == [2, 3]
        assert a.owners_asked() == ["a sibling's"]
        assert await it.count(key("K1")) == await it.count(key("K2")) == 1


@pytest.mark.scenario("SWA-19", "SWA-33")
async def test_a_held_sequence_that_a_sibling_used_is_refused_and_taken_afresh() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(Answer(IN_FLIGHT))
        first, second = a.log.pause("before_read"), a.log.pause("before_read")
        first.go_on()
        request = a.start_deposit(X, 50, key("K1"))
        await second.reached.wait()
        await b.deposit(X, 7, key("K2"))
        second.go_on()
        outcome = done(await request)
        assert a.sent_seqs() == [2, 2, 3], "held after 2013, refused with 2002, then derived"
        assert a.owners_asked() == ["a sibling's"]
        assert outcome.result.balance_cents == 157
        assert await it.count(key("K1")) == 1


async def _land_behind_its_back(it: Fleet, a: Replica, b: Replica, *, name: str = "K1") -> None:
    """B lands A's request while A, which has caught up already, is about to hear 2002."""
    a.log.on_write(Answer(TAKEN))
    pause = a.log.pause("after_read")
    request = a.start_deposit(X, 50, key("K1"))
    await pause.reached.wait()
    await b.deposit(X, 50, key(name))
    pause.go_on()
    it.last = await request


@pytest.mark.scenario("SWA-20")
async def test_a_taken_sequence_that_is_ours_is_a_success() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await _land_behind_its_back(it, a, b)
        outcome = done(it.last)
        assert outcome.how is How.ORIGINAL
        assert outcome.result.balance_cents == 150
        assert a.owners_asked() == ["ours"]
        assert len(a.log.writes) == 1


@pytest.mark.scenario("SWA-21")
async def test_the_verdict_ignores_another_writers_event_with_the_same_number() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        await it.write_foreign(X, 3, client_seq=2)
        await _land_behind_its_back(it, a, b)
        assert done(it.last).how is How.ORIGINAL
        assert a.owners_asked() == ["ours"]


@pytest.mark.scenario("SWA-21")
async def test_another_writers_event_is_no_proof_that_ours_is_not_there() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        await it.write_foreign(X, 3, client_seq=2)
        a.log.on_write(Answer(TAKEN))
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unresolved), outcome
        assert len(a.log.writes) == 1, "it must not go round again under a fresh number"
        owner_read = a.log.reads[-1].filters
        assert owner_read.include_client == it.identity.client_id
        assert (owner_read.min_client_seq, owner_read.max_client_seq) == (2, 2)


async def test_our_own_event_under_another_wish_is_a_key_used_twice() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(Answer(TAKEN))
        pause = a.log.pause("after_read")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await b.deposit(X, 51, key("K1"))
        pause.go_on()
        assert isinstance(await request, KeyReused)


@pytest.mark.scenario("SWA-27")
async def test_a_hidden_event_is_not_a_verdict_and_a_retry_settles_it() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_read(Pass(), Answer(AggregateMissingError(code=1001)))
        await _land_behind_its_back(it, a, b)
        outcome = it.last
        assert isinstance(outcome, Unresolved), outcome
        assert outcome.applied is Applied.UNKNOWN
        assert len(a.log.writes) == 1, "no fresh sequence in the call that learned nothing"
        again = done(await a.deposit(X, 50, key("K1")))
        assert again.how is How.ORIGINAL
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-28")
async def test_an_ownership_read_that_fails_is_asked_again_without_sending_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_read(Pass(), Answer(ReadTimeoutError()), Answer(ReadTimeoutError()))
        await _land_behind_its_back(it, a, b)
        assert done(it.last).how is How.ORIGINAL
        assert a.reads_of_owner() == 3
        assert len(a.log.writes) == 1


async def test_an_ownership_read_that_never_works_leaves_it_unresolved() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_read(Pass(), *[Answer(ReadTimeoutError())] * 5)
        await _land_behind_its_back(it, a, b)
        assert isinstance(it.last, Unresolved), it.last


async def test_a_landed_write_that_cannot_be_read_back_is_told_as_applied() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.forget()
        a.log.on_read(Pass(), Pass(), *[Answer(ReadTimeoutError())] * 5)
        await _land_behind_its_back(it, a, b)
        assert isinstance(it.last, Unresolved), it.last
        assert it.last.applied is Applied.APPLIED
        assert it.last.is_retryable


@pytest.mark.scenario("BC-05")
async def test_the_owner_of_a_sequence_on_a_deleted_aggregate_is_not_known() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(TAKEN))
        pause = a.log.pause("before_send")
        request = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await it.delete(X, allow_recreate=True)
        pause.go_on()
        outcome = await request
        assert isinstance(outcome, Unresolved), outcome
        assert a.owners_asked() == ["unwritten on every leg"]
        assert len(a.log.writes) == 1
        assert a.log.reads[-1].key == account_key(X)
