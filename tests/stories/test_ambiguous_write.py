"""A timeout on a write tells nothing. Ambiguous means: hold the sequence, refresh the version."""

from __future__ import annotations

import pytest

from landed.commands import Applied, How, Policy, Unavailable, Unresolved
from landed.errors import (
    BusyError,
    ConnectFailedError,
    OutcomeUnknownError,
    ReadTimeoutError,
    StorageError,
)
from tests.stories.faulty import Answer, DelayApply, LoseAnswer, LoseRequest, Pass
from tests.stories.fleet import X, done, fleet, key, until

PATIENT = Policy(attempts_max=9)


@pytest.mark.scenario("SWA-8", "BC-01")
async def test_a_write_whose_answer_is_lost_is_found_and_not_written_again() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(LoseAnswer())
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.result.balance_cents == 150
        assert outcome.how is How.ORIGINAL
        assert a.sent_seqs() == [2], "it was found by catching up, before anything was sent again"
        assert done(await b.deposit(X, 50, key("K1"))).results == outcome.results
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-9")
async def test_a_write_that_never_arrived_is_sent_again_under_the_same_sequence() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(LoseRequest())
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.FRESH
        assert a.sent_seqs() == [2, 2]
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-9")
async def test_a_held_sequence_is_held_whatever_else_becomes_known_meanwhile() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(LoseRequest())
        request = a.start_deposit(X, 50, key("K1"))
        await until(lambda: any(name == "loop.backed_off" for name, _ in a.facts))
        await a.projection.raise_floor(a.key_of(X), 40)
        done(await request)
        assert a.sent_seqs() == [2, 2]


@pytest.mark.scenario("SWA-10")
async def test_another_replica_finds_a_write_whose_writer_died_before_it_heard_the_answer() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        pause = a.log.pause("after_send")
        dying = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        dying.cancel()
        a.restart()
        outcome = done(await b.deposit(X, 50, key("K1")))
        assert outcome.how is How.ORIGINAL
        assert b.log.writes == []


@pytest.mark.scenario("SWA-11")
async def test_three_lost_writes_in_a_row_are_told_as_unknown_and_never_as_a_conflict() -> None:
    async with fleet(1, policy=Policy(attempts_max=3)) as it:
        (a,) = it.replicas
        a.log.on_write(LoseRequest(), LoseRequest(), LoseRequest())
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unresolved)
        assert outcome.applied is Applied.UNKNOWN
        assert outcome.attempts == 3
        again = done(await a.deposit(X, 50, key("K1")))
        assert again.result.balance_cents == 150
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-11")
async def test_with_its_attempts_over_the_loop_looks_once_more_before_it_gives_up() -> None:
    async with fleet(1, policy=Policy(attempts_max=1)) as it:
        (a,) = it.replicas
        a.log.on_write(LoseAnswer())
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.ORIGINAL


@pytest.mark.scenario("SWA-12")
async def test_a_write_of_unknown_outcome_that_becomes_visible_later_is_found() -> None:
    async with fleet(1, policy=PATIENT) as it:
        (a,) = it.replicas
        await a.loop.look(a.key_of(X))
        it.lane.gate.slow_s = 0.3
        a.log.on_write(DelayApply(0.0))
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.ORIGINAL
        assert set(a.sent_seqs()) == {2}
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-13")
async def test_a_write_of_unknown_outcome_that_is_rolled_back_is_written_once() -> None:
    async with fleet(1, policy=PATIENT) as it:
        (a,) = it.replicas
        await a.loop.look(a.key_of(X))
        it.lane.gate.slow_s = 0.2
        it.lane.gate.fails_next = StorageError("rolled back")
        a.log.on_write(DelayApply(0.0))
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.FRESH
        assert await it.count(key("K1")) == 1


@pytest.mark.scenario("SWA-14")
async def test_a_log_that_cannot_be_reached_is_told_as_proven_not_applied() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(*[Answer(ConnectFailedError("refused"))] * 5)
        for replica in (a, b):
            b.log.is_down = True
            outcome = await replica.deposit(X, 50, key(f"K {replica.name}"))
            assert isinstance(outcome, Unavailable)
            assert outcome.applied is Applied.NOT_APPLIED
            assert outcome.is_retryable


async def test_a_busy_log_is_waited_for_as_long_as_it_asks() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(BusyError(retry_after_s=2.0)))
        started = it.clock.monotonic_ms()
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert outcome.how is How.FRESH
        assert it.clock.monotonic_ms() - started >= 2000


@pytest.mark.scenario("SWA-15")
async def test_after_one_unknown_write_an_unreachable_log_is_told_as_unknown() -> None:
    async with fleet(2) as it:
        a, b = it.replicas
        a.log.on_write(LoseRequest(), *[Answer(ConnectFailedError("refused"))] * 4)
        b.log.on_write(LoseRequest())
        b.log.on_read(Pass(), *[Answer(ReadTimeoutError())] * 5)
        for replica in (a, b):
            outcome = await replica.deposit(X, 50, key(f"K {replica.name}"))
            assert isinstance(outcome, Unresolved), outcome
            assert outcome.applied is Applied.UNKNOWN


async def test_the_deadline_ends_a_call_whose_writes_keep_hanging() -> None:
    async with fleet(1, policy=Policy(attempts_max=1000)) as it:
        (a,) = it.replicas
        a.log.is_stuck = True
        started = it.clock.monotonic_ms()
        outcome = await a.deposit(X, 50, key("K1"))
        assert isinstance(outcome, Unresolved)
        assert it.clock.monotonic_ms() - started <= 20_001
        a.log.is_stuck = False


async def test_nothing_is_sent_once_the_deadline_has_passed() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        pause = a.log.pause("after_read")
        late = a.start_deposit(X, 50, key("K1"))
        await pause.reached.wait()
        await it.pass_time(21.0)
        pause.go_on()
        outcome = await late
        assert isinstance(outcome, Unavailable)
        assert a.log.writes == []


async def test_an_error_that_nobody_knows_is_unknown_for_a_write() -> None:
    async with fleet(1) as it:
        (a,) = it.replicas
        a.log.on_write(Answer(OutcomeUnknownError("server", code=2029)))
        outcome = done(await a.deposit(X, 50, key("K1")))
        assert a.sent_seqs() == [2, 2]
        assert outcome.result.balance_cents == 150
