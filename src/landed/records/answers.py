"""What an attempt's row keeps of its answer."""

from __future__ import annotations

import hashlib

from landed.effects.answer import (
    Abandoned,
    Accepted,
    AttemptAnswer,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    NotSent,
    Refused,
    Success,
)


def outcome_of(answer: AttemptAnswer) -> str:
    """The word under which an attempt records an answer."""
    match answer:
        case Success():
            return "success"
        case Accepted():
            return "accepted"
        case Refused():
            return "refused"
        case Fenced():
            return "fenced"
        case NotExecuted():
            return "not_executed"
        case NotSent():
            return "not_sent"
        case InFlight():
            return "in_flight"
        case KeyConflict():
            return "key_conflict"
        case Abandoned():
            return "abandoned"
        case _:
            return "ambiguous"


def evidence_of(answer: AttemptAnswer) -> dict[str, object]:
    """The columns of evidence; None where the answer has none."""
    result = getattr(answer, "result", None)
    return {
        "answer_code": getattr(answer, "code", "") or None,
        "answer_digest": None if result is None else hashlib.sha256(result).digest(),
        "error": getattr(answer, "detail", "")[:500] or None,
    }
