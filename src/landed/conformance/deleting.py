"""Obligations: delete and recreate, and that old lives stay buried (log rules D)."""

from __future__ import annotations

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, Trial, delete, expect, key, leg, write
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    BelowFloor,
    Delete,
    Deleted,
    DeleteLeg,
    GetDetails,
    Landed,
    Misrouted,
    Read,
    Request,
    Trim,
    Unknown,
    VersionConflict,
    Write,
)


async def _fill(trial: Trial, count: int) -> None:
    for seq in range(1, count + 1):
        await trial.land(write(key(), seq))


@obligation("SC-60", "D5")
async def a_deleted_aggregate_is_gone_for_readers(trial: Trial) -> None:
    await _fill(trial, 3)
    await trial.delete(key())
    missing = AggregateMissing(key())
    assert await trial.ask(Read(key())) == missing
    assert await trial.ask(delete(key())) == missing
    assert await trial.ask(Trim(key(), 2, A)) == missing
    details = await trial.details(key())
    assert (details.is_deleted, details.first_version, details.version) == (True, 0, 3)
    assert details.event_seq == 3


@obligation("SC-61")
async def a_delete_with_a_stale_guard_changes_nothing(trial: Trial) -> None:
    await _fill(trial, 2)
    assert await trial.ask(delete(key(), at=1)) == VersionConflict(key(), 1, 2)
    assert await trial.versions(key()) == [1, 2]
    assert await trial.ask(delete(key(), at=2)) == Deleted()


@obligation("D2", "D3")
async def a_missing_aggregate_beats_a_conflict_and_nothing_is_deleted(trial: Trial) -> None:
    await trial.land(write(key(1), 1))
    both = Delete(A, (DeleteLeg(key(1), 9, False, False), DeleteLeg(key(2), None, False, False)))
    assert await trial.ask(both) == AggregateMissing(key(2))
    await trial.land(write(key(2), 1))
    assert await trial.ask(both) == VersionConflict(key(1), 9, 1)
    assert await trial.versions(key(1)) == await trial.versions(key(2)) == [1]
    assert await trial.ask(delete(key(1), key(2), at=1)) == Deleted()
    for each in (key(1), key(2)):
        assert await trial.ask(Read(each)) == AggregateMissing(each)


@obligation("SC-62", "D6", levers=(Lever.RESTART,))
async def a_final_delete_closes_the_key_for_ever(trial: Trial) -> None:
    await _fill(trial, 1)
    await trial.delete(key(), go_on=True)
    for _ in range(2):
        for at in (None, 0, 1):
            assert await trial.ask(write(key(), 2, at=at)) == AggregateClosed(key())
        assert await trial.ask(write(key(), 2, create=False)) == AggregateClosed(key())
        await trial.restart()


@obligation("SC-63", "X5", "D8", "D10", levers=(Lever.RESTART,))
async def a_recreate_may_go_on_counting(trial: Trial) -> None:
    await _fill(trial, 5)
    await trial.delete(key(), recreate=True, go_on=True)
    assert await trial.land(write(key(), 6, at=5)) == 6
    for _ in range(2):
        assert await trial.ask(Read(key())) == BelowFloor(1, 6)
        (batch,) = await trial.batches(key(), 6)
        assert [event.event_seq for event in batch.events] == [6]
        assert (await trial.details(key())).first_version == 6
        await trial.restart()


@obligation("SC-64", "X4", "X5", "D9", levers=(Lever.RESTART, Lever.RECLAIM))
async def a_recreate_may_start_again(trial: Trial) -> None:
    await _fill(trial, 3)
    await trial.delete(key(), recreate=True)
    for version in (1, 2, 3):
        assert await trial.land(write(key(), 10 + version, value=b"new")) == version
    for _ in range(2):
        batches = await trial.batches(key())
        assert [batch.version for batch in batches] == [1, 2, 3]
        assert [event.event_seq for batch in batches for event in batch.events] == [1, 2, 3]
        assert {event.value for batch in batches for event in batch.events} == {b"new"}
        await trial.reclaim()
        await trial.restart()


@obligation("SC-65", "X5", "D12", levers=(Lever.RESTART, Lever.RECLAIM))
async def only_the_present_life_is_readable(trial: Trial) -> None:
    seq = 0
    for life in range(3):
        for _ in range(2):
            seq += 1
            assert await trial.land(write(key(), seq)) == seq
        if life < 2:
            await trial.delete(key(), recreate=True, go_on=True)
    for _ in range(2):
        assert await trial.ask(Read(key())) == BelowFloor(1, 5)
        assert await trial.versions(key(), 5) == [5, 6]
        await trial.reclaim()
        await trial.restart()


@obligation("SC-66", "D11", "C11", levers=(Lever.RESTART,))
async def a_continued_life_never_reuses_an_acknowledged_version(trial: Trial) -> None:
    await _fill(trial, 4)
    await trial.trim(key(), 3)
    await trial.delete(key(), recreate=True, go_on=True)
    assert await trial.land(write(key(), 5)) == 5
    await trial.restart()
    assert await trial.land(write(key(), 6)) == 6
    assert (await trial.details(key())).first_version == 5, "a floor ends with its life"


@obligation("D11")
async def a_floor_ends_with_its_life(trial: Trial) -> None:
    await _fill(trial, 4)
    await trial.trim(key(), 3)
    await trial.delete(key(), recreate=True)
    assert await trial.land(write(key(), 5)) == 1
    assert await trial.versions(key()) == [1]


@obligation("D7", "W4", "W6", "X6", "X7")
async def a_recreate_is_an_ordinary_write(trial: Trial) -> None:
    await _fill(trial, 3)
    await trial.delete(key(), recreate=True)
    assert await trial.ask(write(key(), 4, create=False)) == AggregateMissing(key())
    assert await trial.ask(write(key(), 4, at=0)) == VersionConflict(key(), 0, 3)
    assert await trial.ask(write(key(), 4, at=3)) == Landed((1,))
    assert await trial.ask(write(key(), 5, at=3)) == VersionConflict(key(), 3, 1)


@obligation("D12", levers=(Lever.RESTART,))
async def each_round_may_choose_its_flags_anew(trial: Trial) -> None:
    versions = []
    for seq, go_on in enumerate((False, True, True, False, True), 1):
        versions.append(await trial.land(write(key(), seq)))
        await trial.delete(key(), recreate=True, go_on=go_on)
        await trial.restart()
    assert versions == [1, 1, 2, 3, 1]
    await trial.land(write(key(), 6))
    await trial.delete(key())
    assert await trial.ask(write(key(), 7)) == AggregateClosed(key())


@obligation("SC-67", "D3")
async def a_final_delete_and_a_write_on_one_version_exclude_each_other(trial: Trial) -> None:
    for n, delete_first in ((1, True), (2, False)):
        await trial.land(write(key(n), 1))
        racers: list[Request] = [delete(key(n), at=1), write(key(n), 2, at=1)]
        answers = await trial.ask_all(racers if delete_first else racers[::-1])
        if delete_first:
            assert answers == [Deleted(), AggregateClosed(key(n))]
        else:
            assert answers == [Landed((2,)), VersionConflict(key(n), 1, 2)]


@obligation("SC-68", num_shards=4)
async def a_delete_over_two_shards_is_refused(trial: Trial) -> None:
    await trial.land(write(key(1), 1))
    await trial.land(write(key(2), 1))
    refusal = expect(Misrouted, await trial.ask(delete(key(1), key(2))))
    assert (refusal.is_nothing, refusal.num_shards) == (False, 4)
    assert await trial.versions(key(1)) == await trial.versions(key(2)) == [1]


@obligation("D4", levers=(Lever.HOLD,))
async def a_tombstone_records_what_was_in_flight_before_it(trial: Trial) -> None:
    await _fill(trial, 1)
    trial.hold()
    changes: list[Request] = [
        write(key(), 2, 3),
        delete(key(), recreate=True, go_on=True),
        write(key(), 4),
    ]
    answers = trial.ask_all(changes)
    trial.release()
    assert await answers == [Landed((2,)), Deleted(), Landed((3,))]
    (batch,) = await trial.batches(key(), 3)
    assert [event.event_seq for event in batch.events] == [4]


@obligation("C5", "C6", levers=(Lever.FAIL,))
async def a_delete_that_failed_to_flush_deleted_nothing(trial: Trial) -> None:
    await trial.ask(Write(A, (leg(key(1), 1), leg(key(2), 1))))
    trial.fail_next()
    expect(Unknown, await trial.ask(delete(key(1), key(2))))
    assert await trial.versions(key(1)) == await trial.versions(key(2)) == [1]
    assert await trial.land(write(key(1), 2, at=1)) == 2


@obligation("SC-69", "C13", levers=(Lever.RECLAIM, Lever.RESTART))
async def reclaiming_dead_data_changes_no_answer(trial: Trial) -> None:
    for n in range(1, 7):
        await trial.ask_all(write(key(n), seq, value=bytes(100)) for seq in range(1, 6))
    await trial.trim(key(1), 4)
    await trial.delete(key(2))
    await trial.delete(key(3), recreate=True)
    await trial.land(write(key(3), 6))
    await trial.delete(key(4), recreate=True, go_on=True)
    await trial.land(write(key(4), 6))
    await trial.delete(key(5), recreate=True)

    async def answers() -> list[object]:
        requests = [Read(key(n)) for n in range(1, 7)]
        details = [GetDetails(key(n)) for n in range(1, 7)]
        return [*await trial.ask_all([*requests, *details]), await trial.entries()]

    before = await answers()
    await trial.reclaim()
    assert await answers() == before
    await trial.restart()
    assert await answers() == before
