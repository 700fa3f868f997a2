"""2013: some write of ours is accepted and not yet durable. Success now could be a false ack."""

from __future__ import annotations

import pytest

from landed.commands import Applied, How, Unresolved
from landed.errors import SequenceInFlightError, SequenceTakenError
from tests.stories.faulty import Answer
from tests.stories.fleet import X, done, fleet, key

IN_FLIGHT = SequenceInFlightError(highest_seq=2, attempted_seq=2)
TAKEN = SequenceTakenError(highest_seq=2, attempted_seq=2)


@pytest.mark.scenario("SWA-30")
async def test_in_flight_that_turns_into_taken_by_us_is_a_success() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(Answer(IN_FLIGHT), Answer(IN_FLIGHT), Answer(TAKEN))
        first, second, third = [a.log.pause("after_read") for _ in range(3)]
        first.go_on()
        second.go_on()
        request = a.start_deposit(X, 50, key("K1"))
        await third.reached.wait()
        await b.deposit(X, 50, key("K1"))
        third.go_on()
        outcome = done(await request)
        assert outcome.how is How.ORIGINAL
        assert a.sent_seqs() == [2, 2, 2]
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-31")
async def test_in_flight_that_is_rolled_back_leads_to_a_clean_write() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(IN_FLIGHT))
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.FRESH
        assert a.sent_seqs() == [2, 2]
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-32")
async def test_in_flight_to_the_end_is_told_as_unknown() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(*[Answer(IN_FLIGHT)] * 5)
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unresolved), outcome
        assert outcome.applied is Applied.UNKNOWN
        assert a.sent_seqs() == [2] * 5
