"""Obligations: shape, existence, the version guard, and the order of the checks (W2 to W9, W16 to W19)."""

from __future__ import annotations

from uuid import UUID

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, B, Trial, count, delete, expect, key, leg, write
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    Busy,
    Deleted,
    Event,
    GetDetails,
    Landed,
    Leg,
    Misrouted,
    NoEvents,
    ReservedType,
    SequenceTaken,
    Unknown,
    VersionConflict,
    Write,
)


@obligation("SC-09")
async def a_malformed_leg_is_refused_before_any_state_is_looked_at(trial: Trial) -> None:
    assert await trial.ask(write(key())) == NoEvents(key())
    reserved = Event.new(0, b"", client_seq=6, event_id=None)
    bad = Write.to(key(), (reserved,), client_id=A, expected_version=5)
    assert await trial.ask(bad) == ReservedType(key(), 6)
    both = Write(A, (leg(key(), 1, at=9), Leg(key(2), (reserved,), 0, True, True)))
    assert await trial.ask(both) == ReservedType(key(2), 6)
    assert await trial.ask(GetDetails(key())) == AggregateMissing(key())


@obligation("SC-10")
async def an_unknown_aggregate_is_not_created_unasked(trial: Trial) -> None:
    assert await trial.ask(write(key(), 1, create=False)) == AggregateMissing(key())
    assert await trial.ask(GetDetails(key())) == AggregateMissing(key())


@obligation("W8")
async def existence_is_checked_before_the_guard(trial: Trial) -> None:
    assert await trial.ask(write(key(), 1, at=0, create=False)) == AggregateMissing(key())
    assert await trial.ask(write(key(), 1, at=7)) == VersionConflict(key(), 7, 0)


@obligation("SC-11", "W17")
async def a_conflict_appends_nothing(trial: Trial) -> None:
    assert await trial.land(write(key(), 1, at=0)) == 1
    assert await trial.land(write(key(), 2, at=1)) == 2
    assert await trial.ask(write(key(), 3, at=1)) == VersionConflict(key(), 1, 2)
    assert await trial.versions(key()) == [1, 2]
    assert await trial.land(write(key(), 3, at=2)) == 3


@obligation("SC-12", "W7")
async def create_only_fails_on_an_existing_aggregate(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    assert await trial.ask(write(key(), 2, at=0)) == VersionConflict(key(), 0, 1)


@obligation("SC-13")
async def an_unguarded_write_succeeds_at_any_version(trial: Trial) -> None:
    for seq in range(1, 6):
        assert await trial.land(write(key(), seq)) == seq
    assert await trial.land(write(key(), 1, client=B, create=False)) == 6


@obligation("SC-14", "W18")
async def of_writers_with_one_guard_one_succeeds(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    answers = await trial.ask_all(
        Write.to(
            key(), write(key(), 1).legs[0].events, client_id=UUID(int=50 + n), expected_version=1
        )
        for n in range(16)
    )
    assert (count(Landed, answers), count(VersionConflict, answers)) == (1, 15)
    assert await trial.versions(key()) == [1, 2]


@obligation("SC-15")
async def of_creators_one_succeeds(trial: Trial) -> None:
    answers = await trial.ask_all(
        Write.to(
            key(), write(key(), 1).legs[0].events, client_id=UUID(int=50 + n), expected_version=0
        )
        for n in range(16)
    )
    assert (count(Landed, answers), count(VersionConflict, answers)) == (1, 15)
    (batch,) = await trial.batches(key())
    assert (batch.version, len(batch.events)) == (1, 1)


@obligation("SC-16", "I13")
async def the_guard_is_checked_before_the_sequence(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    await trial.land(write(key(), 2))
    assert await trial.ask(write(key(), 2, at=1)) == VersionConflict(key(), 1, 2)
    assert await trial.ask(write(key(), 2, at=2)) == SequenceTaken(key(), 2, 2)
    assert await trial.land(write(key(), 3, at=2)) == 3


@obligation("SC-17", "I13")
async def a_resend_of_a_landed_guarded_write_is_a_conflict_until_refreshed(trial: Trial) -> None:
    await trial.land(write(key(), 1, at=0))
    assert await trial.ask(write(key(), 1, at=0)) == VersionConflict(key(), 0, 1)
    assert await trial.ask(write(key(), 1, at=1)) == SequenceTaken(key(), 1, 1)
    assert await trial.written(key()) == [(A, 1)]


@obligation("W9", levers=(Lever.HOLD,))
async def the_guard_looks_at_what_is_in_flight(trial: Trial) -> None:
    trial.hold()
    first = trial.ask(write(key(), 1, at=0))
    second = trial.ask(write(key(), 2, at=1))
    stale = trial.ask(write(key(), 3, at=0))
    trial.release()
    assert await first == Landed((1,))
    assert await second == Landed((2,))
    assert await stale == VersionConflict(key(), 0, 2)


@obligation("W19", levers=(Lever.HOLD, Lever.FAIL))
async def a_refusal_that_rests_on_a_failed_delete_is_withdrawn(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.hold()
    gone = trial.ask(delete(key()))
    closed = trial.ask(write(key(), 2))
    missing = trial.ask(delete(key(), at=1))
    trial.fail_next()
    trial.release()
    expect(Unknown, await gone)
    assert await closed == Landed((2,)), "the delete never happened, so nothing was closed"
    assert await missing == VersionConflict(key(), 1, 2)
    assert await trial.versions(key()) == [1, 2]


@obligation("W19", levers=(Lever.HOLD,))
async def a_refusal_that_rests_on_a_queued_delete_holds_once_it_is_durable(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.hold()
    gone = trial.ask(delete(key()))
    closed = trial.ask(write(key(), 2))
    missing = trial.ask(delete(key()))
    trial.release()
    assert await gone == Deleted()
    assert await closed == AggregateClosed(key())
    assert await missing == AggregateMissing(key())


@obligation("W20", levers=(Lever.HOLD,))
async def a_write_nobody_waits_for_is_carried_to_its_end(trial: Trial) -> None:
    trial.hold()
    trial.ask(write(key(), 1)).cancel()
    behind = trial.ask(write(key(2), 1))
    trial.release()
    await behind
    assert await trial.written(key()) == [(A, 1)]


@obligation("G5", "G6", num_shards=4)
async def routing_is_checked_before_anything_else(trial: Trial) -> None:
    nothing = expect(Misrouted, await trial.ask(Write(A, ())))
    assert (nothing.is_nothing, nothing.num_shards) == (True, 4)
    assert expect(Misrouted, await trial.ask(delete())).is_nothing
    apart = expect(Misrouted, await trial.ask(Write(A, (leg(key(1)), leg(key(2), 1)))))
    assert (apart.is_nothing, apart.num_shards) == (False, 4)


@obligation("M9")
async def a_key_named_twice_is_refused_and_changes_nothing(trial: Trial) -> None:
    expect(Misrouted, await trial.ask(Write(A, (leg(key(), 1), leg(key(), 2)))))
    assert await trial.ask(GetDetails(key())) == AggregateMissing(key())
    await trial.land(write(key(), 1))
    expect(Misrouted, await trial.ask(delete(key(), key())))
    assert await trial.versions(key()) == [1]


@obligation("G4", levers=(Lever.HOLD,), queued_writes_max=3)
async def above_the_queue_bound_the_answer_is_busy_and_nothing_is_accepted(trial: Trial) -> None:
    trial.hold()
    accepted = [trial.ask(write(key(), seq)) for seq in (1, 2, 3)]
    assert await trial.ask(write(key(), 4)) == Busy()
    trial.release()
    assert [await answer for answer in accepted] == [Landed((n,)) for n in (1, 2, 3)]
    assert await trial.land(write(key(), 4)) == 4
    assert await trial.versions(key()) == [1, 2, 3, 4]


@obligation("G4", levers=(Lever.HOLD,), queued_bytes_max=1_000)
async def the_queue_is_bounded_in_bytes_too(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.hold()
    large = trial.ask(write(key(), 2, value=bytes(1_000)))
    assert await trial.ask(write(key(), 3)) == Busy()
    trial.release()
    assert await large == Landed((2,))
    assert await trial.land(write(key(), 3)) == 3
