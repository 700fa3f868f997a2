"""What may be appended, and at which version.

Floor 1, log wing. Decides; never awaits, stores or tells the time.
Start with judge.py. The rest is what it judges.
"""

from landed.log.answer import (
    AggregateClosed,
    AggregateMissing,
    Answer,
    BelowFloor,
    Busy,
    Deleted,
    Details,
    FeedPage,
    Landed,
    Misrouted,
    NoEvents,
    NotLeader,
    Page,
    Refusal,
    ReservedType,
    SequenceInFlight,
    SequenceJump,
    SequenceTaken,
    TrimBeyondEnd,
    Trimmed,
    Unknown,
    VersionConflict,
)
from landed.log.event import Batch, Event, FeedEntry, FeedKind
from landed.log.head import NEVER, Head, Life
from landed.log.read import FeedRead, GetDetails, Read, ReadFilters
from landed.log.write import ANY, Delete, DeleteLeg, Leg, Mutation, Request, Trim, Write

__all__ = [
    "ANY",
    "NEVER",
    "AggregateClosed",
    "AggregateMissing",
    "Answer",
    "Batch",
    "BelowFloor",
    "Busy",
    "Delete",
    "DeleteLeg",
    "Deleted",
    "Details",
    "Event",
    "FeedEntry",
    "FeedKind",
    "FeedPage",
    "FeedRead",
    "GetDetails",
    "Head",
    "Landed",
    "Leg",
    "Life",
    "Misrouted",
    "Mutation",
    "NoEvents",
    "NotLeader",
    "Page",
    "Read",
    "ReadFilters",
    "Refusal",
    "Request",
    "ReservedType",
    "SequenceInFlight",
    "SequenceJump",
    "SequenceTaken",
    "Trim",
    "TrimBeyondEnd",
    "Trimmed",
    "Unknown",
    "VersionConflict",
    "Write",
]
