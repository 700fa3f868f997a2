"""The life of an effect: a table. No transition exists outside it.

Every move of an effect, by whatever agent, is looked up here and then written as one guarded
update. Documentation prints the same table (``tools/reference.py``). Source: effects rules, section
7; its row numbers are the values of ``Happening``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from landed.effects.state import TERMINAL, State


class Happening(Enum):
    """What may happen to an effect, by its row in the table."""

    REQUESTED_AGAIN = "E2"
    REQUESTED_OTHERWISE = "E3"
    BEGIN = "E4"
    NOT_SENT = "E5"
    SUCCESS = "E6"
    ACCEPTED = "E7"
    REFUSED = "E8"
    FENCED = "E9"
    NOT_EXECUTED = "E10"
    AMBIGUOUS = "E11"
    IN_FLIGHT = "E12"
    KEY_CONFLICT = "E13"
    ABANDONED = "E14"
    PRESENT = "E15"
    IN_PROGRESS = "E16"
    ABSENT = "E17"
    ABSENT_FINAL = "E18"
    ABSENT_FENCED = "E19"
    SEALED = "E20"
    ALREADY_ACTED = "E21"
    RESEND_OVER = "E22"
    NON_ACTS_SPENT = "E23"
    QUESTIONS_SPENT = "E24"
    REQUEUE = "E25"
    CANCEL = "E26"
    ATTEST_ACTED = "E27"
    ATTEST_ABSENT = "E28"
    EXPIRED = "E29"
    SUPERSEDED = "E30"
    SCRUB = "E32"


class Kind(Enum):
    MOVE = "move"
    STAY = "stay"
    """Allowed; the state stays."""
    REFUSE = "refuse"
    """Not allowed; nothing is written."""
    LATE = "late"
    """An answer to an attempt that is no longer open: recorded, then ``late`` decides."""
    VOID = "void"
    """Cannot arise. Treated as REFUSE and counted as a broken invariant."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the table says. ``to`` is the next state, the present one unless ``kind`` is MOVE."""

    kind: Kind
    to: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the table needs to know of an effect besides what happened."""

    state: State
    is_in_doubt: bool
    """An attempt *before* the one that is answered now is unsettled."""
    may_resend: bool = False
    """AT-9: the contract allows a same-key resend and its time is not over, or absence is final."""
    answer_speaks_for_all: bool = False
    """The contract's same-key promise makes a definite answer speak for earlier attempts (AT-7)."""
    is_key_consulted_first: bool = False
    """The recipient looks for the key before it compares the fence (AT-8)."""
    is_cancelling: bool = False
    """A seal was asked for to cancel, not to clear the order (SM-3)."""


# Columns in the order of _COLUMNS. A cell is a state, `=` stay, `x` refuse, `late`, `.` void, or
# `state?condition:otherwise`, where a condition is a field of Standing or `sure` (not in doubt).
_COLUMNS: Final = ("pending", "retry", "sending", "accepted", "unknown", "parked", "terminal")
TABLE: Final = MappingProxyType(
    {
        Happening.REQUESTED_AGAIN: "= = = = = = =",
        Happening.REQUESTED_OTHERWISE: "x x x x x x x",
        Happening.BEGIN: "sending sending x x sending?may_resend:x x x",
        Happening.NOT_SENT: ". late retry?sure:unknown late late late late",
        Happening.SUCCESS: ". late confirmed confirmed confirmed confirmed late",
        Happening.ACCEPTED: ". late accepted = accepted accepted late",
        Happening.REFUSED: ". late refused?speaks:unknown refused refused?speaks:= late late",
        Happening.FENCED: ". late fenced?key_first:unknown fenced?key_first:= fenced?key_first:= late late",
        Happening.NOT_EXECUTED: ". late retry?sure:unknown late late late late",
        Happening.AMBIGUOUS: ". late unknown late = late late",
        Happening.IN_FLIGHT: ". late unknown late = late late",
        Happening.KEY_CONFLICT: ". late unknown late = late late",
        Happening.ABANDONED: "x x unknown x x x x",
        Happening.PRESENT: "x x x confirmed confirmed confirmed late",
        Happening.IN_PROGRESS: "x x x = = x x",
        Happening.ABSENT: "x x x = = x x",
        Happening.ABSENT_FINAL: "x x x = retry x x",
        Happening.ABSENT_FENCED: "x x x x fenced fenced x",
        Happening.SEALED: (
            "cancelled?cancelling:fenced cancelled?cancelling:fenced x x"
            " cancelled?cancelling:fenced cancelled?cancelling:fenced ="
        ),
        Happening.ALREADY_ACTED: "x x x confirmed confirmed confirmed late",
        Happening.RESEND_OVER: "x x x x = x x",
        Happening.NON_ACTS_SPENT: "x parked x x x x x",
        Happening.QUESTIONS_SPENT: "x x x = = x x",
        Happening.REQUEUE: "x x x x x retry x",
        Happening.CANCEL: "cancelled cancelled = x x cancelled x",
        Happening.ATTEST_ACTED: "x x x confirmed confirmed x x",
        Happening.ATTEST_ABSENT: "x x x x parked x x",
        Happening.EXPIRED: "cancelled cancelled = = = cancelled =",
        Happening.SUPERSEDED: "cancelled cancelled = = = cancelled =",
        Happening.SCRUB: "x x x x x x =",
    }
)


def decide(happening: Happening, standing: Standing) -> Verdict:
    """Look up what a happening makes of an effect. Pure; the caller writes it, guarded.

    Returns:
        A verdict whose ``to`` is never a terminal state while the effect is in doubt, unless the
        happening is the evidence that settles the doubt (invariant I-7).
    """
    column = "terminal" if standing.state in TERMINAL else standing.state.value
    cell = TABLE[happening].split()[_COLUMNS.index(column)]
    if "?" in cell:
        then, _, rest = cell.partition("?")
        condition, _, otherwise = rest.partition(":")
        cell = then if _holds(condition, standing) else otherwise
    match cell:
        case "=":
            return Verdict(Kind.STAY, standing.state)
        case "x":
            return Verdict(Kind.REFUSE, standing.state)
        case "late":
            return Verdict(Kind.LATE, standing.state)
        case ".":
            return Verdict(Kind.VOID, standing.state)
        case _:
            return Verdict(Kind.MOVE, State(cell))


def _holds(condition: str, standing: Standing) -> bool:
    match condition:
        case "sure":
            return not standing.is_in_doubt
        case "speaks":
            return not standing.is_in_doubt or standing.answer_speaks_for_all
        case "key_first":
            return not standing.is_in_doubt or standing.is_key_consulted_first
        case "may_resend":
            return standing.may_resend
        case "cancelling":
            return standing.is_cancelling
        case _:
            raise AssertionError(f"the table names a condition nobody knows: {condition}")


class LateMove(Enum):
    """What a late answer does, once it is recorded on its attempt (rule SM-2)."""

    RECORD = "record"
    """Nothing more."""
    CONFIRM = "confirm"
    """The effect acted: confirm it from the late answer."""
    NOTE_SUCCESS = "note_success"
    """A newer attempt is open; its end takes the success into account."""
    CONTRADICT = "contradict"
    """It acted although a terminal state says otherwise: review, alert, state unchanged (RN-9)."""


def late(happening: Happening, state: State, *, is_newest: bool, is_same_result: bool) -> LateMove:
    """Say what an answer to a closed attempt does.

    Args:
        happening: what the late answer would have been in time.
        state: where the effect stands now.
        is_newest: the attempt answered is the newest one.
        is_same_result: of a confirmed effect: the late result equals the one on record, or the
            contract does not promise that repeats are equal.
    """
    if happening not in (Happening.SUCCESS, Happening.PRESENT, Happening.ALREADY_ACTED):
        return LateMove.RECORD
    match state:
        case State.SENDING:
            return LateMove.RECORD if is_newest else LateMove.NOTE_SUCCESS
        case State.RETRY | State.UNKNOWN | State.ACCEPTED | State.PARKED | State.PENDING:
            return LateMove.CONFIRM
        case State.CONFIRMED:
            return LateMove.RECORD if is_same_result else LateMove.CONTRADICT
        case State.REFUSED | State.FENCED | State.CANCELLED:
            return LateMove.CONTRADICT


def late_target(step: LateMove, state: State) -> State:
    """The state that a late answer leads to: confirmed, or where the effect stands."""
    return State.CONFIRMED if step is LateMove.CONFIRM else state
