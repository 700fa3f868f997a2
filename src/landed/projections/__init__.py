"""Folded state, its cursor and its answers, moved in one stroke.

Floor 3, log wing. A projection owns the cursor and the answers together: there is no way to
configure them apart. Start with port.py.
"""

from landed.projections.fold import Folded, Gap, Ours, fold_page, from_snapshot
from landed.projections.memory import AGGREGATES_MAX, MemoryProjection
from landed.projections.port import (
    Advance,
    Answered,
    Domain,
    Entry,
    Projection,
    SnapshotDomain,
    View,
)

__all__ = [
    "AGGREGATES_MAX",
    "Advance",
    "Answered",
    "Domain",
    "Entry",
    "Folded",
    "Gap",
    "MemoryProjection",
    "Ours",
    "Projection",
    "SnapshotDomain",
    "View",
    "fold_page",
    "from_snapshot",
]
