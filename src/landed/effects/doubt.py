"""What the table of an effect's life asks besides the state: doubt, and what a contract allows."""

from __future__ import annotations

from dataclasses import dataclass

from landed.effects.answer import (
    Abandoned,
    Accepted,
    Ambiguous,
    AttemptAnswer,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    NotSent,
    Refused,
    Success,
)
from landed.effects.contract import Ambiguity, Contract, resend_margin_s
from landed.effects.identity import resend_until_us
from landed.effects.state import Certainty, Reason, State
from landed.effects.transitions import Happening, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """The attempts of one effect, as far as its doubt goes. Times are microseconds since 1970."""

    state: State
    attempt_no: int
    """Attempts begun."""
    doubt_from: int | None
    """The lowest attempt whose outcome is unsettled."""
    first_sight_us: int | None
    """Begin of the earliest attempt not proven unsent: the recipient may know the key since."""
    is_absence_final: bool = False
    """A final absence was recorded after the last attempt."""


def standing(
    doubt: Doubt,
    contract: Contract,
    *,
    attempt_no: int | None = None,
    now_us: int | None = None,
    is_cancelling: bool = False,
) -> Standing:
    """Say what the table needs to know.

    Args:
        doubt: the effect as it stands.
        contract: the one it is bound to.
        attempt_no: the attempt that is answered now; None where no attempt is.
        now_us: for a resend, the database's time; without it no resend is allowed.
        is_cancelling: a seal was asked for to cancel.
    """
    earlier = doubt.doubt_from is not None and (attempt_no is None or doubt.doubt_from < attempt_no)
    return Standing(
        state=doubt.state,
        is_in_doubt=earlier,
        may_resend=now_us is not None and may_resend(doubt, contract, now_us=now_us),
        answer_speaks_for_all=contract.is_answer_final_for_all,
        is_key_consulted_first=contract.fence is not None and contract.fence.is_key_consulted_first,
        is_cancelling=is_cancelling,
    )


def may_resend(doubt: Doubt, contract: Contract, *, now_us: int) -> bool:
    """Say whether an effect in doubt may be sent again under its own key (rule AT-9).

    Never under another one: there is no such path.
    """
    if doubt.is_absence_final:
        return True
    if contract.ambiguity is Ambiguity.DUPLICATES_TOLERATED:
        return True
    until = resend_limit_us(doubt, contract)
    return contract.is_same_key_safe and (until is None or now_us < until)


def resend_limit_us(doubt: Doubt, contract: Contract) -> int | None:
    """The last moment at which a resend in doubt may begin; None: no bound is known to apply.

    A recipient whose memory is of unknown length is believed for as long as one series of attempts
    may last, and not longer.
    """
    if doubt.first_sight_us is None or contract.ambiguity is Ambiguity.DUPLICATES_TOLERATED:
        # Where repeats do no harm, nobody's memory is relied upon.
        return None
    retention_s = contract.key.retention_s if contract.key is not None else None
    if retention_s is None:
        return doubt.first_sight_us + _us(contract.series_max_s)
    return resend_until_us(doubt.first_sight_us, _us(retention_s), _us(resend_margin_s(contract)))


def happening_of(answer: AttemptAnswer) -> Happening:
    """The row of the table that an answer to an attempt belongs to."""
    match answer:
        case Success():
            return Happening.SUCCESS
        case Accepted():
            return Happening.ACCEPTED
        case Refused():
            return Happening.REFUSED
        case Fenced():
            return Happening.FENCED
        case NotExecuted():
            return Happening.NOT_EXECUTED
        case NotSent():
            return Happening.NOT_SENT
        case InFlight():
            return Happening.IN_FLIGHT
        case KeyConflict():
            return Happening.KEY_CONFLICT
        case Ambiguous():
            return Happening.AMBIGUOUS
        case Abandoned():
            return Happening.ABANDONED


def raises_doubt(answer: AttemptAnswer) -> bool:
    """An answer that leaves open whether the attempt acted (rule AT-7)."""
    return isinstance(answer, Ambiguous | InFlight | KeyConflict | Abandoned)


def doubt_after(
    doubt: Doubt, contract: Contract, answer: AttemptAnswer, attempt_no: int
) -> int | None:
    """The lowest unsettled attempt once this answer is in (rules AT-7, AT-8)."""
    if raises_doubt(answer):
        return attempt_no if doubt.doubt_from is None else min(doubt.doubt_from, attempt_no)
    earlier = doubt.doubt_from is not None and doubt.doubt_from < attempt_no
    if not earlier:
        return None
    match answer:
        case Success() | Accepted():
            return None
        case Refused():
            return None if contract.is_answer_final_for_all else doubt.doubt_from
        case Fenced():
            first = contract.fence is not None and contract.fence.is_key_consulted_first
            return None if first else doubt.doubt_from
        case _:
            return doubt.doubt_from


def reason_of(answer: AttemptAnswer) -> Reason | None:
    """Why the effect is unknown after this answer."""
    match answer:
        case Ambiguous(code=code):
            return Reason.AMBIGUOUS_ANSWER if code else Reason.NO_ANSWER
        case InFlight():
            return Reason.IN_FLIGHT
        case KeyConflict():
            return Reason.KEY_CONFLICT
        case Abandoned():
            return Reason.ABANDONED
        case _:
            return None


def weakest(*certainties: Certainty | None) -> Certainty:
    """The weakest of the steps a terminal state rests on (rule AT-14)."""
    order = (Certainty.PROVEN, Certainty.CONTRACTUAL, Certainty.ATTESTED)
    return max((c for c in certainties if c is not None), key=order.index, default=Certainty.PROVEN)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
