"""The other side: let any service be a recipient worth trusting, inside its own transaction.

Floor 4, handling wing; shares no table with a sender. Start with guard.py. ``landed.recipient.http``
is the same over HTTP and needs Starlette.
"""

from landed.effects.headers import FenceText
from landed.recipient.guard import Answer, Guard, Operation, guard
from landed.recipient.migrations import create_tables
from landed.recipient.promises import WELL_KNOWN, Promises, contract_from, describe
from landed.recipient.questions import Found, KeyState, scrub, seal, status
from landed.recipient.refusals import Reason, RequestRefusedError
from landed.recipient.tables import metadata

__all__ = [
    "WELL_KNOWN",
    "Answer",
    "FenceText",
    "Found",
    "Guard",
    "KeyState",
    "Operation",
    "Promises",
    "Reason",
    "RequestRefusedError",
    "contract_from",
    "create_tables",
    "describe",
    "guard",
    "metadata",
    "scrub",
    "seal",
    "status",
]
