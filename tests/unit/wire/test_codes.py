"""Numbers, values and errors: one table, both ways, and nothing lost that a caller must know."""

from __future__ import annotations

import json
import pickle
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed import errors
from landed.errors import LandedError, Move, Outcome
from landed.ids import AggregateKey
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    BelowFloor,
    Busy,
    Landed,
    Misrouted,
    NoEvents,
    NotLeader,
    NotLoaded,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    TrimBeyondEnd,
    Unknown,
    VersionConflict,
)
from landed.wire.codes import TABLE, CodeClass, error_of
from landed.wire.messages import MUTATIONS, Failure, NotUnderstood, Operation
from landed.wire.refusals import answer_of, failure_from, failure_of, number_of, text_for

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
WRITE, TRIM, DELETE = Operation.WRITE, Operation.TRIM, Operation.DELETE
READ, DETAILS, IDENTIFY = Operation.READ, Operation.DETAILS, Operation.IDENTIFY

# Every refusal with the number and the fields it travels as.
SPOKEN = [
    (WRITE, NoEvents(None), 2000, {}),
    (WRITE, ReservedType(None, 9), 2001, {"client_seq": 9}),
    (WRITE, SequenceTaken(None, 8, 7), 2002, {"last_client_seq": 8, "attempted_client_seq": 7}),
    (WRITE, VersionConflict(None, 5, 7), 2003, {"expected_version": 5, "current_aggregate_version": 7}),
    (WRITE, AggregateMissing(None), 2005, {}),
    (WRITE, AggregateClosed(None), 2006, {}),
    (WRITE, Unknown("disk full"), 2008, {"detail": "disk full"}),
    (WRITE, NotLoaded("a head is damaged"), 2010, {"detail": "a head is damaged"}),
    (WRITE, NotLeader("10.0.0.1:10000"), 2011, {"leader_address": "10.0.0.1:10000"}),
    (WRITE, SequenceInFlight(None, 8, 7), 2013, {"last_client_seq": 8, "attempted_client_seq": 7}),
    (WRITE, SequenceJump(None, 8, 2**40), 2900, {"last_client_seq": 8, "attempted_client_seq": 2**40}),
    (WRITE, Busy(), 11000, {}),
    (WRITE, Misrouted(False, 4, ""), 9001, {"num_shards": 4}),
    (WRITE, Misrouted(True, 4, "empty"), 9002, {"detail": "empty", "num_shards": 4}),
    (TRIM, AggregateMissing(None), 3000, {}),
    (TRIM, NotLoaded(""), 3001, {}),
    (TRIM, Unknown(""), 3003, {}),
    (TRIM, TrimBeyondEnd(99, 10), 3004, {"requested": 99, "max_aggregate_version": 10}),
    (TRIM, NotLeader(None), 3005, {}),
    (TRIM, Busy(), 11000, {}),
    (DELETE, AggregateMissing(None), 4000, {}),
    (DELETE, NotLoaded("a mark"), 4003, {"detail": "a mark"}),
    (DELETE, VersionConflict(None, 5, 7), 4002, {"expected_version": 5, "current_aggregate_version": 7}),
    (DELETE, Unknown("disk"), 4005, {"detail": "disk"}),
    (DELETE, NotLeader("a:1"), 4006, {"leader_address": "a:1"}),
    (READ, BelowFloor(1, 5), 1000, {"requested": 1, "minimum_available": 5}),
    (READ, AggregateMissing(None), 1001, {}),
    (READ, Unknown("checksum"), 1004, {"detail": "checksum"}),
    (READ, Busy(), 11000, {}),
    (DETAILS, AggregateMissing(None), 7001, {}),
    (DETAILS, Unknown("x"), 7002, {"detail": "x"}),
    (Operation.FEED, Unknown("x"), 1004, {"detail": "x"}),
    (Operation.PROBE, Busy(), 11000, {}),
]  # fmt: skip

E = errors
# CP-74, in the house's words: code -> error and outcome, in answer to an operation it belongs to.
RAISED = {
    **dict.fromkeys([1000], (READ, E.TrimmedError, Outcome.REJECTED)),
    **dict.fromkeys([1001], (READ, E.AggregateMissingError, Outcome.REJECTED)),
    **dict.fromkeys([2005], (WRITE, E.AggregateMissingError, Outcome.REJECTED)),
    **dict.fromkeys([3000], (TRIM, E.AggregateMissingError, Outcome.REJECTED)),
    **dict.fromkeys([4000], (DELETE, E.AggregateMissingError, Outcome.REJECTED)),
    **dict.fromkeys([7001], (DETAILS, E.AggregateMissingError, Outcome.REJECTED)),
    **dict.fromkeys([1002, 1003, 1004, 1005], (READ, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([2009, 2010, 2025], (WRITE, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([3001], (TRIM, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([4003], (DELETE, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([5000, 5001, 5002, 6000, 6001, 6002], (READ, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([7000, 7002], (DETAILS, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([8002, 8003, 8004, 8005], (READ, E.NodeFailedError, Outcome.REJECTED)),
    **dict.fromkeys([2007, 2008, 2026, 2028, 2029], (WRITE, E.OutcomeUnknownError, Outcome.UNKNOWN)),
    **dict.fromkeys([3002, 3003], (TRIM, E.OutcomeUnknownError, Outcome.UNKNOWN)),
    **dict.fromkeys([4004, 4005], (DELETE, E.OutcomeUnknownError, Outcome.UNKNOWN)),
    **dict.fromkeys([2000, 2001, 2004, 2900], (WRITE, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([2020, 2021, 2022, 2023, 2024], (WRITE, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([3004], (TRIM, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([4001], (DELETE, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([8000, 8001], (READ, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([9000, 9001, 9002], (WRITE, E.InvalidWriteError, Outcome.REJECTED)),
    **dict.fromkeys([2002], (WRITE, E.SequenceTakenError, Outcome.REJECTED)),
    **dict.fromkeys([2013], (WRITE, E.SequenceInFlightError, Outcome.REJECTED)),
    **dict.fromkeys([2003], (WRITE, E.VersionConflictError, Outcome.REJECTED)),
    **dict.fromkeys([4002], (DELETE, E.VersionConflictError, Outcome.REJECTED)),
    **dict.fromkeys([2006], (WRITE, E.AggregateClosedError, Outcome.REJECTED)),
    **dict.fromkeys([2011, 2027], (WRITE, E.NotLeaderError, Outcome.REJECTED)),
    **dict.fromkeys([3005], (TRIM, E.NotLeaderError, Outcome.REJECTED)),
    **dict.fromkeys([4006], (DELETE, E.NotLeaderError, Outcome.REJECTED)),
    **dict.fromkeys([2012, 11000], (WRITE, E.BusyError, Outcome.REJECTED)),
    **dict.fromkeys([3006], (TRIM, E.BusyError, Outcome.REJECTED)),
    **dict.fromkeys([4007], (DELETE, E.BusyError, Outcome.REJECTED)),
    **dict.fromkeys(range(10001, 10008), (IDENTIFY, E.NotAllowedError, Outcome.REJECTED)),
}  # fmt: skip

# The class column of protocol section 13.3, with design decision 14 for 2013.
CLASSES = {
    CodeClass.READ_SIDE: [
        *range(1000, 1006), *range(5000, 5003), *range(6000, 6003), *range(7000, 7003),
        *range(8000, 8006),
    ],
    CodeClass.NOT_APPLIED: [
        2000, 2001, 2003, 2004, 2005, 2006, 2021, 2022, 2023, 2024, 2900, 3000, 3004, 4000, 4001,
        4002, 9000, 9001, 9002, *range(10001, 10008),
    ],
    CodeClass.RETRY: [
        2009, 2010, 2011, 2012, 2025, 2027, 3001, 3005, 3006, 4003, 4006, 4007, 11000,
    ],
    CodeClass.APPLIED_EARLIER: [2002, 2020],
    CodeClass.IN_FLIGHT: [2013],
    CodeClass.UNKNOWN: [2007, 2008, 2026, 2028, 2029, 3002, 3003, 4004, 4005],
}  # fmt: skip


# --- values and numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "refusal", "code", "fields"), SPOKEN)
def test_a_refusal_has_its_number_and_comes_back(operation, refusal, code, fields):
    failure = failure_of(operation, refusal)
    assert (failure.code, dict(failure.fields)) == (code, fields)
    assert answer_of(operation, failure) == refusal


@pytest.mark.parametrize(("operation", "refusal", "code", "fields"), SPOKEN)
def test_a_refusal_raises_what_its_number_raises(operation, refusal, code, fields):
    by_value, by_number = error_of(operation, refusal), error_of(operation, Failure(code, fields))
    assert type(by_value) is type(by_number)
    assert (str(by_value), by_value.__dict__) == (str(by_number), by_number.__dict__)


def test_the_embedded_log_says_which_aggregate_it_was():
    assert error_of(WRITE, VersionConflict(KEY, 1, 2)).key == KEY
    assert error_of(WRITE, SequenceTaken(KEY, 1, 1)).key == KEY
    assert error_of(WRITE, SequenceInFlight(KEY, 1, 1)).key == KEY


@pytest.mark.parametrize(
    ("operation", "answer"),
    [(READ, VersionConflict(KEY, 1, 2)), (TRIM, SequenceTaken(KEY, 1, 1)), (IDENTIFY, Unknown(""))],
)
def test_an_answer_that_no_such_operation_gives_is_a_bug(operation, answer):
    with pytest.raises(TypeError, match="no refusal of"):
        failure_of(operation, answer)


def test_a_success_raises_nothing():
    with pytest.raises(TypeError):
        error_of(WRITE, Landed((1,)))


def test_a_number_that_we_do_not_send_keeps_its_number():
    for code in (2007, 2012, 2027, 3006, 10003, 4242):
        assert answer_of(WRITE, Failure(code)) == Failure(code)
    assert error_of(WRITE, answer_of(WRITE, Failure(2012))).code == 2012
    assert error_of(WRITE, Failure(2027, {"leader_address": "a:1"})).leader_address == "a:1"


# --- the table ------------------------------------------------------------------------------------


def test_every_code_has_the_class_of_the_protocol():
    assert {row.code: row.cls for row in TABLE.values()} == {
        code: cls for cls, codes in CLASSES.items() for code in codes
    }


@pytest.mark.scenario("CPA-58")
@pytest.mark.parametrize("code", sorted(RAISED))
def test_a_code_raises_its_error_with_its_outcome(code):
    operation, kind, outcome = RAISED[code]
    error = error_of(operation, Failure(code))
    assert type(error) is kind
    assert error.outcome is outcome
    assert error.code == code


@pytest.mark.scenario("CPA-58")
def test_the_list_above_holds_every_code_of_the_table():
    assert sorted(RAISED) == sorted(TABLE)


@pytest.mark.scenario("CPA-58")
@pytest.mark.parametrize("code", [0, 1, 999, 1006, 2014, 2999, 10000, 10008, 11001, 2**32 - 1])
def test_an_unlisted_code_is_unknown_for_a_change_and_a_plain_no_for_a_read(code):
    for operation in Operation:
        error = error_of(operation, Failure(code))
        if operation in MUTATIONS:
            assert type(error) is E.OutcomeUnknownError
            assert error.outcome is Outcome.UNKNOWN
        else:
            assert type(error) is E.RefusedError
            assert error.outcome is Outcome.REJECTED
        assert error.code == code


@pytest.mark.parametrize("code", CLASSES[CodeClass.READ_SIDE])
def test_a_code_about_reading_does_not_say_whether_a_change_was_applied(code):
    for operation in MUTATIONS:
        assert error_of(operation, Failure(code)).outcome is Outcome.UNKNOWN


@pytest.mark.scenario("CPA-24")
@pytest.mark.parametrize("code", CLASSES[CodeClass.UNKNOWN])
def test_a_failure_of_durability_is_unknown_for_every_change_and_never_for_a_read(code):
    for operation in Operation:
        error = error_of(operation, Failure(code))
        wanted = Outcome.UNKNOWN if operation in MUTATIONS else Outcome.REJECTED
        assert error.outcome is wanted
    assert error_of(WRITE, Failure(code)).reason == "server"


def test_what_the_loop_does_next_follows_from_the_code():
    moves = {
        2002: Move.ASK_OWNER,
        2003: Move.REDERIVE,
        2013: Move.HOLD,
        2008: Move.HOLD,
        2007: Move.HOLD,
        4242: Move.HOLD,
        11000: Move.HOLD,
        2011: Move.SEND_AGAIN,
        2005: Move.GIVE_UP,
        2900: Move.GIVE_UP,
    }
    assert {code: error_of(WRITE, Failure(code)).move for code in moves} == moves
    assert error_of(READ, Failure(1000)).move is Move.REREAD


@pytest.mark.scenario("CPA-25")
def test_a_request_that_the_node_could_not_read_was_not_applied():
    for operation in Operation:
        error = error_of(operation, NotUnderstood())
        assert error.outcome is Outcome.REJECTED
        is_extension = operation in {Operation.FEED, Operation.PROBE}
        assert isinstance(error, E.NoFeedError) is is_extension


# --- fields that are missing or nonsense ----------------------------------------------------------


@pytest.mark.scenario("CPA-57")
def test_text_that_is_no_json_never_hides_the_code():
    for text in (
        '{"detail":RollbackInProgress}',
        "",
        "nonce outside the window",
        '{"detail":"cut of',
        "[" * 900,
        "[" * 100_000,
        '{"detail":' * 100_000,
        "[]",
        "null",
        "7",
        '"text"',
        '{"a":NaN}',
        "\x00",
    ):
        failure = failure_from(2007, text)
        assert failure == Failure(2007, {}, text)
        error = error_of(WRITE, failure)
        assert type(error) is E.OutcomeUnknownError
        assert error.code == 2007


@pytest.mark.scenario("CPA-57")
def test_a_number_that_the_node_did_not_say_is_none_and_never_zero():
    taken = answer_of(WRITE, failure_from(2002, "{}"))
    assert taken == SequenceTaken(None, None, None)
    assert error_of(WRITE, taken).highest_seq is None
    conflict = error_of(WRITE, answer_of(WRITE, failure_from(2003, "not json")))
    assert (conflict.expected, conflict.actual) == (None, None)


@pytest.mark.parametrize("value", [None, "5", "", 5.0, True, False, -1, 2**64, [5], {}, 1e300])
def test_a_field_that_is_no_number_is_none(value):
    fields = dict.fromkeys(
        ("last_client_seq", "attempted_client_seq", "minimum_available", "num_shards"), value
    )
    assert number_of(fields, "last_client_seq") is None
    assert answer_of(WRITE, Failure(2002, fields)) == SequenceTaken(None, None, None)
    assert answer_of(READ, Failure(1000, fields)) == BelowFloor(None, None)
    assert answer_of(WRITE, Failure(9001, fields)) == Misrouted(False, None, "")


@pytest.mark.parametrize("value", [0, 1, 2**53 + 1, 2**64 - 1])
def test_a_number_comes_through_whole(value):
    text = text_for(Failure(2002, {"last_client_seq": value}), body_max=1007, has_correlation=True)
    assert number_of(failure_from(2002, text).fields, "last_client_seq") == value


def test_an_empty_leader_address_is_none():
    assert answer_of(WRITE, failure_from(2011, '{"leader_address":""}')) == NotLeader(None)
    assert error_of(WRITE, Failure(2011, {"leader_address": ""})).leader_address is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(2, 2.0), (0.5, 0.5), (None, None), ("2", None), (True, None), (-1, None)],
)
def test_busy_says_how_long_to_wait_if_the_node_did(value, seconds):
    fields = {} if value is None else {"retry_after": value}
    assert error_of(WRITE, Failure(11000, fields)).retry_after_s == seconds


# --- the text of an error frame -------------------------------------------------------------------


def test_the_text_is_compact_json_in_which_the_rust_client_finds_the_leader():
    text = text_for(failure_of(WRITE, NotLeader("h:1")), body_max=1007, has_correlation=True)
    assert text == '{"leader_address":"h:1"}'
    text = text_for(failure_of(WRITE, Misrouted(False, 3, "")), body_max=1007, has_correlation=True)
    assert text == '{"num_shards":3}'
    assert text_for(Failure(11000), body_max=1007, has_correlation=False) == "{}"


def frame_body(failure: Failure, *, has_correlation: bool) -> bytes:
    from landed.wire import codec

    text = text_for(failure, body_max=1007, has_correlation=has_correlation)
    return codec.encode_error(failure.code, text, b"c" * 16 if has_correlation else None)


@given(
    st.dictionaries(
        st.sampled_from(["detail", "parse_error", "validation_error"]), st.text(max_size=1500)
    ),
    st.booleans(),
    st.sampled_from([100, 255, 2022, 2**16 - 1, 2**16, 2**32 - 1]),
)
def test_a_text_is_cut_to_fit_and_stays_json_with_its_numbers(texts, has_correlation, code):
    numbers = {"client_seq": 2**64 - 1, "num_shards": 3, "leader_address": "h" * 100 + ":1"}
    failure = Failure(code, {**texts, **numbers})
    assert len(frame_body(failure, has_correlation=has_correlation)) <= 1007
    text = text_for(failure, body_max=1007, has_correlation=has_correlation)
    read = json.loads(text)
    assert {name: read[name] for name in numbers} == numbers
    for name, value in texts.items():
        assert value.startswith(read[name])


@pytest.mark.parametrize("letter", ["x", '"', "\\", "\n", "\x00", "ü", "€", "😀"])
@pytest.mark.parametrize("has_correlation", [True, False])
@pytest.mark.parametrize("code", [100, 2008, 2**16, 2**32 - 1])
def test_a_long_text_is_not_cut_more_than_it_must(letter, has_correlation, code):
    body = frame_body(Failure(code, {"detail": letter * 5000}), has_correlation=has_correlation)
    assert 1007 - 8 <= len(body) <= 1007


def test_where_nothing_can_be_cut_fields_go():
    text = text_for(
        Failure(2011, {"leader_address": "h" * 2000, "num_shards": 3}),
        body_max=1007,
        has_correlation=True,
    )
    assert json.loads(text) == {"num_shards": 3}


def test_a_plain_sentence_is_cut_between_characters():
    body = frame_body(Failure(10001, {}, "€" * 1000), has_correlation=True)
    assert 1007 - 3 <= len(body) <= 1007


def test_what_utf_8_cannot_say_does_not_cost_the_answer():
    assert frame_body(Failure(2008, {"detail": "file \udcff"}), has_correlation=True)
    assert frame_body(Failure(2008, {}, "file \udcff"), has_correlation=True)


# --- errors as objects ----------------------------------------------------------------------------


def every_error() -> list[LandedError]:
    raised = [error_of(operation, Failure(code)) for code, (operation, _, _) in RAISED.items()]
    spoken = [error_of(operation, refusal) for operation, refusal, _, _ in SPOKEN]
    others = [
        E.LeaderNotFoundError([("a:1", E.ConnectFailedError("refused"))]),
        E.ConnectTimeoutError("late"),
        E.ReadTimeoutError(),
        E.StorageError("lost", is_outcome_known=False),
        E.ConfigurationError("no such limit"),
        E.NoFeedError(),
        E.VersionConflictError(expected=1, actual=2, key=KEY),
    ]
    return raised + spoken + others


def test_every_error_pickles_whole():
    for error in every_error():
        error.served_by, error.attempts = "10.0.0.1:10000", 3
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert (copy.outcome, copy.move) == (error.outcome, error.move)
        fields, wanted = dict(copy.__dict__), dict(error.__dict__)
        # Errors inside errors are copies too, and exceptions compare by identity.
        assert [a for a, _ in fields.pop("tried", [])] == [a for a, _ in wanted.pop("tried", [])]
        assert fields == wanted


def test_the_text_of_an_error_quotes_nothing_that_may_be_a_payload():
    quoted = {
        "validation_error": "SECRET",
        "compilation_error": "SECRET",
        "parse_error": "SECRET",
        "leader": "SECRET",
    }
    for code, (operation, _, _) in RAISED.items():
        assert "SECRET" not in str(error_of(operation, Failure(code, quoted, "SECRET")))
    assert error_of(WRITE, Failure(2022, quoted)).fields == quoted


def test_the_text_of_an_error_says_the_detail():
    assert "disk full" in str(error_of(WRITE, Unknown("disk full")))
    assert "disk full" in str(error_of(READ, Unknown("disk full")))
