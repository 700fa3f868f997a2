"""What a failure of the database means for what was asked of it: the third answer, told straight.

Two things decide: in which phase it came, and what the server said. An answer of severity ERROR
proves that the transaction was rolled back, whichever statement it came to, the COMMIT included. No
answer, or a server that is going down, proves nothing once a COMMIT was on its way.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import psycopg

from landed.errors import StorageError


class Phase(Enum):
    """How far it had got when it failed."""

    CONNECTING = "connecting"
    WORKING = "working"
    """In a transaction whose COMMIT was not sent yet."""
    COMMITTING = "committing"
    """The COMMIT, or a statement that commits itself, may have reached the server."""


class Kind(Enum):
    """What became of it."""

    NOT_SENT = "not sent"
    """No server took it, or the connection broke before the COMMIT: nothing was kept. Try again."""
    BUSY = "busy"
    """Refused for now: nothing was kept, and the same again may pass."""
    REFUSED = "refused"
    """Refused: nothing was kept, and the same again will fail as well."""
    UNKNOWN = "unknown"
    """It may have been committed. Only a look tells."""


class Why(NamedTuple):
    """A row of the table: what a code means."""

    kind: Kind
    reason: str


BY_STATE: Final = {
    "40001": Why(Kind.BUSY, "another transaction was in the way"),
    "40P01": Why(Kind.BUSY, "two transactions waited for each other"),
    "55P03": Why(Kind.BUSY, "a lock was not to be had in time"),
    "55006": Why(Kind.BUSY, "something it needs is in use"),
    "57014": Why(Kind.BUSY, "a statement ran longer than it may (statement_timeout)"),
    "25P03": Why(Kind.NOT_SENT, "the session was idle in its transaction too long and was ended"),
    "57P03": Why(Kind.NOT_SENT, "the server is starting or stopping"),
    "57P05": Why(Kind.NOT_SENT, "the session was idle too long and was ended"),
    "53300": Why(Kind.BUSY, "the server has no connection left"),
    "53100": Why(Kind.BUSY, "the server's disk is full"),
    "25006": Why(Kind.NOT_SENT, "this server is read-only, a standby perhaps"),
    "42501": Why(Kind.REFUSED, "the role lacks a right"),
    "28P01": Why(Kind.REFUSED, "the password is wrong"),
    "28000": Why(Kind.REFUSED, "this role may not connect from here"),
    "3D000": Why(Kind.REFUSED, "there is no such database"),
    "42P01": Why(Kind.REFUSED, "a table is missing"),
}
"""What each code means that we know more of than its class. 53100 and 53300 pass when somebody makes
room; 25006 after a failover, when the next connection finds the new primary."""

BY_CLASS: Final = {
    "53": Why(Kind.BUSY, "the server is short of something"),
    "55": Why(Kind.BUSY, "something it needs is in no state for it"),
    "40": Why(Kind.BUSY, "the transaction was rolled back"),
}
"""What a code's first two characters mean, where ``BY_STATE`` has no row."""

_LEFT_OPEN: Final = frozenset({"08007", "40003"})
"""The server itself says that it does not know."""
_IDLE: Final = frozenset({"25P03", "57P05"})
"""They end a session that waits for its client, so it has not begun to commit."""


def explain(error: BaseException, phase: Phase) -> Why:
    """Say what became of what failed with ``error``.

    Source: design decision 12; issue "each a clear error by class".
    """
    state = getattr(error, "sqlstate", None)
    if state is not None and not _may_have_committed(error, state, phase):
        listed = BY_STATE.get(state) or BY_CLASS.get(state[:2])
        if listed is not None:
            return listed
        if state.startswith(("08", "57P")):
            return Why(Kind.NOT_SENT, "the connection was ended")
        return Why(Kind.REFUSED, "the server refused it")
    if phase is Phase.COMMITTING and not _is_local(error):
        return Why(Kind.UNKNOWN, "the connection was lost when it may have been committed")
    if phase is Phase.CONNECTING:
        return Why(Kind.NOT_SENT, "no connection was to be had")
    if _is_local(error):
        return Why(Kind.REFUSED, "the driver refused it")
    return Why(Kind.NOT_SENT, "the connection was lost before the commit")


def storage_error(error: BaseException, phase: Phase, *, doing: str = "") -> StorageError:
    """Make the error that callers see: one line, and whether the outcome is known."""
    why = explain(error, phase)
    text = str(error).strip().partition("\n")[0]
    what = f"{doing}: " if doing else ""
    return StorageError(
        f"{what}{why.reason}: {text}" if text else f"{what}{why.reason}",
        is_outcome_known=why.kind is not Kind.UNKNOWN,
    )


def _may_have_committed(error: BaseException, state: str, phase: Phase) -> bool:
    """Whether an answer of the server leaves open what became of a COMMIT.

    FATAL and PANIC end the session at any point of a commit: 57P01 comes when a backend is told to
    go, and 53100 as a PANIC when the write-ahead log finds no room.
    """
    if phase is not Phase.COMMITTING:
        return False
    severity = getattr(getattr(error, "diag", None), "severity_nonlocalized", None)
    if severity in {"FATAL", "PANIC"}:
        return state not in _IDLE
    return state in _LEFT_OPEN


def _is_local(error: BaseException) -> bool:
    """The driver itself refused, before a byte was sent: wrong types, wrong use."""
    return isinstance(
        error, psycopg.ProgrammingError | psycopg.DataError | psycopg.NotSupportedError
    ) and (getattr(error, "sqlstate", None) is None)
