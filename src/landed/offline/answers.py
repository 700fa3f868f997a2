"""Which move of the queue follows which answer: a table of five rows.

There is no conflict arm: a queue writes without a guard, so a conflict is a fault (rule SW-106).
Nothing is ever re-derived.
"""

from __future__ import annotations

from enum import StrEnum

from landed.errors import (
    ConfigurationError,
    LandedError,
    LocalProtocolError,
    Move,
    Outcome,
    PoolClosedError,
    SequenceTakenError,
    StorageError,
    VersionConflictError,
)


class Next(StrEnum):
    """What the drain loop does."""

    JUDGE = "the number is taken: judge how far the run got"
    HOLD = "pause, send the same events with the same numbers again, without limit"
    BLOCK = "the aggregate stands still and is shown"
    FAULT = "stop: a bug, here or there"
    RAISE = "the caller's log is closed or misconfigured: tell the caller"


def after_write(error: LandedError) -> Next:
    """Put the error of a write into the table's words. What nobody listed is held, never marked."""
    match error:
        case SequenceTakenError():
            return Next.JUDGE
        case VersionConflictError():
            return Next.FAULT
        case PoolClosedError() | ConfigurationError():
            return Next.RAISE
        case StorageError():
            return Next.HOLD
        case LocalProtocolError():
            return Next.BLOCK
        case _:
            pass
    if error.outcome is Outcome.UNKNOWN or error.move is not Move.GIVE_UP:
        return Next.HOLD
    return Next.BLOCK
