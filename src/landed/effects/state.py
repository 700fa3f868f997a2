"""The words for where an effect stands, and how sure we are of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where an effect stands. Only the last four are terminal, and nothing leaves those."""

    PENDING = "pending"
    """Recorded, never begun."""
    SENDING = "sending"
    """An attempt is open."""
    RETRY = "retry"
    """Proven not to have acted; due again."""
    ACCEPTED = "accepted"
    """The recipient durably took it; the result is to come."""
    UNKNOWN = "unknown"
    """In doubt: at least one attempt may have acted, and nothing has settled it."""
    PARKED = "parked"
    """No doubt, but it needs a person."""
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    FENCED = "fenced"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({State.CONFIRMED, State.REFUSED, State.FENCED, State.CANCELLED})


class Certainty(StrEnum):
    """How sure a terminal state is: the weakest step it rests on (rule AT-14)."""

    PROVEN = "proven"
    CONTRACTUAL = "contractual"
    """It rests on something the recipient only declared, such as quiescence."""
    ATTESTED = "attested"
    """A person said so."""


class Reason(StrEnum):
    """Why an effect is unknown (rule RN-1), or why it was cancelled or parked."""

    NO_ANSWER = "no_answer"
    ABANDONED = "abandoned"
    IN_FLIGHT = "in_flight"
    AMBIGUOUS_ANSWER = "ambiguous_answer"
    KEY_CONFLICT = "key_conflict"
    HORIZON_PASSED = "horizon_passed"
    CONTRADICTION = "contradiction"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    SEALED = "sealed"
    OPERATOR = "operator"
    BUDGET_SPENT = "budget_spent"
    ATTESTED_ABSENT = "attested_absent"


class Finality(StrEnum):
    """Why an absence can be believed for good (rule RN-5). Time alone is never a reason."""

    NONE = "none"
    EXPIRY = "expiry"
    SEAL = "seal"
    FENCE = "fence"
    QUIESCENCE = "quiescence"


class Method(StrEnum):
    """How a doubt was looked into."""

    LOOKUP = "lookup"
    RESEND = "resend"
    SEAL = "seal"
    EVENT = "event"
    OPERATOR = "operator"
