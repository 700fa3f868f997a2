"""A device's queue: saved without a network, landed once and in order when there is one.

Floor 5, log wing. Start with face.py (``Queue`` and ``AsyncQueue``, what an application holds); store.py is the
file, drain.py the one loop that empties it, taken.py what it means that a number is taken. sources.py is
for workers that have an outbox of their own.
"""

from landed.offline.drain import DrainPolicy, Synced
from landed.offline.entry import Blocked, Entry, QueueLimits, Saved, Status
from landed.offline.face import AsyncQueue, Queue
from landed.offline.look import status_of
from landed.offline.recovery import Recovered
from landed.offline.restart import Worker, assert_restart_stable
from landed.offline.saving import Saving
from landed.offline.sources import (
    Sequence,
    SequencedWriter,
    Written,
    from_row,
    from_stream,
    from_upstream,
    number_with_data,
)

__all__ = [
    "AsyncQueue",
    "Blocked",
    "DrainPolicy",
    "Entry",
    "Queue",
    "QueueLimits",
    "Recovered",
    "Saved",
    "Saving",
    "Sequence",
    "SequencedWriter",
    "Status",
    "Synced",
    "Worker",
    "Written",
    "assert_restart_stable",
    "from_row",
    "from_stream",
    "from_upstream",
    "number_with_data",
    "status_of",
]
