"""Catch up, decide, write, settle: the safe command loop.

Floor 5, log wing. Start with moves.py, the table of which move follows which answer; loop.py does
what it says.
"""

from landed.commands.command import Accept, Command, Decision, NewEvent, Reject
from landed.commands.fingerprint import FINGERPRINT_VERSION, fingerprint
from landed.commands.identity import ServiceIdentity
from landed.commands.loop import SafeLoop
from landed.commands.outcome import (
    Applied,
    Conflicted,
    Done,
    Fault,
    FaultKind,
    How,
    KeyReused,
    Outcome,
    Rejected,
    Seen,
    Unavailable,
    Unresolved,
)
from landed.commands.policy import Policy

__all__ = [
    "FINGERPRINT_VERSION",
    "Accept",
    "Applied",
    "Command",
    "Conflicted",
    "Decision",
    "Done",
    "Fault",
    "FaultKind",
    "How",
    "KeyReused",
    "NewEvent",
    "Outcome",
    "Policy",
    "Reject",
    "Rejected",
    "SafeLoop",
    "Seen",
    "ServiceIdentity",
    "Unavailable",
    "Unresolved",
    "fingerprint",
]
