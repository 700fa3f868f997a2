"""Obligations: flushes that fail, groups, and settings that are frozen (log rules C, G3)."""

from __future__ import annotations

from dataclasses import replace

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import Trial, expect, key, write
from landed.errors import StorageForeignError
from landed.log import (
    AggregateMissing,
    Answer,
    Landed,
    Read,
    SequenceInFlight,
    SequenceTaken,
    Unknown,
    VersionConflict,
)


@obligation("SC-74", "C6", "C7", levers=(Lever.HOLD, Lever.FAIL, Lever.RESTART))
async def a_failed_flush_leaves_the_old_state_and_free_numbers(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    before = await trial.details(key())
    trial.hold()
    failed = [trial.ask(write(key(), 2, value=b"lost")), trial.ask(write(key(2), 1))]
    assert await trial.ask(write(key(2), 1)) == SequenceInFlight(key(2), 1, 1), "both are accepted"
    trial.fail_next()
    trial.release()
    for answer in failed:
        expect(Unknown, await answer)
    assert await trial.details(key()) == before
    assert await trial.versions(key()) == [1]
    assert await trial.ask(Read(key(2))) == AggregateMissing(key(2))
    assert await trial.land(write(key(), 2, at=1, value=b"kept")) == 2
    await trial.restart()
    batches = await trial.batches(key())
    assert [batch.events[0].value for batch in batches] == [b"v", b"kept"]
    assert [batch.events[0].event_seq for batch in batches] == [1, 2]
    assert await trial.ask(Read(key(2))) == AggregateMissing(key(2))


@obligation("C6", levers=(Lever.HOLD, Lever.FAIL), group_writes_max=1)
async def what_was_accepted_on_top_of_a_failed_flush_fails_with_it(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.hold()
    failing = trial.ask_all(write(key(), seq, at=seq - 1) for seq in (2, 3, 4))
    trial.fail_next()
    trial.release()
    first, *others = await failing
    expect(Unknown, first)
    for answer in others:
        # An engine that judges a group only when the one before has settled finds a conflict.
        assert isinstance(answer, Unknown | VersionConflict)
    assert await trial.versions(key()) == [1]
    assert await trial.land(write(key(), 2, at=1)) == 2
    assert trial.engine.is_stopped is False


@obligation("C6", levers=(Lever.FAIL,))
async def many_flushes_may_fail_one_after_another(trial: Trial) -> None:
    for seq in range(1, 6):
        trial.fail_next()
        expect(Unknown, await trial.ask(write(key(), seq, at=seq - 1)))
        assert await trial.land(write(key(), seq, at=seq - 1)) == seq
    assert await trial.versions(key()) == [1, 2, 3, 4, 5]


@obligation("C1", "C4", levers=(Lever.HOLD,))
async def answers_come_in_the_order_of_the_changes(trial: Trial) -> None:
    order: list[int] = []

    def note(n: int) -> None:
        def done(answer: Answer) -> None:
            assert isinstance(answer, Landed)
            order.append(n)

        trial.engine.submit(write(key(n % 5), n), done)

    for n in range(1, 41):
        note(n)
    await trial.land(write(key(99), 1))
    assert order == list(range(1, 41))


@obligation("SC-75", "G3", levers=(Lever.RESTART,), num_shards=2)
async def placement_is_frozen_by_the_first_start(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    others = (
        replace(trial.limits, num_shards=3),
        replace(trial.limits, routing_rule="org_id"),
    )
    for limits in others:
        try:
            await trial.restart(limits)
        except StorageForeignError:
            pass
        else:
            raise AssertionError(f"it opened with {limits.num_shards} by {limits.routing_rule}")
    await trial.restart()
    assert await trial.ask(write(key(), 1)) == SequenceTaken(key(), 1, 1)


@obligation("C1")
async def closing_finishes_what_was_submitted(trial: Trial) -> None:
    pending = trial.ask_all([*(write(key(), seq) for seq in (1, 2, 3)), Read(key(2))])
    await trial.engine.close()
    await trial.engine.close()
    assert await pending == [Landed((1,)), Landed((2,)), Landed((3,)), AggregateMissing(key(2))]
    await trial.start()
    expected = [1, 2, 3] if await trial.ask(Read(key())) != AggregateMissing(key()) else []
    assert expected == [1, 2, 3]
