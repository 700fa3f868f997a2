"""Answers to attempts that are no longer open: recorded always, applied by the late rules (SM-2)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, update

from landed.effects.answer import AttemptAnswer, Success
from landed.effects.contract import Contract
from landed.effects.doubt import happening_of
from landed.effects.state import Certainty, Reason, State
from landed.effects.transitions import LateMove, late, late_target
from landed.errors import RetryTransactionError
from landed.records import settle
from landed.records.answers import evidence_of, outcome_of
from landed.records.effects import EffectView, moved, view
from landed.records.session import Books
from landed.records.tables import attempts

_LOOKS_MAX: Final = 8
"""Looks at an effect that others move in between; each of them has got further by then."""


def end_late(
    conn: Connection,
    books: Books,
    effect_id: UUID,
    contract: Contract,
    answer: AttemptAnswer,
    *,
    attempt_no: int,
    delays: settle.Delays,
) -> State:
    """Record an answer on its attempt, and apply it by rule SM-2; returns where the effect stands.

    Raises:
        RetryTransactionError: it was moved again and again meanwhile; begin the transaction anew.
    """
    evidence = {name: value for name, value in evidence_of(answer).items() if value is not None}
    conn.execute(
        update(attempts)
        .where(
            attempts.c.effect_id == effect_id,
            attempts.c.attempt_no == attempt_no,
            attempts.c.late_outcome.is_(None),
        )
        .values(late_outcome=outcome_of(answer), late_at=books.at(conn), **evidence)
    )
    for _ in range(_LOOKS_MAX):
        effect = view(conn, effect_id)
        assert effect is not None, "effects are never deleted"
        state = _apply(conn, books, effect, contract, answer, attempt_no, delays)
        if state is not None:
            return state
    raise RetryTransactionError(f"effect {effect_id} moved {_LOOKS_MAX} times meanwhile")


def _apply(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    answer: AttemptAnswer,
    attempt_no: int,
    delays: settle.Delays,
) -> State | None:
    """Apply a late answer to an effect as it was seen; None if it has moved since (SM-1)."""
    result = answer.result if isinstance(answer, Success) else None
    is_same = (
        result is None
        or effect.result_digest is None
        or not contract.is_answer_final_for_all
        or settle.digest_of(result) == effect.result_digest
    )
    step = late(
        happening_of(answer),
        effect.state,
        is_newest=attempt_no == effect.attempt_no,
        is_same_result=is_same,
    )
    if step is LateMove.CONFIRM and effect.reason == Reason.ATTESTED_ABSENT.value:
        # A person said that it did not act, and it did: an incident, never a silent change (RN-9).
        step = LateMove.CONTRADICT
    match step:
        case LateMove.CONFIRM:
            values = {
                "doubt_from": None,
                "reason": None,
                **settle.terminal_values(conn, books, result, Certainty.PROVEN),
            }
            to = late_target(step, effect.state)
            if not moved(conn, effect, to, values):
                return None
            settle.after_move(conn, books, effect, contract, to, answer=answer, delays=delays)
            return to
        case LateMove.NOTE_SUCCESS:
            if not moved(conn, effect, effect.state, {"has_late_success": True}):
                return None
        case LateMove.CONTRADICT:
            settle.contradict(conn, books, effect, f"attempt {attempt_no} answered late: it acted")
        case LateMove.RECORD:
            pass
    return effect.state
