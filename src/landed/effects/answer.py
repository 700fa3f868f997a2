"""What a recipient may have answered, as closed unions. The third answer has its own value."""

from __future__ import annotations

from typing import NamedTuple

from landed.effects.state import Finality

# --- to an attempt ------------------------------------------------------------------------------


class Success(NamedTuple):
    """It acted, and says so durably (else the contract turns it into ``Accepted``)."""

    result: bytes
    recipient_ref: str | None = None
    code: str = ""


class Accepted(NamedTuple):
    """It durably took the request; the result is to come."""

    recipient_ref: str | None = None
    code: str = ""


class Refused(NamedTuple):
    """It proves, with authority, that no effect occurred and none will."""

    result: bytes = b""
    code: str = ""


class Fenced(NamedTuple):
    """A newer version has passed there, or the identity is sealed."""

    code: str = ""


class NotExecuted(NamedTuple):
    """This attempt did not execute, says the contract (a rate limit, for example)."""

    retry_after_s: float | None = None
    code: str = ""


class NotSent(NamedTuple):
    """Proof that no byte of the request can have left (rule AT-4)."""

    detail: str = ""


class InFlight(NamedTuple):
    """The same key is being worked on there. Not a failure (rule AT-10)."""

    retry_after_s: float | None = None
    code: str = ""


class KeyConflict(NamedTuple):
    """The key was used there with another payload."""

    code: str = ""


class Ambiguous(NamedTuple):
    """Nobody knows. Everything that is not one of the others is this."""

    detail: str = ""
    code: str = ""


class Abandoned(NamedTuple):
    """Nobody closed the attempt before its deadline (written by the reaper, never by a sender)."""


AttemptAnswer = (
    Success
    | Accepted
    | Refused
    | Fenced
    | NotExecuted
    | NotSent
    | InFlight
    | KeyConflict
    | Ambiguous
    | Abandoned
)

# --- to a look-up -------------------------------------------------------------------------------


class Present(NamedTuple):
    """It acted. The result is the evidence found, not a guess at the first answer (SM-5)."""

    result: bytes
    recipient_ref: str | None = None


class InProgress(NamedTuple):
    """It is at it."""


class Absent(NamedTuple):
    """It has no trace of the key. Proof only if ``finality`` says why."""

    finality: Finality = Finality.NONE


class Inconclusive(NamedTuple):
    """The question itself got no usable answer."""

    detail: str = ""


LookupAnswer = Present | InProgress | Absent | Inconclusive

# --- to a seal ----------------------------------------------------------------------------------


class Sealed(NamedTuple):
    """It never acted under this identity, and never will."""


class AlreadyActed(NamedTuple):
    result: bytes
    recipient_ref: str | None = None


SealAnswer = Sealed | AlreadyActed | Inconclusive
