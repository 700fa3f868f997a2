"""Which move follows which answer: the table of the safe write loop, as data.

``loop.py`` does what ``MOVES`` says and decides nothing by itself; ``docs/reference/moves.md`` is
printed from it. The few functions below turn what came back into a word of the table; they are the
only place above the log's own law that compares versions and sequences.

Source: rule SW-34; mission 1, "The write loop", "Conflict means re-derive. Ambiguous means hold
the sequence and refresh the version."
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from enum import StrEnum
from typing import Any, Final, NamedTuple

from landed.errors import (
    AggregateClosedError,
    AggregateMissingError,
    LandedError,
    Move,
    NotLeaderError,
    Outcome,
    PoolUnavailableError,
    SequenceInFlightError,
    SequenceTakenError,
    StorageError,
    VersionConflictError,
)
from landed.projections.port import View


class At(StrEnum):
    """Where a call is."""

    ENTER = "enter"
    CATCH_UP = "catch up"
    """Fold what is new of every target, and look for the request in it."""
    JUDGE = "judge"
    """Weigh every attempt whose outcome is unknown against what is visible now."""
    DECIDE = "decide"
    """Run the business rules on fresh states."""
    SEND = "send"
    RECORD = "record"
    """Keep the answer and move the cursor, in one step."""
    VERIFY = "verify"
    """Ask the log who owns the contested sequence."""
    SETTLE = "settle"
    """It is in the log: find its answer, or rebuild it."""
    BACK_OFF = "back off"


class Saw(StrEnum):
    """What came back."""

    WELL_FORMED = "well formed"
    MALFORMED = "malformed"
    HIT = "hit on every target"
    PARTIAL_HIT = "hit on some targets"
    OTHER_FINGERPRINT = "hit, other fingerprint"
    NO_HIT = "no hit"
    READ_FAILED = "read or projection failed"
    BROKEN = "closed, regressed, trimmed, undecodable or refused"
    CLEAR = "nothing unknown"
    LIVE = "one may still land"
    DEAD = "none can land any more"
    LAST_LOOK = "attempts are over"
    OURS = "ours"
    SIBLING = "a sibling's"
    UNWRITTEN = "unwritten on every leg"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    REJECTED_IN_DOUBT = "rejected, one may still land"
    LANDED = "landed"
    CONFLICT = "conflict"
    REGRESSED = "conflict, version below ours"
    UNKNOWN = "unknown"
    IN_FLIGHT = "in flight"
    TAKEN = "taken"
    NOT_SENT = "not sent"
    BUSY = "busy, or failed before accepting"
    MISSING = "missing or closed, for the first time"
    CLOSED = "missing or closed again"
    REFUSED = "refused for good"
    OUT_OF_TIME = "time is over"
    KEPT = "kept, or the projection failed"
    ASTRAY = "not at the next version"
    ANSWERED = "every answer found or rebuilt"
    BEHIND = "not readable yet, or the projection failed"


class Sequence(StrEnum):
    """What happens to the sequence of the next attempt."""

    DERIVE = "derive"
    """Highest own sequence of the next catch-up, plus one."""
    HOLD = "hold"
    """The same again: an attempt with it may have landed."""
    KEEP = "-"
    """Whatever was planned stays planned."""


class End(StrEnum):
    """How a call ends."""

    DONE = "Done"
    REJECTED = "Rejected"
    KEY_REUSED = "KeyReused"
    FAULT = "Fault"
    UNRESOLVED = "Unresolved, applied: unknown"
    UNRESOLVED_APPLIED = "Unresolved, applied: yes"
    CONFLICTED = "Conflicted"
    UNAVAILABLE = "Unavailable"
    GIVE_UP = "give up"
    """Unresolved, Conflicted or Unavailable: see ``when_giving_up``."""


class Rule(NamedTuple):
    """One row: what happens to the sequence, and where the call goes."""

    sequence: Sequence
    then: At | End
    back_to: At | None = None
    """After BACK_OFF; None where ``then`` is something else."""
    otherwise: End | None = None
    """Where BACK_OFF finds no attempts or no time left."""


def _back_off(
    sequence: Sequence, *, back_to: At = At.CATCH_UP, otherwise: End = End.GIVE_UP
) -> Rule:
    return Rule(sequence, At.BACK_OFF, back_to, otherwise)


_KEEP, _HOLD, _DERIVE = Sequence.KEEP, Sequence.HOLD, Sequence.DERIVE

MOVES: Final[dict[tuple[At, Saw], Rule]] = {
    (At.ENTER, Saw.WELL_FORMED): Rule(_DERIVE, At.CATCH_UP),
    (At.ENTER, Saw.MALFORMED): Rule(_KEEP, End.REJECTED),
    # The hit comes before everything else: a landed withdrawal that emptied the account must get
    # its answer back, not "insufficient funds" (SW-29).
    (At.CATCH_UP, Saw.HIT): Rule(_KEEP, End.DONE),
    (At.CATCH_UP, Saw.PARTIAL_HIT): Rule(_KEEP, At.SETTLE),
    (At.CATCH_UP, Saw.OTHER_FINGERPRINT): Rule(_KEEP, End.KEY_REUSED),
    (At.CATCH_UP, Saw.NO_HIT): Rule(_KEEP, At.JUDGE),
    (At.CATCH_UP, Saw.READ_FAILED): _back_off(_KEEP),
    (At.CATCH_UP, Saw.BROKEN): Rule(_KEEP, End.FAULT),
    # No re-deriving while an unknown attempt is unjudged (SW-31).
    (At.JUDGE, Saw.CLEAR): Rule(_KEEP, At.DECIDE),
    (At.JUDGE, Saw.LIVE): Rule(_KEEP, At.DECIDE),
    (At.JUDGE, Saw.DEAD): Rule(_DERIVE, At.DECIDE),
    (At.JUDGE, Saw.OURS): Rule(_KEEP, At.SETTLE),
    (At.JUDGE, Saw.OTHER_FINGERPRINT): Rule(_KEEP, End.KEY_REUSED),
    (At.JUDGE, Saw.UNWRITTEN): Rule(_KEEP, End.UNRESOLVED),
    (At.JUDGE, Saw.READ_FAILED): _back_off(_KEEP),
    (At.JUDGE, Saw.BROKEN): Rule(_KEEP, End.FAULT),
    (At.JUDGE, Saw.LAST_LOOK): Rule(_KEEP, End.GIVE_UP),
    (At.DECIDE, Saw.ACCEPTED): Rule(_KEEP, At.SEND),
    (At.DECIDE, Saw.REJECTED): Rule(_KEEP, End.REJECTED),
    (At.DECIDE, Saw.REJECTED_IN_DOUBT): Rule(_KEEP, End.UNRESOLVED),
    (At.SEND, Saw.LANDED): Rule(_KEEP, At.RECORD),
    (At.SEND, Saw.CONFLICT): _back_off(_DERIVE),
    (At.SEND, Saw.REGRESSED): Rule(_KEEP, End.FAULT),
    (At.SEND, Saw.UNKNOWN): _back_off(_HOLD),
    (At.SEND, Saw.IN_FLIGHT): _back_off(_HOLD),
    (At.SEND, Saw.TAKEN): Rule(_HOLD, At.VERIFY),
    (At.SEND, Saw.NOT_SENT): _back_off(_HOLD),
    (At.SEND, Saw.BUSY): _back_off(_HOLD),
    (At.SEND, Saw.MISSING): Rule(_HOLD, At.CATCH_UP),
    (At.SEND, Saw.CLOSED): Rule(_KEEP, End.FAULT),
    (At.SEND, Saw.REFUSED): Rule(_KEEP, End.FAULT),
    (At.SEND, Saw.OUT_OF_TIME): Rule(_KEEP, End.GIVE_UP),
    (At.RECORD, Saw.KEPT): Rule(_KEEP, End.DONE),
    (At.RECORD, Saw.ASTRAY): Rule(_KEEP, End.FAULT),
    (At.VERIFY, Saw.OURS): Rule(_KEEP, At.SETTLE),
    (At.VERIFY, Saw.OTHER_FINGERPRINT): Rule(_KEEP, End.KEY_REUSED),
    (At.VERIFY, Saw.SIBLING): _back_off(_DERIVE),
    (At.VERIFY, Saw.UNWRITTEN): Rule(_KEEP, End.UNRESOLVED),
    (At.VERIFY, Saw.READ_FAILED): _back_off(_HOLD, back_to=At.VERIFY, otherwise=End.UNRESOLVED),
    (At.VERIFY, Saw.BROKEN): Rule(_KEEP, End.FAULT),
    (At.SETTLE, Saw.ANSWERED): Rule(_KEEP, End.DONE),
    (At.SETTLE, Saw.OTHER_FINGERPRINT): Rule(_KEEP, End.KEY_REUSED),
    (At.SETTLE, Saw.BROKEN): Rule(_KEEP, End.FAULT),
    (At.SETTLE, Saw.BEHIND): _back_off(_KEEP, back_to=At.SETTLE, otherwise=End.UNRESOLVED_APPLIED),
}
"""Every state with everything that may come back there."""


def when_giving_up(obstacle: Saw, *, is_in_doubt: bool) -> End:
    """What to say when attempts or time are over (rule SW-33).

    Args:
        obstacle: what the last write or read that went wrong brought back.
        is_in_doubt: an unknown attempt may still land, or the last write was answered "in flight".
    """
    if is_in_doubt:
        return End.UNRESOLVED
    if obstacle in (Saw.NOT_SENT, Saw.BUSY, Saw.READ_FAILED):
        return End.UNAVAILABLE
    return End.CONFLICTED


class Attempt(NamedTuple):
    """What one sending insisted on, in the order of the targets."""

    client_seqs: tuple[int, ...]
    """The lowest sequence of each leg."""
    guards: tuple[int, ...]
    """The expected version of each leg: the cursor of that attempt's own catch-up (SW-26)."""


class Weighed(StrEnum):
    """What the visible part of the log says about an attempt of unknown outcome."""

    LIVE = "live"
    DEAD = "dead"
    ASK_OWNER = "ask owner"


def weigh(attempt: Attempt, views: Seq[View[Any]]) -> tuple[Weighed, tuple[int, ...]]:
    """Judge an attempt of unknown outcome after a catch-up that did not find it (rule SW-30).

    It can only have landed at guard + 1. Where a sequence of ours at or above its own is visible,
    somebody has that place or a later one, and the log must say who. Else, where anything is
    visible beyond its guard, its place is taken by somebody else.

    Returns:
        The verdict, and for ASK_OWNER the positions of the legs to be asked about.
    """
    contested = tuple(
        index for index, view in enumerate(views) if view.client_seq >= attempt.client_seqs[index]
    )
    if contested:
        return Weighed.ASK_OWNER, contested
    if any(view.version > guard for view, guard in zip(views, attempt.guards, strict=True)):
        return Weighed.DEAD, ()
    return Weighed.LIVE, ()


def next_seq(view: View[Any]) -> int:
    """The sequence to derive: above every own one that was folded or is known to be taken."""
    return max(view.client_seq, view.client_seq_floor) + 1


def next_versions(attempt: Attempt) -> tuple[int, ...]:
    """The versions that an attempt makes if it lands.

    A success that names others was appended to another life of the aggregate (rule SW-37).
    """
    return tuple([guard + 1 for guard in attempt.guards])


def is_behind(view: View[Any], version: int) -> bool:
    """Say whether a view does not reach up to a batch that is known to be there."""
    return view.version < version


def is_doubtful(error: VersionConflictError, views: Seq[View[Any]]) -> bool:
    """Say whether a conflict cannot be explained by an aggregate that was never written.

    A version above 0 where nothing could be read: written since, or deleted (design 20).
    """
    return error.actual != 0 and any(view.version == 0 for view in views)


def after_write(error: LandedError) -> Saw:
    """Put the error of a write into the table's words. What nobody listed is never a yes or no."""
    match error:
        case VersionConflictError():
            is_below = (
                error.actual is not None
                and error.expected is not None
                and error.actual < error.expected
            )
            return Saw.REGRESSED if is_below else Saw.CONFLICT
        case SequenceTakenError():
            return Saw.TAKEN
        case SequenceInFlightError():
            return Saw.IN_FLIGHT
        case AggregateMissingError() | AggregateClosedError():
            return Saw.MISSING
        case StorageError():
            return Saw.BUSY if error.is_outcome_known else Saw.UNKNOWN
        case NotLeaderError() | PoolUnavailableError():
            return Saw.NOT_SENT
        case _:
            pass
    if error.outcome is Outcome.UNKNOWN:
        return Saw.UNKNOWN
    if error.move is Move.GIVE_UP:
        return Saw.REFUSED
    return Saw.NOT_SENT if error.outcome is Outcome.NOT_SENT else Saw.BUSY


def after_read(error: LandedError) -> Saw:
    """Put the error of a read into the table's words. A read changes nothing, so it is one of two."""
    is_transient = error.outcome is Outcome.UNKNOWN or error.move is not Move.GIVE_UP
    if is_transient or isinstance(error, StorageError | PoolUnavailableError):
        return Saw.READ_FAILED
    return Saw.BROKEN
