"""After a restore or a copy: which events are in the log, and which need new numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from landed.ids import AggregateKey, EventId
from landed.offline.entry import Entry


class Recovered(NamedTuple):
    """What a recovery did. Show it to the user (rule SW-108)."""

    synced: tuple[int, ...]
    """Numbers of events that the log was found to hold."""
    renumbered: tuple[tuple[int, int], ...]
    """Old and new number of events that cannot have landed."""
    stuck: tuple[int, ...]
    """Numbers of events of which nobody can tell; their aggregates are blocked and shown."""


class Repair(NamedTuple):
    """What must be put right in one aggregate."""

    aggregate: int
    key: AggregateKey
    entries: tuple[Entry, ...]
    floor: int
    """The highest number under this client id that the log is known to have seen."""
    synced_upto: int
    """Everything queued up to here is in the log; 0: nothing."""
    renumber_from: int | None
    """Everything queued from here on cannot have landed; None: nothing must move."""
    stuck_at: int | None
    """Here nobody can tell."""


def plan_repair(
    aggregate: int,
    key: AggregateKey,
    entries: tuple[Entry, ...],
    *,
    owners: Mapping[int, EventId | None],
    reported: int,
) -> Repair:
    """Compare an aggregate's queue with what the log shows under the same numbers.

    The first event whose number is another's has not landed, and neither has anything behind it:
    events leave in order, so each request that carried a later one carried that one too, or came
    after it, and the log judges a request by its lowest number.

    An event that was tried and is not shown is left to a person: it may be in a part of the history
    that is gone.

    ``entries`` are the queued ones in order, ``owners`` event ids by number as the log shows them,
    ``reported`` is the mark the log named when it refused; 0 where it named none.
    """
    floor = max(reported, *owners) if owners else reported
    synced_upto = 0
    for entry in entries:
        seq = entry.client_seq
        owner = owners.get(seq)
        if owner is not None and owner == entry.event_id:
            synced_upto = seq
            continue
        if seq > floor:
            break
        is_anothers = seq in owners
        if entry.is_attempted and not is_anothers:
            return Repair(aggregate, key, entries, floor, synced_upto, None, seq)
        return Repair(aggregate, key, entries, floor, synced_upto, seq, None)
    return Repair(aggregate, key, entries, floor, synced_upto, None, None)
