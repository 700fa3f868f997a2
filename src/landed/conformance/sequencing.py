"""Obligations: client sequences, taken and in flight (log rules I1 to I14, I20; design decision 17)."""

from __future__ import annotations

from landed.conformance.registry import Lever, obligation
from landed.conformance.trial import A, B, Trial, count, expect, key, leg, write
from landed.log import (
    Landed,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    Unknown,
    VersionConflict,
    Write,
)


@obligation("SC-18")
async def a_sequence_that_landed_is_taken(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    assert await trial.ask(write(key(), 1)) == SequenceTaken(key(), 1, 1)
    assert await trial.written(key()) == [(A, 1)]


@obligation("SC-19", "I1")
async def marks_belong_to_one_client_on_one_aggregate(trial: Trial) -> None:
    assert await trial.land(write(key(1), 1, client=A)) == 1
    assert await trial.land(write(key(1), 1, client=B)) == 2
    assert await trial.land(write(key(2), 1, client=A)) == 1


@obligation("SC-20", "I5")
async def unenforced_writes_raise_the_mark_too(trial: Trial) -> None:
    await trial.land(write(key(), 1, enforce=False))
    await trial.land(write(key(), 2, enforce=False))
    assert await trial.ask(write(key(), 1)) == SequenceTaken(key(), 2, 1)


@obligation("SC-21", "I4", "I5")
async def unenforced_writes_are_never_refused_and_never_lower_the_mark(trial: Trial) -> None:
    await trial.land(write(key(), 10))
    for version, seq in enumerate((10, 10, 4), 2):
        assert await trial.land(write(key(), seq, enforce=False)) == version
    assert await trial.ask(write(key(), 10)) == SequenceTaken(key(), 10, 10)
    assert await trial.land(write(key(), 11)) == 5


@obligation("SC-22", "I2", "I7")
async def skipped_sequences_are_skipped_for_good(trial: Trial) -> None:
    await trial.land(write(key(), 5))
    await trial.land(write(key(), 9))
    assert await trial.ask(write(key(), 7)) == SequenceTaken(key(), 9, 7)


@obligation("SC-23", "I6", "I7")
async def a_write_is_checked_by_its_lowest_and_recorded_by_its_highest(trial: Trial) -> None:
    await trial.land(write(key(), 3))
    assert await trial.land(write(key(), 4, 4)) == 2
    await trial.land(write(key(), 5))
    assert await trial.ask(write(key(), 5, 6)) == SequenceTaken(key(), 5, 5)
    assert await trial.land(write(key(), 9, 6, 8)) == 4
    assert await trial.ask(write(key(), 7)) == SequenceTaken(key(), 9, 7)
    assert await trial.land(write(key(), 10)) == 5


@obligation("SC-24", "I14")
async def a_refused_write_leaves_its_sequence_free(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    assert await trial.ask(write(key(), 2, at=0)) == VersionConflict(key(), 0, 1)
    assert await trial.land(write(key(), 2, at=1)) == 2


@obligation("SC-25", "I20")
async def of_copies_of_one_sequence_one_succeeds(trial: Trial) -> None:
    answers = await trial.ask_all(write(key(), 1) for _ in range(16))
    assert count(Landed, answers) == 1
    assert count(SequenceTaken, answers) + count(SequenceInFlight, answers) == 15
    assert await trial.written(key()) == [(A, 1)]


@obligation("SC-26", "I9", levers=(Lever.HOLD,))
async def a_sequence_in_flight_is_not_called_taken(trial: Trial) -> None:
    trial.hold()
    first = trial.ask(write(key(), 5))
    second = trial.ask(write(key(), 5))
    trial.release()
    assert await first == Landed((1,))
    assert await second == SequenceInFlight(key(), 5, 5)
    assert await trial.ask(write(key(), 5)) == SequenceTaken(key(), 5, 5)


@obligation("SC-27", "I11", levers=(Lever.HOLD,))
async def a_client_may_pipeline_rising_sequences(trial: Trial) -> None:
    trial.hold()
    answers = trial.ask_all(write(key(), seq) for seq in (5, 6, 7))
    trial.release()
    assert await answers == [Landed((1,)), Landed((2,)), Landed((3,))]
    assert await trial.written(key()) == [(A, 5), (A, 6), (A, 7)]


@obligation("SC-28", levers=(Lever.HOLD,))
async def a_resend_after_a_lost_answer_does_not_double(trial: Trial) -> None:
    trial.hold()
    trial.ask(write(key(), 1)).cancel()
    assert await trial.ask(write(key(), 1)) == SequenceInFlight(key(), 1, 1)
    behind = trial.ask(write(key(2), 1))
    trial.release()
    assert await behind == Landed((1,))
    assert await trial.ask(write(key(), 1)) == SequenceTaken(key(), 1, 1)
    assert await trial.written(key()) == [(A, 1)]


@obligation("SC-29")
async def siblings_of_one_client_can_tell_whose_sequence_it_was(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    theirs = await trial.land(write(key(), 2, at=1, value=b"sibling A"))
    assert theirs == 2
    assert await trial.ask(write(key(), 2, at=2, value=b"B")) == SequenceTaken(key(), 2, 2)
    (batch,) = await trial.batches(key(), min_client_seq=2, max_client_seq=2, include_client=A)
    assert batch.events[0].value == b"sibling A"
    assert await trial.land(write(key(), 3, at=2, value=b"B")) == 3


@obligation("I8")
async def zero_is_no_sequence(trial: Trial) -> None:
    assert await trial.land(write(key(), 0)) == 1
    assert await trial.land(write(key(), 0)) == 2
    assert await trial.land(write(key(), 0, 1)) == 3
    assert await trial.ask(write(key(), 0)) == SequenceTaken(key(), 1, 0)


@obligation("I8", levers=(Lever.HOLD,))
async def an_enforced_zero_is_refused_while_a_batch_of_the_pair_is_in_flight(trial: Trial) -> None:
    trial.hold()
    first = trial.ask(write(key(), 0))
    second = trial.ask(write(key(), 0))
    other = trial.ask(write(key(), 0, client=B))
    trial.release()
    assert await first == Landed((1,))
    assert await second == SequenceInFlight(key(), 0, 0)
    assert await other == Landed((2,))
    assert await trial.land(write(key(), 0)) == 3


@obligation("I10", levers=(Lever.HOLD,))
async def an_old_sequence_is_in_flight_while_a_newer_one_is(trial: Trial) -> None:
    await trial.land(write(key(), 3))
    trial.hold()
    newer = trial.ask(write(key(), 4))
    old = trial.ask(write(key(), 2))
    trial.release()
    assert await newer == Landed((2,))
    assert await old == SequenceInFlight(key(), 4, 2)
    assert await trial.ask(write(key(), 2)) == SequenceTaken(key(), 4, 2)


@obligation("I9", "X10", levers=(Lever.HOLD,))
async def a_low_sequence_in_flight_does_not_hide_the_mark(trial: Trial) -> None:
    await trial.land(write(key(), 10))
    trial.hold()
    low = trial.ask(write(key(), 4, enforce=False))
    between = trial.ask(write(key(), 7))
    below = trial.ask(write(key(), 4))
    trial.release()
    assert await low == Landed((2,))
    assert await between == SequenceTaken(key(), 10, 7)
    assert await below == SequenceInFlight(key(), 10, 4)


@obligation("I9", levers=(Lever.HOLD,), group_writes_max=1)
async def what_is_in_flight_is_exact_while_flushes_follow_one_another(trial: Trial) -> None:
    trial.hold()
    high = trial.ask(write(key(), 9, enforce=False))
    low = trial.ask(write(key(), 2, enforce=False))
    assert await trial.ask(write(key(), 9)) == SequenceInFlight(key(), 9, 9)
    trial.release()
    assert await high == Landed((1,))
    if not low.done():
        expect(SequenceTaken, await trial.ask(write(key(), 3)))
    assert await low == Landed((2,))
    assert await trial.ask(write(key(), 2)) == SequenceTaken(key(), 9, 2)


@obligation("I13", levers=(Lever.HOLD,))
async def a_guarded_resend_in_flight_is_a_conflict_first(trial: Trial) -> None:
    trial.hold()
    first = trial.ask(write(key(), 1, at=0))
    same = trial.ask(write(key(), 1, at=0))
    refreshed = trial.ask(write(key(), 1, at=1))
    trial.release()
    assert await first == Landed((1,))
    assert await same == VersionConflict(key(), 0, 1)
    assert await refreshed == SequenceInFlight(key(), 1, 1)


@obligation("I14", levers=(Lever.FAIL,))
async def a_write_that_failed_to_flush_leaves_its_sequence_free(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    trial.fail_next()
    expect(Unknown, await trial.ask(write(key(), 2)))
    assert await trial.land(write(key(), 2)) == 2


@obligation("I16")
async def trims_and_deletes_touch_no_mark(trial: Trial) -> None:
    await trial.land(write(key(), 1))
    await trial.land(write(key(), 2))
    await trial.trim(key(), 2)
    await trial.delete(key(), recreate=True)
    assert await trial.ask(write(key(), 2)) == SequenceTaken(key(), 2, 2)
    assert await trial.land(write(key(), 3)) == 1


@obligation("D-17", client_seq_jump_max=100)
async def a_mark_is_not_poisoned_by_one_absurd_number(trial: Trial) -> None:
    await trial.land(write(key(), 5))
    assert await trial.ask(write(key(), 6, 106)) == SequenceJump(key(), 5, 106)
    assert await trial.land(write(key(), 105)) == 2
    assert await trial.land(write(key(), 10_000, enforce=False)) == 3
    assert await trial.ask(write(key(), 105)) == SequenceTaken(key(), 10_000, 105)


@obligation("D-17", levers=(Lever.HOLD,), client_seq_jump_max=100)
async def a_jump_is_measured_from_what_is_in_flight(trial: Trial) -> None:
    trial.hold()
    answers = trial.ask_all(write(key(), seq) for seq in (100, 200, 301))
    trial.release()
    assert await answers == [Landed((1,)), Landed((2,)), SequenceJump(key(), 200, 301)]


@obligation("M5")
async def every_leg_has_its_own_mark(trial: Trial) -> None:
    await trial.land(write(key(1), 5))
    answer = await trial.ask(Write(A, (leg(key(1), 6), leg(key(2), 1))))
    assert answer == Landed((2, 1))
    assert await trial.ask(write(key(1), 6)) == SequenceTaken(key(1), 6, 6)
    assert await trial.ask(write(key(2), 1)) == SequenceTaken(key(2), 1, 1)
    assert await trial.land(write(key(2), 2)) == 2
