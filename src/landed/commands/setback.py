"""What went wrong, put into the table's words, and what the call must remember of it."""

from __future__ import annotations

from typing import TypeVar

from landed.commands.call import Call
from landed.commands.catch_up import Broken
from landed.commands.moves import Saw, after_read, after_write, is_doubtful
from landed.commands.outcome import FaultKind
from landed.errors import (
    BusyError,
    LandedError,
    RefusedError,
    SequenceTakenError,
    VersionConflictError,
)

S = TypeVar("S")
R = TypeVar("R")


def read_failed(call: Call[S, R], error: LandedError) -> Saw:
    """A read or the projection failed."""
    saw = after_read(error)
    call.detail = str(error)
    call.known_log.is_known = False
    call.retry_after_s = _retry_after_s(error)
    if saw is Saw.BROKEN:
        code = error.code if isinstance(error, RefusedError) else 0
        call.broken = Broken(FaultKind.REFUSED, str(error), code)
    return saw


def write_failed(call: Call[S, R], error: LandedError) -> Saw:
    """A write failed, was refused, or nobody knows."""
    saw = after_write(error)
    call.detail = str(error)
    call.retry_after_s = _retry_after_s(error)
    code = error.code if isinstance(error, RefusedError) else 0
    match saw:
        case Saw.UNKNOWN:
            call.unknown = (*call.unknown, call.attempt)
            call.known_log.is_known = False
        case Saw.NOT_SENT:
            call.known_log.is_known = False
        case Saw.TAKEN:
            call.taken = error if isinstance(error, SequenceTakenError) else None
        case Saw.CONFLICT:
            if isinstance(error, VersionConflictError) and is_doubtful(error, call.views):
                call.is_doubted = True
        case Saw.REGRESSED:
            call.known_log.is_known = False
            call.broken = Broken(FaultKind.REGRESSED, str(error), code)
        case Saw.MISSING:
            call.is_doubted = True
            if call.was_missing:
                call.broken = Broken(FaultKind.CLOSED, str(error), code)
                return Saw.CLOSED
            call.was_missing = True
        case Saw.REFUSED:
            call.broken = Broken(FaultKind.REFUSED, str(error), code)
        case _:
            pass
    return saw


def _retry_after_s(error: LandedError) -> float:
    return error.retry_after_s or 0.0 if isinstance(error, BusyError) else 0.0
