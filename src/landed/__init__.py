"""Landed: writes that are safe to retry, and effects that happen once.

Start with ``landed.connect(url)``, which returns a ``Log``; then ``landed.commands`` for the safe
write loop. The rooms and how they hang together are drawn in ARCHITECTURE.md.

What is imported here is values and one function; the rooms behind it are loaded when a URL asks
for them.
"""

from landed.client.log import Log, LogInfo
from landed.connect import connect
from landed.errors import (
    AggregateClosedError,
    AggregateMissingError,
    BusyError,
    ConfigurationError,
    InvalidWriteError,
    LandedError,
    Move,
    NotSentError,
    Outcome,
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    SequenceInFlightError,
    SequenceTakenError,
    TrimmedError,
    VersionConflictError,
)
from landed.ids import AggregateKey, ClientId, EventId, UserId
from landed.log import (
    ANY,
    Batch,
    Delete,
    DeleteLeg,
    Details,
    Event,
    FeedEntry,
    FeedKind,
    FeedPage,
    FeedRead,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    Trim,
    Write,
)

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "AggregateClosedError",
    "AggregateKey",
    "AggregateMissingError",
    "Batch",
    "BusyError",
    "ClientId",
    "ConfigurationError",
    "Delete",
    "DeleteLeg",
    "Details",
    "Event",
    "EventId",
    "FeedEntry",
    "FeedKind",
    "FeedPage",
    "FeedRead",
    "InvalidWriteError",
    "Landed",
    "LandedError",
    "Leg",
    "Log",
    "LogInfo",
    "Move",
    "NotSentError",
    "Outcome",
    "OutcomeUnknownError",
    "Page",
    "Read",
    "ReadFailedError",
    "ReadFilters",
    "RefusedError",
    "SequenceInFlightError",
    "SequenceTakenError",
    "Trim",
    "TrimmedError",
    "UserId",
    "VersionConflictError",
    "Write",
    "__version__",
    "connect",
]
