"""How long an answer is kept: ages in server time, remaining lives on the local clock.

No host's wall clock enters anywhere, so a wrong one cannot shorten the window (rule SW-50).
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from landed.projections.port import Answered

S = TypeVar("S")


class Kept(NamedTuple, Generic[S]):
    """An answer and the moment it may be dropped, on the projection's own monotonic clock."""

    answered: Answered[S]
    expires_at_ms: float


def life_left_ms(*, batch_ms: int, newest_ms: int, life_ms: float) -> float:
    """How long a replayed event's answer is still to be kept; 0 or less: not at all.

    The age is the newest server time known minus the batch's own, never below 0: stamps may step
    back at a leader change. An event that is the newest thing known counts as just written, which
    keeps it too long rather than too short (rules SW-50, SW-51, SW-54).
    """
    return life_ms - max(0, newest_ms - batch_ms)


def merge(known: Kept[S], fresh: Kept[S]) -> Kept[S]:
    """Combine two answers to one request: the higher version's result, the later expiry.

    A life is never shortened (rule SW-53).
    """
    expires_at_ms = max(known.expires_at_ms, fresh.expires_at_ms)
    better = fresh if fresh.answered.version > known.answered.version else known
    return Kept(better.answered, expires_at_ms)
