"""The table is whole, closed, and printed."""

from __future__ import annotations

from uuid import UUID

import pytest
from tools import moves as printed

from landed import errors
from landed.commands.moves import (
    MOVES,
    At,
    Attempt,
    End,
    Saw,
    Sequence,
    Weighed,
    after_read,
    after_write,
    next_seq,
    weigh,
    when_giving_up,
)
from landed.ids import AggregateKey
from landed.projections.port import View

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))


def _view(*, version: int, client_seq: int, floor: int = 0) -> View[None]:
    return View(KEY, None, version, client_seq, floor, 0, None)


def test_the_printed_page_is_up_to_date() -> None:
    assert printed.PAGE.read_text(encoding="utf-8") == printed.page(), (
        "run: python -m tools.moves --write"
    )


def test_every_state_but_the_pause_has_rows_and_every_row_leads_somewhere() -> None:
    assert {at for at, _ in MOVES} == set(At) - {At.BACK_OFF}
    for rule in MOVES.values():
        is_pause = rule.then is At.BACK_OFF
        assert (rule.back_to is not None) == is_pause
        assert (rule.otherwise is not None) == is_pause


def test_every_word_of_the_table_is_used_and_every_end_is_reached() -> None:
    assert {saw for _, saw in MOVES} == set(Saw)
    ends = {rule.then for rule in MOVES.values()} | {rule.otherwise for rule in MOVES.values()}
    ends |= {when_giving_up(saw, is_in_doubt=d) for saw in Saw for d in (True, False)}
    assert set(End) <= ends


def test_every_state_can_be_reached_from_the_start() -> None:
    reached, todo = set(), [At.ENTER]
    while todo:
        at = todo.pop()
        reached.add(at)
        for (state, _), rule in MOVES.items():
            then = rule.back_to if rule.then is At.BACK_OFF else rule.then
            if state is at and isinstance(then, At) and then not in reached:
                todo.append(then)
    assert reached == set(At) - {At.BACK_OFF}


def test_conflict_means_re_derive_and_unknown_means_hold() -> None:
    """The two lines that carry the weight of the whole product."""
    assert MOVES[At.SEND, Saw.CONFLICT].sequence is Sequence.DERIVE
    for saw in (Saw.UNKNOWN, Saw.IN_FLIGHT, Saw.NOT_SENT, Saw.BUSY):
        assert MOVES[At.SEND, saw].sequence is Sequence.HOLD
        assert MOVES[At.SEND, saw].back_to is At.CATCH_UP


def test_a_taken_sequence_is_never_a_success_by_itself() -> None:
    assert MOVES[At.SEND, Saw.TAKEN].then is At.VERIFY
    assert MOVES[At.VERIFY, Saw.UNWRITTEN].then is End.UNRESOLVED


@pytest.mark.parametrize(
    ("error", "saw"),
    [
        (errors.VersionConflictError(expected=3, actual=4), Saw.CONFLICT),
        (errors.VersionConflictError(expected=None, actual=None), Saw.CONFLICT),
        (errors.VersionConflictError(expected=3, actual=2), Saw.REGRESSED),
        (errors.SequenceTakenError(highest_seq=1, attempted_seq=1), Saw.TAKEN),
        (errors.SequenceInFlightError(highest_seq=1, attempted_seq=1), Saw.IN_FLIGHT),
        (errors.AggregateMissingError(code=2005), Saw.MISSING),
        (errors.AggregateClosedError(), Saw.MISSING),
        (errors.OutcomeUnknownError("server", code=2007), Saw.UNKNOWN),
        (errors.OutcomeUnknownError("server", code=2008), Saw.UNKNOWN),
        (errors.OutcomeUnknownError("cancelled"), Saw.UNKNOWN),
        (errors.RemoteProtocolError("garbage"), Saw.UNKNOWN),
        (errors.StorageError("lost", is_outcome_known=False), Saw.UNKNOWN),
        (errors.StorageError("full"), Saw.BUSY),
        (errors.BusyError(), Saw.BUSY),
        (errors.NodeFailedError(code=2009), Saw.BUSY),
        (errors.NotLeaderError(leader_address=None), Saw.NOT_SENT),
        (errors.ConnectFailedError(), Saw.NOT_SENT),
        (errors.LeaderNotFoundError([]), Saw.NOT_SENT),
        (errors.PoolExhaustedError(), Saw.NOT_SENT),
        (errors.PoolClosedError(), Saw.NOT_SENT),
        (errors.InvalidWriteError("two shards", code=9001), Saw.REFUSED),
        (errors.NotAllowedError(code=10001), Saw.REFUSED),
        (errors.RequestTooLargeError(), Saw.REFUSED),
        (errors.LocalProtocolError("no"), Saw.REFUSED),
    ],
)
def test_every_error_of_a_write_has_one_word(error: errors.LandedError, saw: Saw) -> None:
    assert after_write(error) is saw


@pytest.mark.parametrize(
    ("error", "saw"),
    [
        (errors.ReadTimeoutError(), Saw.READ_FAILED),
        (errors.ConnectionLostError(), Saw.READ_FAILED),
        (errors.ConnectFailedError(), Saw.READ_FAILED),
        (errors.PoolClosedError(), Saw.READ_FAILED),
        (errors.BusyError(), Saw.READ_FAILED),
        (errors.StorageError("down"), Saw.READ_FAILED),
        (errors.RemoteProtocolError("garbage"), Saw.READ_FAILED),
        (errors.NotAllowedError(code=10001), Saw.BROKEN),
        (errors.LocalProtocolError("no"), Saw.BROKEN),
    ],
)
def test_every_error_of_a_read_is_transient_or_for_good(
    error: errors.LandedError, saw: Saw
) -> None:
    assert after_read(error) is saw


def test_giving_up_says_unknown_whenever_there_is_a_doubt() -> None:
    assert all(when_giving_up(saw, is_in_doubt=True) is End.UNRESOLVED for saw in Saw)
    assert when_giving_up(Saw.CONFLICT, is_in_doubt=False) is End.CONFLICTED
    assert when_giving_up(Saw.NOT_SENT, is_in_doubt=False) is End.UNAVAILABLE
    assert when_giving_up(Saw.READ_FAILED, is_in_doubt=False) is End.UNAVAILABLE


@pytest.mark.parametrize(
    ("version", "client_seq", "weighed"),
    [
        (3, 4, Weighed.LIVE),
        (4, 4, Weighed.DEAD),
        (4, 5, Weighed.ASK_OWNER),
        (9, 6, Weighed.ASK_OWNER),
    ],
)
def test_an_unknown_attempt_is_weighed_by_its_place_and_its_sequence(
    version: int, client_seq: int, weighed: Weighed
) -> None:
    attempt = Attempt(client_seqs=(5,), guards=(3,))
    assert weigh(attempt, [_view(version=version, client_seq=client_seq)])[0] is weighed


def test_any_leg_can_disprove_or_question_an_attempt() -> None:
    attempt = Attempt(client_seqs=(5, 1), guards=(3, 0))
    untouched = _view(version=3, client_seq=4)
    taken = _view(version=1, client_seq=0)
    asked = _view(version=1, client_seq=1)
    assert weigh(attempt, [untouched, taken]) == (Weighed.DEAD, ())
    assert weigh(attempt, [untouched, asked]) == (Weighed.ASK_OWNER, (1,))


def test_a_derived_sequence_is_above_what_was_folded_and_what_is_known_to_be_taken() -> None:
    assert next_seq(_view(version=0, client_seq=0)) == 1
    assert next_seq(_view(version=9, client_seq=6)) == 7
    assert next_seq(_view(version=9, client_seq=6, floor=40)) == 41
