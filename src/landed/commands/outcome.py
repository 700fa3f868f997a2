"""How a command may end: a closed union. Exactly one comes back; only programming errors raise.

Every outcome says ``applied``: whether the attempts of **this** call changed the log. The third
answer, nobody knows, is never folded into the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from landed.commands.command import Reject

S = TypeVar("S")
R = TypeVar("R")


class Applied(StrEnum):
    """Is it in the log?"""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class How(StrEnum):
    """Where a result comes from, strongest first. Of several targets the weakest is told."""

    FRESH = "fresh"
    """This call wrote it."""
    ORIGINAL = "original"
    """An earlier attempt or another copy of the request wrote it; this is its first answer."""
    REBUILT = "rebuilt"
    """It is in the log, but the first answer has expired; this is the present state."""


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """It is in the log, once, durable and readable."""

    results: tuple[R, ...]
    """What ``respond`` made of each target, in their order."""
    versions: tuple[int, ...]
    """The version of each target that the result speaks of."""
    how: How
    attempts: int = 1

    @property
    def result(self) -> R:
        """The first target's result: of a command on one aggregate, the result."""
        return self.results[0]

    @property
    def applied(self) -> Applied:
        return Applied.APPLIED

    @property
    def is_retryable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Rejected(Generic[S]):
    """A business rule said no, and nothing of this call can land any more."""

    reason: Reject
    states: tuple[S, ...]
    """The states it was decided on, in the order of the targets; empty if nothing was read."""
    attempts: int = 1

    @property
    def applied(self) -> Applied:
        return Applied.NOT_APPLIED

    @property
    def is_retryable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The event id belongs to another wish: same key, other fingerprint."""

    attempts: int = 1

    @property
    def applied(self) -> Applied:
        return Applied.NOT_APPLIED

    @property
    def is_retryable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Others kept changing the aggregates; proven not applied. Try again with the same key."""

    attempts: int = 1

    @property
    def applied(self) -> Applied:
        return Applied.NOT_APPLIED

    @property
    def is_retryable(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Unresolved:
    """It may be in the log, or is, but the answer is not known. Try again with the same key."""

    applied: Applied
    """``UNKNOWN``, or ``APPLIED`` where only the result is missing."""
    detail: str = ""
    attempts: int = 1

    @property
    def is_retryable(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The log or the projection cannot be reached; proven not applied. Try again later."""

    detail: str = ""
    attempts: int = 1

    @property
    def applied(self) -> Applied:
        return Applied.NOT_APPLIED

    @property
    def is_retryable(self) -> bool:
        return True


class FaultKind(StrEnum):
    """What needs a human."""

    CLOSED = "aggregate_closed"
    """The aggregate is deleted. It is never recreated by a command."""
    REGRESSED = "aggregate_regressed"
    """The aggregate is shorter than it was, or has a gap: recreated by someone, or another log."""
    TRIMMED = "history_trimmed"
    """Events that were not folded yet are gone, and no snapshot stands for them."""
    UNDECODABLE = "event_undecodable"
    """The domain does not understand a stored event."""
    REFUSED = "write_refused"
    """The log refuses the request for a reason that repeating does not cure; see ``code``."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Needs a human; repeating it does not help."""

    kind: FaultKind
    applied: Applied
    detail: str = ""
    code: int = 0
    """The protocol's number, where the log gave one."""
    attempts: int = 1

    @property
    def is_retryable(self) -> bool:
        return False


Outcome = Done[R] | Rejected[S] | KeyReused | Conflicted | Unresolved | Unavailable | Fault


@dataclass(frozen=True, slots=True)
class Seen(Generic[S]):
    """A state that was read, and the version it belongs to (0: never written)."""

    state: S
    version: int
