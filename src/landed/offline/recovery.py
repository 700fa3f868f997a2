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
    synced: tuple[int, ...]
    """In the log, under this number or, since an earlier recovery, under another."""
    renumber: tuple[int, ...]
    """These cannot have landed, and cannot land under their old numbers any more."""
    stuck_at: int | None
    """The first of which nobody can tell."""


def plan_repair(
    aggregate: int,
    key: AggregateKey,
    entries: tuple[Entry, ...],
    *,
    owners: Mapping[int, EventId | None],
    reported: int,
) -> Repair:
    """Compare an aggregate's queue with what the log shows under this client id.

    An event is recognised by its id at any number: an earlier recovery of an older backup may have
    given it another one. The first event whose number is another's has not landed, and neither has
    anything behind it: events leave in order, so each request that carried a later one carried that
    one too, or came after it, and the log judges a request by its lowest number. The same holds
    behind one that never left. All of them move, so that their order stays.

    An event that was tried and is not shown is left to a person: it may be in a part of the history
    that is gone.

    ``entries`` are the queued ones in order, ``owners`` event ids by number as the log shows them,
    ``reported`` is the mark the log named when it refused; 0 where it named none.
    """
    floor = max(reported, *owners) if owners else reported
    there = set(owners.values())
    synced: list[int] = []
    renumber: list[int] = []
    stuck_at: int | None = None
    is_moving = False
    for entry in entries:
        seq = entry.client_seq
        if entry.event_id in there:
            synced.append(seq)
        elif is_moving or seq in owners or (seq <= floor and not entry.is_attempted):
            is_moving = True
            renumber.append(seq)
        elif seq > floor:
            break
        elif stuck_at is None:
            stuck_at = seq
    return Repair(aggregate, key, entries, floor, tuple(synced), tuple(renumber), stuck_at)
