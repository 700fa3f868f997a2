"""Obligations: the floor rises, and only rises (log rules T)."""

from __future__ import annotations

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, B, Trial, delete, expect, key, write
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Landed,
    Page,
    Read,
    ReadFilters,
    SequenceTaken,
    Trim,
    TrimBeyondEnd,
    Trimmed,
    Unknown,
    VersionConflict,
)


async def _ten(trial: Trial) -> None:
    answers = await trial.ask_all(write(key(), seq, value=b"%d" % seq) for seq in range(1, 11))
    assert answers == [Landed((n,)) for n in range(1, 11)]


@obligation("SC-56", "T4", "BC-06")
async def a_trim_makes_older_versions_unreadable_and_nothing_else(trial: Trial) -> None:
    await _ten(trial)
    before = await trial.batches(key())
    await trial.trim(key(), 5)
    assert await trial.ask(Read(key())) == BelowFloor(1, 5)
    assert await trial.batches(key(), 5) == before[4:]
    details = await trial.details(key())
    assert (details.first_version, details.version, details.event_seq) == (5, 10, 10)
    assert await trial.ask(write(key(), 11, at=5)) == VersionConflict(key(), 5, 10)
    assert await trial.ask(write(key(), 3)) == SequenceTaken(key(), 10, 3)
    assert await trial.land(write(key(), 11, at=10)) == 11


@obligation("SC-57", "T1", "T2", "T3")
async def a_trim_is_bounded_by_the_newest_version_and_never_lowers(trial: Trial) -> None:
    await _ten(trial)
    for keep_from in (0, 1):
        assert await trial.ask(Trim(key(), keep_from, A)) == Trimmed()
    assert await trial.versions(key()) == list(range(1, 11))
    for keep_from in (11, 99):
        assert await trial.ask(Trim(key(), keep_from, A)) == TrimBeyondEnd(keep_from, 10)
    await trial.trim(key(), 10)
    assert await trial.versions(key(), 10) == [10]
    position = trial.engine.position
    for keep_from in (10, 5):
        assert await trial.ask(Trim(key(), keep_from, A)) == Trimmed()
    assert trial.engine.position == position, "a trim without effect writes nothing"
    assert (await trial.details(key())).first_version == 10


@obligation("SC-58", "T6", levers=(Lever.RESTART, Lever.RECLAIM))
async def a_floor_survives_writes_reclaim_and_restart(trial: Trial) -> None:
    await _ten(trial)
    await trial.trim(key(), 5)
    await trial.land(write(key(), 11))
    await trial.trim(key(), 6, B)
    for _ in range(2):
        details = await trial.details(key())
        assert (details.first_version, details.version, details.event_seq) == (6, 11, 11)
        assert details.last_client_id == B
        assert await trial.ask(Read(key())) == BelowFloor(1, 6)
        assert await trial.versions(key(), 6) == list(range(6, 12))
        await trial.reclaim()
        await trial.restart()
    assert await trial.land(write(key(), 12, at=11)) == 12


@obligation("SC-59", "R11", max_response_size=600)
async def a_trim_between_pages_is_told_with_where_to_go_on(trial: Trial) -> None:
    await trial.ask_all(write(key(), seq, value=bytes(200)) for seq in range(1, 11))
    first = expect(Page, await trial.ask(Read(key())))
    assert first.next_version is not None
    assert first.next_version < 8
    await trial.trim(key(), 8)
    following = Read(key(), ReadFilters(first.next_version))
    assert await trial.ask(following) == BelowFloor(first.next_version, 8)
    assert await trial.versions(key(), 8) == [8, 9, 10]


@obligation("T5", levers=(Lever.HOLD,))
async def a_trim_is_bounded_by_what_is_in_flight(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.hold()
    answers = trial.ask_all([write(key(), 2), Trim(key(), 2, A), Trim(key(), 3, A)])
    trial.release()
    assert await answers == [Landed((2,)), Trimmed(), TrimBeyondEnd(3, 2)]
    assert await trial.versions(key(), 2) == [2]


@obligation("T3", "C5", levers=(Lever.HOLD, Lever.FAIL))
async def a_trim_without_effect_is_answered_only_when_its_floor_is_durable(trial: Trial) -> None:
    await _ten(trial)
    trial.hold()
    effective = trial.ask(Trim(key(), 7, A))
    leaning = trial.ask(Trim(key(), 5, A))
    trial.fail_next()
    trial.release()
    expect(Unknown, await effective)
    assert await leaning == Trimmed()
    assert (await trial.details(key())).first_version == 5, "it took effect by itself"


@obligation("T1", "SC-60")
async def a_deleted_aggregate_cannot_be_trimmed(trial: Trial) -> None:
    await _ten(trial)
    await trial.ask(delete(key(), recreate=True))
    assert await trial.ask(Trim(key(), 1, A)) == AggregateMissing(key())
