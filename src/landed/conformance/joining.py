"""Obligations: one write to several aggregates is all or nothing (log rules M1 to M8)."""

from __future__ import annotations

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, Trial, count, expect, key, leg, write
from landed.log import (
    AggregateMissing,
    Details,
    GetDetails,
    Landed,
    Misrouted,
    NoEvents,
    SequenceTaken,
    Unknown,
    VersionConflict,
    Write,
)

HERE = key(1)
THERE = key(2)


@obligation("SC-37")
async def two_aggregates_are_created_in_one_write(trial: Trial) -> None:
    created = Write(A, (leg(HERE, 1, at=0), leg(THERE, 1, at=0)))
    assert await trial.ask(created) == Landed((1, 1))
    assert await trial.versions(HERE) == await trial.versions(THERE) == [1]


@obligation("SC-38", "M1", "M6")
async def a_stale_leg_keeps_every_leg_from_landing(trial: Trial) -> None:
    await trial.land(write(HERE, 1))
    await trial.land(write(THERE, 1))
    stale = Write(A, (leg(HERE, 2, at=1), leg(THERE, 2, at=0)))
    assert await trial.ask(stale) == VersionConflict(THERE, 0, 1)
    assert await trial.written(HERE) == await trial.written(THERE) == [(A, 1)]
    right = Write(A, (leg(HERE, 2, at=1), leg(THERE, 2, at=1)))
    assert await trial.ask(right) == Landed((2, 2))


@obligation("SC-39")
async def of_two_writes_racing_for_one_leg_one_lands_whole(trial: Trial) -> None:
    shared, left, right = key(1), key(2), key(3)
    await trial.land(write(shared, 1))
    answers = await trial.ask_all(
        Write(A, (leg(other, seq, at=0), leg(shared, seq, at=1)))
        for other, seq in ((left, 2), (right, 3))
    )
    assert answers == [Landed((1, 2)), VersionConflict(shared, 1, 2)]
    assert await trial.written(shared) == [(A, 1), (A, 2)]
    assert await trial.written(left) == [(A, 2)]
    assert await trial.ask(GetDetails(right)) == AggregateMissing(right)


@obligation("SC-40", num_shards=8)
async def keys_on_different_shards_are_refused_and_keys_on_one_are_not(trial: Trial) -> None:
    apart = Write(A, (leg(key(1), 1), leg(key(2), 1)))
    refusal = expect(Misrouted, await trial.ask(apart))
    assert (refusal.is_nothing, refusal.num_shards) == (False, 8)
    for each in (key(1), key(2)):
        assert await trial.ask(GetDetails(each)) == AggregateMissing(each)
    together = Write(A, (leg(key(1), 1), leg(key(9), 1), leg(key(17), 1)))
    assert await trial.ask(together) == Landed((1, 1, 1))


@obligation("SC-41", "M3")
async def a_leg_without_events_keeps_every_leg_from_landing(trial: Trial) -> None:
    await trial.land(write(HERE, 1))
    assert await trial.ask(Write(A, (leg(HERE, 2), leg(THERE)))) == NoEvents(THERE)
    assert await trial.written(HERE) == [(A, 1)]
    assert await trial.land(write(HERE, 2)) == 2


@obligation("M3")
async def the_first_failing_leg_is_the_answer(trial: Trial) -> None:
    await trial.land(write(HERE, 1))
    await trial.land(write(THERE, 1))
    taken_then_stale = Write(A, (leg(HERE, 1), leg(THERE, 2, at=0)))
    assert await trial.ask(taken_then_stale) == SequenceTaken(HERE, 1, 1)
    stale_then_taken = Write(A, (leg(THERE, 2, at=0), leg(HERE, 1)))
    assert await trial.ask(stale_then_taken) == VersionConflict(THERE, 0, 1)


@obligation("SC-42")
async def a_transfer_resent_with_fresh_guards_is_taken(trial: Trial) -> None:
    transfer = Write(A, (leg(HERE, 1, at=0), leg(THERE, 1, at=0)))
    await trial.ask(transfer)
    assert await trial.ask(transfer) == VersionConflict(HERE, 0, 1)
    refreshed = Write(A, (leg(HERE, 1, at=1), leg(THERE, 1, at=1)))
    assert await trial.ask(refreshed) == SequenceTaken(HERE, 1, 1)
    assert await trial.written(HERE) == await trial.written(THERE) == [(A, 1)]


@obligation("SC-43", "M7")
async def legs_become_visible_together(trial: Trial) -> None:
    for seq in range(1, 21):
        pending = trial.ask(Write(A, (leg(HERE, seq), leg(THERE, seq))))

        async def there_shows_it(seq: int = seq) -> bool:
            answer = await trial.ask(GetDetails(THERE))
            return isinstance(answer, Details) and answer.version == seq

        await trial.until(there_shows_it)
        assert (await trial.details(HERE)).version == seq
        assert await trial.versions(HERE) == list(range(1, seq + 1))
        await pending


@obligation("M8", "C10", levers=(Lever.FAIL, Lever.RESTART))
async def legs_fail_together(trial: Trial) -> None:
    await trial.ask(Write(A, (leg(HERE, 1), leg(THERE, 1))))
    trial.fail_next()
    expect(Unknown, await trial.ask(Write(A, (leg(HERE, 2), leg(THERE, 2)))))
    for _ in range(2):
        assert await trial.written(HERE) == await trial.written(THERE) == [(A, 1)]
        await trial.restart()


@obligation("M1")
async def a_write_of_many_legs_lands_whole(trial: Trial) -> None:
    keys = [key(n) for n in range(200)]
    answer = await trial.ask(Write(A, tuple(leg(each, 1, 2, at=0) for each in keys)))
    assert answer == Landed((1,) * 200)
    answers = await trial.ask_all(write(each, 2) for each in keys)
    assert count(SequenceTaken, answers) == 200
