"""Obligations: failures that people reported elsewhere (cases BC-01, BC-02, BC-05, BC-06, BC-10)."""

from __future__ import annotations

from uuid import UUID

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, Trial, count, key, leg, write
from landed.ids import EventId
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Landed,
    Read,
    SequenceTaken,
    VersionConflict,
    Write,
)


def _with_id(write: Write, n: int) -> Write:
    (only,) = write.legs
    events = tuple(event._replace(event_id=EventId(UUID(int=n))) for event in only.events)
    return write._replace(legs=(only._replace(events=events),))


@obligation("BC-01")
async def the_log_never_looks_into_event_ids(trial: Trial) -> None:
    for seq in (5, 6, 7):
        await trial.land(write(key(), seq))
    first = _with_id(write(key(), 8, at=3), 1)
    assert await trial.land(first) == 4
    assert await trial.ask(first) == VersionConflict(key(), 3, 4)
    assert await trial.ask(_with_id(write(key(), 8, at=4), 1)) == SequenceTaken(key(), 8, 8)
    assert await trial.ask(_with_id(write(key(), 8), 1)) == SequenceTaken(key(), 8, 8)
    assert (await trial.details(key())).version == 4
    assert await trial.land(_with_id(write(key(), 9, at=4), 1)) == 5


@obligation("BC-02", "I6", "I7")
async def writes_that_overlap_repeat_or_disorder_their_sequences(trial: Trial) -> None:
    one, two = key(1), key(2)
    await trial.land(write(one, 8))
    await trial.land(write(two, 3))
    assert await trial.ask(write(one, 8, 9)) == SequenceTaken(one, 8, 8)
    assert await trial.written(one) == [(A, 8)]
    assert await trial.land(write(one, 9)) == 2
    assert await trial.land(write(one, 10, 10)) == 3
    assert await trial.land(write(one, 12, 11)) == 4
    assert await trial.land(write(one, 13, 15)) == 5
    assert await trial.ask(write(one, 14)) == SequenceTaken(one, 15, 14)
    refused = Write(A, (leg(one, 16), leg(two, 3)))
    assert await trial.ask(refused) == SequenceTaken(two, 3, 3)
    assert (await trial.details(one)).version == 5
    assert await trial.land(write(one, 16, at=5)) == 6


@obligation("BC-05", levers=(Lever.RESTART,))
async def a_write_after_a_delete_is_never_acknowledged_and_invisible(trial: Trial) -> None:
    for seq in (1, 2, 3):
        await trial.land(write(key(), seq))
    await trial.delete(key(), recreate=True, go_on=True)
    assert await trial.ask(write(key(), 4, create=False)) == AggregateMissing(key())
    assert await trial.ask(write(key(), 4, at=0)) == VersionConflict(key(), 0, 3)
    assert await trial.ask(Read(key())) == AggregateMissing(key())
    assert await trial.land(write(key(), 4, at=3)) == 4
    assert await trial.versions(key(), 4) == [4]
    assert await trial.ask(write(key(), 2, at=4)) == SequenceTaken(key(), 4, 2)
    point = {"include_client": A, "min_client_seq": 2, "max_client_seq": 2}
    assert await trial.batches(key(), 4, **point) == []
    await trial.restart()
    assert await trial.versions(key(), 4) == [4]


@obligation("BC-06")
async def a_reader_below_the_floor_is_told_and_skips_nothing(trial: Trial) -> None:
    for seq in range(1, 11):
        await trial.land(write(key(), seq))
    await trial.trim(key(), 6)
    assert await trial.ask(Read(key())) == BelowFloor(1, 6)
    assert await trial.versions(key(), 6) == [6, 7, 8, 9, 10]
    for seq, found in ((4, []), (8, [8])):
        point = {"include_client": A, "min_client_seq": seq, "max_client_seq": seq}
        assert [b.version for b in await trial.batches(key(), 6, **point)] == found
    await trial.trim(key(), 8)
    assert await trial.ask(Read(key())) == BelowFloor(1, 8)


@obligation("BC-10", levers=(Lever.RECLAIM, Lever.RESTART))
async def neighbours_in_a_group_neither_complete_nor_undo_each_other(trial: Trial) -> None:
    """Half of the writes fail at their second leg while housekeeping runs between them."""
    stale = key(999)
    await trial.land(write(stale, 1))
    pending = []
    for n in range(20):
        second = leg(key(100 + n), 1, at=0) if n % 2 else leg(stale, 1)
        pending.append(trial.ask(Write(A, (leg(key(n), 1, at=0), second))))
        if n % 5 == 0:
            await trial.reclaim()
    answers = [await answer for answer in pending]
    assert (count(Landed, answers), count(SequenceTaken, answers)) == (10, 10)
    for _ in range(2):
        for n in range(20):
            if n % 2:
                assert await trial.versions(key(n)) == await trial.versions(key(100 + n)) == [1]
            else:
                assert await trial.ask(Read(key(n))) == AggregateMissing(key(n))
        assert await trial.versions(stale) == [1]
        await trial.restart()
