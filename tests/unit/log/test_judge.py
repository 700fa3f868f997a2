"""The law, sentence by sentence (test_judge_model.py holds it against a naive model)."""

from __future__ import annotations

from uuid import UUID

import pytest

from landed.ids import AggregateKey, ClientId, UserId
from landed.log import (
    ANY,
    NEVER,
    AggregateClosed,
    AggregateMissing,
    Delete,
    DeleteLeg,
    Event,
    Head,
    Leg,
    Life,
    NoEvents,
    Refusal,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    Trim,
    TrimBeyondEnd,
    VersionConflict,
    Write,
)
from landed.log.judge import Admitted, Step, judge_delete, judge_trim, judge_write

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
OTHER = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=4))
CLIENT = ClientId(UUID(int=7))
USER = UserId(UUID(int=8))

LIVE = Head(Life.LIVE, 1, 5, 9, 2, False, False, 100, CLIENT, None)
DELETED = LIVE._replace(life=Life.DELETED, allow_recreate=True)


class Tail:
    """One state for every key and client, as the test says it."""

    def __init__(self, head: Head = NEVER, mark: int = 0, in_flight: int | None = None) -> None:
        self._head, self._mark, self._in_flight = head, mark, in_flight

    def head(self, key: AggregateKey) -> Head:
        return self._head

    def mark(self, key: AggregateKey, client_id: ClientId) -> int:
        return self._mark

    def in_flight(self, key: AggregateKey, client_id: ClientId) -> int | None:
        return self._in_flight


def leg(*seqs: int, at: int | None = ANY, create: bool = True, enforce: bool = True) -> Leg:
    events = tuple(Event.new(1, b"x", client_seq=seq, event_id=None) for seq in seqs)
    return Leg(KEY, events, at, create, enforce)


def judge(*legs: Leg, tail: Tail, jump: int = 0) -> Admitted | Refusal:
    return judge_write(Write(CLIENT, legs, USER), tail, now_ms=500, seq_jump_max=jump)


def head_of(result: Admitted | Refusal) -> Head:
    assert type(result) is tuple
    (step,) = result
    assert isinstance(step, Step)
    return step.head


# --- the shape of legs: W2


@pytest.mark.scenario("SC-09", "W2")
def test_a_leg_without_events_is_refused_before_its_state_is_looked_at() -> None:
    assert judge(leg(at=99, create=False), tail=Tail()) == NoEvents(KEY)


@pytest.mark.scenario("SC-09", "W2")
def test_event_type_zero_is_refused_naming_its_sequence() -> None:
    reserved = Event.new(0, b"", client_seq=6, event_id=None)
    bad = Leg(KEY, (*leg(1).events, reserved), 99, True, True)
    assert judge(bad, tail=Tail()) == ReservedType(KEY, 6)


@pytest.mark.scenario("W2", "M3")
def test_the_shape_of_every_leg_comes_before_the_state_of_any() -> None:
    empty = leg()._replace(key=OTHER)
    assert judge(leg(1, at=99), empty, tail=Tail()) == NoEvents(OTHER)


# --- existence and guard (W3 to W8)


@pytest.mark.scenario("W4", "W8")
def test_existence_comes_before_the_guard() -> None:
    assert judge(leg(1, at=0, create=False), tail=Tail()) == AggregateMissing(KEY)
    assert judge(leg(1, at=7), tail=Tail()) == VersionConflict(KEY, 7, 0)


@pytest.mark.scenario("W4", "X6", "D6")
def test_a_deleted_aggregate_is_closed_or_must_be_created_again() -> None:
    final = DELETED._replace(allow_recreate=False, allow_continuation=True)
    for create in (True, False):
        assert judge(leg(1, create=create), tail=Tail(final)) == AggregateClosed(KEY)
    assert judge(leg(1, create=False), tail=Tail(DELETED)) == AggregateMissing(KEY)


@pytest.mark.scenario("W5", "W6", "W7")
@pytest.mark.parametrize(
    ("head", "version"), [(NEVER, 0), (LIVE, 5), (DELETED, 5)], ids=["never", "live", "deleted"]
)
def test_the_guard_means_the_newest_version_also_of_a_deleted_aggregate(
    head: Head, version: int
) -> None:
    assert type(judge(leg(1, at=version), tail=Tail(head))) is tuple
    assert type(judge(leg(1, at=ANY), tail=Tail(head))) is tuple
    for wrong in {0, 1, 4, 5, 6} - {version}:
        assert judge(leg(1, at=wrong), tail=Tail(head)) == VersionConflict(KEY, wrong, version)


@pytest.mark.scenario("SC-16", "I13")
def test_the_guard_comes_before_the_sequence() -> None:
    assert judge(leg(1, at=4), tail=Tail(LIVE, mark=9)) == VersionConflict(KEY, 4, 5)
    assert judge(leg(1, at=5), tail=Tail(LIVE, mark=9)) == SequenceTaken(KEY, 9, 1)


# --- the client sequence: I


@pytest.mark.scenario("I3")
@pytest.mark.parametrize("seq", [3, 4, 5, 6, 7])
def test_a_sequence_passes_above_the_mark_only(seq: int) -> None:
    result = judge(leg(seq), tail=Tail(LIVE, mark=5))
    if seq > 5:
        assert type(result) is tuple
    else:
        assert result == SequenceTaken(KEY, 5, seq)


@pytest.mark.scenario("I4")
def test_without_enforcement_no_sequence_is_refused() -> None:
    tail = Tail(LIVE, mark=5, in_flight=9)
    for seq in (0, 5, 9, 2**64 - 1):
        assert type(judge(leg(seq, enforce=False), tail=tail, jump=10)) is tuple


@pytest.mark.scenario("SC-23", "I6")
def test_the_lowest_sequence_is_checked_and_the_highest_recorded() -> None:
    result = judge(leg(9, 6, 8), tail=Tail(LIVE, mark=5))
    assert type(result) is tuple
    assert result[0].highest_seq == 9
    assert judge(leg(6, 5), tail=Tail(LIVE, mark=5)) == SequenceTaken(KEY, 5, 5)


@pytest.mark.scenario("I8", "X22")
def test_a_mark_of_zero_counts_as_absent() -> None:
    assert type(judge(leg(0), tail=Tail(LIVE, mark=0))) is tuple
    assert judge(leg(0), tail=Tail(LIVE, mark=1)) == SequenceTaken(KEY, 1, 0)
    assert judge(leg(0), tail=Tail(LIVE, mark=0, in_flight=0)) == SequenceInFlight(KEY, 0, 0)


@pytest.mark.scenario("I9", "I10", "I11", "X10")
def test_in_flight_at_or_above_the_attempt_is_not_called_taken() -> None:
    assert judge(leg(7), tail=Tail(LIVE, mark=5, in_flight=7)) == SequenceInFlight(KEY, 7, 7)
    assert judge(leg(2), tail=Tail(LIVE, mark=5, in_flight=7)) == SequenceInFlight(KEY, 7, 2)
    assert judge(leg(7), tail=Tail(LIVE, mark=9, in_flight=4)) == SequenceTaken(KEY, 9, 7)
    assert judge(leg(4), tail=Tail(LIVE, mark=9, in_flight=4)) == SequenceInFlight(KEY, 9, 4)
    assert type(judge(leg(8), tail=Tail(LIVE, mark=5, in_flight=7))) is tuple


@pytest.mark.scenario("D-17")
def test_a_jump_is_measured_by_the_highest_from_all_that_was_seen() -> None:
    assert type(judge(leg(6, 15), tail=Tail(LIVE, mark=5), jump=10)) is tuple
    assert judge(leg(6, 16), tail=Tail(LIVE, mark=5), jump=10) == SequenceJump(KEY, 5, 16)
    assert type(judge(leg(17), tail=Tail(LIVE, mark=5, in_flight=7), jump=10)) is tuple
    assert judge(leg(18), tail=Tail(LIVE, 5, 7), jump=10) == SequenceJump(KEY, 7, 18)
    assert type(judge(leg(2**64 - 1), tail=Tail(LIVE, mark=5), jump=0)) is tuple


# --- what a write makes of a head (W10, W11, D8 to D11)


@pytest.mark.scenario("SC-01", "W10")
def test_a_first_write_begins_at_one() -> None:
    head = head_of(judge(leg(1, 2), tail=Tail()))
    assert head == Head(Life.LIVE, 1, 1, 2, 1, False, False, 500, CLIENT, USER)


@pytest.mark.scenario("SC-03", "W10", "W11")
def test_a_write_is_one_version_and_a_number_for_each_event() -> None:
    head = head_of(judge(leg(1, 2, 3), tail=Tail(LIVE)))
    assert head == Head(Life.LIVE, 1, 6, 12, 2, False, False, 500, CLIENT, USER)


@pytest.mark.scenario("SC-63", "D8", "D10", "D11")
def test_a_recreate_that_goes_on_continues_the_numbers_and_not_the_floor() -> None:
    head = head_of(judge(leg(1), tail=Tail(DELETED._replace(allow_continuation=True))))
    assert head == Head(Life.LIVE, 2, 6, 10, 6, False, False, 500, CLIENT, USER)


@pytest.mark.scenario("SC-64", "D9", "D10", "D11")
def test_a_recreate_that_starts_again_starts_at_one() -> None:
    head = head_of(judge(leg(1, 2), tail=Tail(DELETED)))
    assert head == Head(Life.LIVE, 2, 1, 2, 1, False, False, 500, CLIENT, USER)


@pytest.mark.scenario("M3")
def test_the_first_failing_leg_is_the_answer_and_good_legs_change_nothing() -> None:
    good = leg(6)
    taken, stale = leg(5)._replace(key=OTHER), leg(6, at=0)
    tail = Tail(LIVE, mark=5)
    assert judge(good, taken, stale, tail=tail) == SequenceTaken(OTHER, 5, 5)
    assert judge(good, stale, taken, tail=tail) == VersionConflict(KEY, 0, 5)


@pytest.mark.scenario("M5")
def test_every_leg_gets_its_own_step_in_request_order() -> None:
    result = judge(leg(6), leg(8, 7)._replace(key=OTHER), tail=Tail(LIVE, mark=5))
    assert type(result) is tuple
    assert [(step.key, step.highest_seq) for step in result] == [(KEY, 6), (OTHER, 8)]


# --- deleting: D


def delete(*legs: DeleteLeg, tail: Tail) -> Admitted | Refusal:
    return judge_delete(Delete(CLIENT, legs, USER), tail, now_ms=500)


@pytest.mark.scenario("SC-60", "D4", "N3")
@pytest.mark.parametrize("flags", [(a, b) for a in (True, False) for b in (True, False)])
def test_a_delete_keeps_the_numbers_and_the_flags_as_given(flags: tuple[bool, bool]) -> None:
    head = head_of(delete(DeleteLeg(KEY, 5, *flags), tail=Tail(LIVE)))
    assert head == Head(Life.DELETED, 1, 5, 9, 2, *flags, 500, CLIENT, USER)


@pytest.mark.scenario("SC-60", "D2")
@pytest.mark.parametrize("head", [NEVER, DELETED], ids=["never", "deleted"])
def test_what_is_not_live_cannot_be_deleted(head: Head) -> None:
    leg = DeleteLeg(KEY, None, True, True)
    assert delete(leg, tail=Tail(head)) == AggregateMissing(KEY)


@pytest.mark.scenario("SC-61", "D2")
def test_a_missing_aggregate_anywhere_beats_a_conflict_anywhere() -> None:
    class Both(Tail):
        def head(self, key: AggregateKey) -> Head:
            return LIVE if key == KEY else NEVER

    stale, missing = DeleteLeg(KEY, 1, False, False), DeleteLeg(OTHER, None, False, False)
    assert delete(stale, tail=Both()) == VersionConflict(KEY, 1, 5)
    assert delete(stale, missing, tail=Both()) == AggregateMissing(OTHER)


# --- trimming: T


def trim(keep_from: int, head: Head) -> Admitted | Refusal:
    return judge_trim(Trim(KEY, keep_from, CLIENT, USER), Tail(head), now_ms=500)


@pytest.mark.scenario("SC-57", "T1", "T2", "T3")
def test_a_trim_raises_the_floor_up_to_the_newest_version() -> None:
    for keep_from in (0, 1, 2):
        assert trim(keep_from, LIVE) == ()
    for keep_from in (3, 4, 5):
        expected = LIVE._replace(floor=keep_from, last_ms=500, last_user=USER)
        assert head_of(trim(keep_from, LIVE)) == expected
    for keep_from in (6, 99):
        assert trim(keep_from, LIVE) == TrimBeyondEnd(keep_from, 5)


@pytest.mark.scenario("T1")
@pytest.mark.parametrize("head", [NEVER, DELETED], ids=["never", "deleted"])
def test_what_is_not_live_cannot_be_trimmed(head: Head) -> None:
    for keep_from in (0, 1, 99):
        assert trim(keep_from, head) == AggregateMissing(KEY)
