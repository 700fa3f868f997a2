"""The life of an effect: closed, and never out of doubt without evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.effects.state import TERMINAL, State
from landed.effects.transitions import (
    TABLE,
    Happening,
    Kind,
    LateMove,
    Standing,
    decide,
    late,
)

STANDINGS = st.builds(
    Standing,
    state=st.sampled_from(State),
    is_in_doubt=st.booleans(),
    may_resend=st.booleans(),
    answer_speaks_for_all=st.booleans(),
    is_key_consulted_first=st.booleans(),
    is_cancelling=st.booleans(),
)
HAPPENINGS = st.sampled_from(Happening)

# What settles a doubt: an answer that says it acted, a final absence, a seal, or a person.
EVIDENCE = {
    Happening.SUCCESS,
    Happening.PRESENT,
    Happening.ALREADY_ACTED,
    Happening.ABSENT_FENCED,
    Happening.SEALED,
    Happening.ATTEST_ACTED,
}


@given(HAPPENINGS, STANDINGS)
def test_every_cell_has_a_verdict(happening: Happening, standing: Standing) -> None:
    verdict = decide(happening, standing)
    assert (verdict.kind is Kind.MOVE) or verdict.to is standing.state


@given(HAPPENINGS, STANDINGS)
def test_nothing_leaves_a_terminal_state(happening: Happening, standing: Standing) -> None:
    if standing.state in TERMINAL:
        assert decide(happening, standing).to is standing.state


@given(HAPPENINGS, STANDINGS)
def test_an_unknown_effect_becomes_terminal_only_by_evidence(
    happening: Happening, standing: Standing
) -> None:
    if standing.state is State.UNKNOWN and decide(happening, standing).to in TERMINAL:
        speaks = happening in (Happening.REFUSED, Happening.FENCED) and (
            not standing.is_in_doubt
            or standing.answer_speaks_for_all
            or standing.is_key_consulted_first
        )
        assert happening in EVIDENCE or speaks


@given(HAPPENINGS, STANDINGS)
def test_only_a_begin_opens_an_attempt(happening: Happening, standing: Standing) -> None:
    if decide(happening, standing).to is State.SENDING and standing.state is not State.SENDING:
        assert happening is Happening.BEGIN


@pytest.mark.parametrize("happening", [Happening.NOT_SENT, Happening.NOT_EXECUTED])
def test_a_proven_non_act_does_not_clear_an_earlier_doubt(happening: Happening) -> None:
    sending = Standing(state=State.SENDING, is_in_doubt=True)
    assert State.UNKNOWN is decide(happening, sending).to
    sure = Standing(state=State.SENDING, is_in_doubt=False)
    assert State.RETRY is decide(happening, sure).to


def test_a_timeout_is_unknown_and_never_a_failure() -> None:
    sending = Standing(state=State.SENDING, is_in_doubt=False)
    for happening in (Happening.AMBIGUOUS, Happening.ABANDONED, Happening.IN_FLIGHT):
        assert State.UNKNOWN is decide(happening, sending).to


def test_an_unknown_effect_is_sent_again_only_if_the_contract_allows_it() -> None:
    assert (
        Kind.REFUSE is decide(Happening.BEGIN, Standing(state=State.UNKNOWN, is_in_doubt=True)).kind
    )
    allowed = Standing(state=State.UNKNOWN, is_in_doubt=True, may_resend=True)
    assert State.SENDING is decide(Happening.BEGIN, allowed).to


def test_every_row_has_a_cell_for_every_column() -> None:
    assert set(Happening) == set(TABLE)
    assert {7} == {len(row.split()) for row in TABLE.values()}


@given(HAPPENINGS, st.sampled_from(State), st.booleans(), st.booleans())
def test_a_late_answer_never_undoes_a_terminal_state(
    happening: Happening, state: State, is_newest: bool, is_same_result: bool
) -> None:
    move = late(happening, state, is_newest=is_newest, is_same_result=is_same_result)
    if state in TERMINAL:
        assert move in (LateMove.RECORD, LateMove.CONTRADICT)


def test_a_late_success_confirms_what_was_unknown_and_contradicts_what_was_refused() -> None:
    assert LateMove.CONFIRM is late(
        Happening.SUCCESS, State.UNKNOWN, is_newest=True, is_same_result=True
    )
    for state in (State.REFUSED, State.FENCED, State.CANCELLED):
        assert LateMove.CONTRADICT is late(
            Happening.SUCCESS, state, is_newest=True, is_same_result=True
        )
