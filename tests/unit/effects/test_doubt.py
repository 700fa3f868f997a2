"""Doubt: raised by what is not definite, cleared only by what speaks for the attempts in doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landed.effects.answer import (
    Abandoned,
    Accepted,
    Ambiguous,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    NotSent,
    Refused,
    Success,
)
from landed.effects.contract import (
    RESEND_MARGIN_S,
    Ambiguity,
    Contract,
    Expiry,
    Fence,
    Key,
    Lookup,
    SameKey,
)
from landed.effects.doubt import (
    Doubt,
    doubt_after,
    happening_of,
    may_resend,
    raises_doubt,
    resend_limit_us,
    standing,
    weakest,
)
from landed.effects.finality import certainty_of, final_absence
from landed.effects.state import TERMINAL, Certainty, Finality, State
from landed.effects.transitions import Kind, decide

S = 1_000_000
WORST = Contract()
REPLAYS = Contract(key=Key(same_key=SameKey.REPLAYS, retention_s=86_400.0), timeout_s=30.0)
ONCE = Contract(key=Key(same_key=SameKey.ACTS_ONCE, retention_s=86_400.0))
KEY_FIRST = replace(WORST, fence=Fence(is_key_consulted_first=True))
ANSWERS = [
    Success(b""),
    Accepted(),
    Refused(),
    Fenced(),
    NotExecuted(),
    NotSent(),
    InFlight(),
    KeyConflict(),
    Ambiguous(),
    Abandoned(),
]
DOUBTFUL = (InFlight, KeyConflict, Ambiguous, Abandoned)


def sending(attempt_no=2, doubt_from=1):
    return Doubt(
        state=State.SENDING, attempt_no=attempt_no, doubt_from=doubt_from, first_sight_us=0
    )


@pytest.mark.scenario("AT-7")
@pytest.mark.parametrize("answer", ANSWERS)
def test_only_what_is_not_definite_raises_doubt(answer):
    first = sending(attempt_no=1, doubt_from=None)
    expected = 1 if isinstance(answer, DOUBTFUL) else None
    assert raises_doubt(answer) is isinstance(answer, DOUBTFUL)
    assert doubt_after(first, WORST, answer, 1) == expected


@pytest.mark.scenario("AT-7", "AT-8", "AS-62")
@pytest.mark.parametrize(
    ("answer", "contract", "doubt", "state"),
    [
        (Success(b""), WORST, None, State.CONFIRMED),
        (Accepted(), WORST, None, State.ACCEPTED),
        (Refused(), WORST, 1, State.UNKNOWN),
        (Refused(), ONCE, 1, State.UNKNOWN),
        (Refused(), REPLAYS, None, State.REFUSED),
        (Fenced(), WORST, 1, State.UNKNOWN),
        (Fenced(), KEY_FIRST, None, State.FENCED),
        (NotSent(), REPLAYS, 1, State.UNKNOWN),
        (NotExecuted(), REPLAYS, 1, State.UNKNOWN),
        (Ambiguous(), REPLAYS, 1, State.UNKNOWN),
    ],
)
def test_a_later_answer_clears_doubt_only_if_it_speaks_for_the_earlier_attempt(
    answer, contract, doubt, state
):
    assert doubt_after(sending(), contract, answer, 2) == doubt
    verdict = decide(happening_of(answer), standing(sending(), contract, attempt_no=2))
    assert (verdict.kind, verdict.to) == (Kind.MOVE, state)


@given(
    st.sampled_from(ANSWERS),
    st.sampled_from([WORST, REPLAYS, ONCE, KEY_FIRST]),
    st.integers(1, 4),
    st.none() | st.integers(1, 4),
)
def test_doubt_and_terminal_states_never_meet(answer, contract, attempt_no, doubt_from):
    doubt = sending(attempt_no, doubt_from)
    after = doubt_after(doubt, contract, answer, attempt_no)
    verdict = decide(happening_of(answer), standing(doubt, contract, attempt_no=attempt_no))
    assert verdict.kind is Kind.MOVE
    assert not (verdict.to in TERMINAL and after is not None)
    assert not (verdict.to is State.RETRY and after is not None)
    assert not (verdict.to is State.UNKNOWN and after is None)


def unknown(first_sight_us=0, is_final=False):
    return Doubt(
        state=State.UNKNOWN,
        attempt_no=1,
        doubt_from=1,
        first_sight_us=first_sight_us,
        is_absence_final=is_final,
    )


@pytest.mark.scenario("AT-9", "AS-56", "AS-66")
def test_a_resend_in_doubt_needs_a_safe_key_in_time_or_a_final_absence():
    until = int((86_400 - RESEND_MARGIN_S - 30) * S)
    assert resend_limit_us(unknown(), REPLAYS) == until
    assert may_resend(unknown(), REPLAYS, now_us=until - 1)
    assert not may_resend(unknown(), REPLAYS, now_us=until)
    assert not may_resend(unknown(), WORST, now_us=0)
    assert may_resend(unknown(is_final=True), WORST, now_us=2**60)
    tolerated = replace(
        WORST, ambiguity=Ambiguity.DUPLICATES_TOLERATED, ambiguity_reason="idempotent anyway"
    )
    assert may_resend(unknown(), tolerated, now_us=2**60)


@pytest.mark.scenario("CT-6")
def test_a_memory_of_unknown_length_is_believed_for_one_series():
    contract = Contract(key=Key(same_key=SameKey.REPLAYS), series_max_s=3600.0)
    assert resend_limit_us(unknown(first_sight_us=5), contract) == 5 + 3600 * S
    assert resend_limit_us(unknown(first_sight_us=None), contract) is None


@pytest.mark.scenario("AT-14")
@given(st.lists(st.none() | st.sampled_from(Certainty), max_size=4))
def test_certainty_is_that_of_the_weakest_step(steps):
    order = list(Certainty)
    known = [order.index(step) for step in steps if step is not None]
    assert weakest(*steps) is order[max(known, default=0)]


def absence(contract, *, asked_s, deadline_s=100.0, newer_s=None):
    return final_absence(
        contract,
        asked_us=int(asked_s * S),
        last_send_deadline_us=None if deadline_s is None else int(deadline_s * S),
        newer_confirmed_us=None if newer_s is None else int(newer_s * S),
    )


@pytest.mark.scenario("RN-5", "RN-6", "AS-64", "AS-65", "AS-86")
def test_absence_is_final_by_expiry_fence_or_quiescence_and_never_by_time_alone():
    plain = Contract(lookup=Lookup(lag_s=0.0))
    assert absence(plain, asked_s=10**9) is Finality.NONE
    expiring = Contract(
        lookup=Lookup(lag_s=20.0, absence=Finality.EXPIRY), expiry=Expiry(tolerance_s=5.0)
    )
    assert absence(expiring, asked_s=124.9) is Finality.NONE
    assert absence(expiring, asked_s=125.0) is Finality.EXPIRY
    assert absence(replace(expiring, expiry=None), asked_s=10**9) is Finality.NONE
    assert absence(expiring, asked_s=10**9, deadline_s=None) is Finality.NONE
    quiet = Contract(lookup=Lookup(lag_s=20.0, absence=Finality.QUIESCENCE, quiescence_s=50.0))
    assert absence(quiet, asked_s=169.9) is Finality.NONE
    assert absence(quiet, asked_s=170.0) is Finality.QUIESCENCE
    fenced = Contract(fence=Fence(), lookup=Lookup(lag_s=0.0))
    assert absence(fenced, asked_s=7, newer_s=7) is Finality.FENCE
    assert absence(fenced, asked_s=7) is Finality.NONE
    assert absence(plain, asked_s=7, newer_s=7) is Finality.NONE
    eventual = Contract(lookup=Lookup(lag_s=None, absence=Finality.EXPIRY), expiry=Expiry())
    assert absence(eventual, asked_s=10**9) is Finality.NONE


@pytest.mark.scenario("RN-6", "OR-8")
def test_what_a_lookup_that_lags_does_not_show_may_have_been_done_until_the_last_moment():
    lagging = Lookup(lag_s=20.0)
    fenced = Contract(fence=Fence(), lookup=lagging)
    assert absence(fenced, asked_s=226.9, newer_s=207) is Finality.NONE, "it may have acted at 206"
    assert absence(fenced, asked_s=227.0, newer_s=207) is Finality.FENCE
    unstated = replace(fenced, lookup=Lookup(lag_s=None))
    assert absence(unstated, asked_s=10**9, newer_s=207) is Finality.NONE
    last_s = 100.0 + 50.0  # a request may arrive until then, and act
    quiet = replace(lagging, absence=Finality.QUIESCENCE, quiescence_s=50.0)
    assert absence(Contract(lookup=quiet), asked_s=last_s + 19.9) is Finality.NONE
    assert absence(Contract(lookup=quiet), asked_s=last_s + 20.0) is Finality.QUIESCENCE


@pytest.mark.scenario("AT-14", "RN-5")
def test_quiescence_is_only_contractual():
    assert certainty_of(Finality.QUIESCENCE, so_far=None) is Certainty.CONTRACTUAL
    assert certainty_of(Finality.EXPIRY, so_far=None) is Certainty.PROVEN
    assert certainty_of(Finality.EXPIRY, so_far=Certainty.CONTRACTUAL) is Certainty.CONTRACTUAL
