"""What is kept of the answers of recipients, and of whoever asked them."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final, TypeVar

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
from landed.records.texts import storable

A = TypeVar("A", bound=tuple[Any, ...])
RETRY_AFTER_S_MAX: Final = 86_400.0
"""Nobody is left alone for longer because a recipient asked for it."""


def kept(answer: A) -> A:
    """The answer as both databases can hold it.

    What a recipient says may be anything, and that it said it must not be lost for that: characters
    that cannot be stored become question marks, and a time to wait becomes one of at most a day.

    Raises:
        TypeError, ValueError: a value in it is of no use at all.
    """
    values = {
        name: _kept(name, value)
        for name, value in zip(answer._fields, answer, strict=True)  # type: ignore[attr-defined]
    }
    return type(answer)(**values)


def _kept(name: str, value: Any) -> Any:
    if name == "result":
        if not isinstance(value, bytes | bytearray | memoryview | None):
            raise TypeError(f"its result is {type(value).__name__}, not bytes")
        return bytes(value or b"")
    if value is None:
        return None
    if name == "retry_after_s":
        seconds = float(value)
        return None if math.isnan(seconds) else min(max(0.0, seconds), RETRY_AFTER_S_MAX)
    return value if name == "finality" else storable(str(value))


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
