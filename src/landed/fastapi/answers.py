"""From an outcome of the loop to what a caller is told. One ``match``; the table is problems.py."""

from __future__ import annotations

from typing import Any

from landed.commands import (
    Applied,
    Conflicted,
    Done,
    Fault,
    FaultKind,
    KeyReused,
    Outcome,
    Reject,
    Rejected,
    Unavailable,
    Unresolved,
)
from landed.fastapi.problems import TABLE, Problem, problem


def problem_of(outcome: Outcome[Any, Any], *, noun: str) -> Problem | None:
    """Say which problem an outcome is; None for ``Done``, which is none.

    Args:
        outcome: what ``SafeLoop.execute`` returned.
        noun: what an aggregate is called towards callers, such as ``account``.
    """
    match outcome:
        case Done():
            return None
        case Rejected(reason=reason):
            return rejection(reason)
        case KeyReused():
            return problem("IDEMPOTENCY_KEY_REUSED", "send a new key for a new request")
        case Conflicted():
            return problem("CONFLICT", "nothing was changed; send it again with the same key")
        case Unresolved(applied=Applied.APPLIED):
            return problem("RESULT_UNAVAILABLE", outcome.detail)
        case Unresolved():
            return problem("OUTCOME_UNKNOWN", outcome.detail)
        case Unavailable():
            return problem("SERVICE_UNAVAILABLE", outcome.detail)
        case Fault(kind=FaultKind.CLOSED):
            return _closed(outcome, noun)
        case Fault():
            detail = f"{outcome.kind.value}: {outcome.detail}".removesuffix(": ")
            return problem("INTERNAL_ERROR", detail, outcome=outcome.applied)


def rejection(reason: Reject) -> Problem:
    """A business rule's no, under its own name: ``sold_out`` is ``SOLD_OUT``.

    A code that is a line of the table takes that line; its fields become members either way.
    """
    code = reason.code.upper()
    if code in TABLE:
        return problem(code, reason.detail, members=reason.fields)
    plain = problem("REJECTED", reason.detail, members=reason.fields)
    words = code.lower().replace("_", " ")
    row = plain.row._replace(type=f"/problems/{words.replace(' ', '-')}", title=words.capitalize())
    return plain._replace(code=code, row=row)


def _closed(fault: Fault, noun: str) -> Problem:
    plain = problem("CLOSED", f"the {noun} was closed for good", outcome=fault.applied)
    row = plain.row._replace(type=f"/problems/{noun}-closed", title=f"The {noun} was closed")
    return plain._replace(code=f"{noun.upper()}_CLOSED", row=row)
