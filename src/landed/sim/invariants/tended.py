"""Is what gardeners were told in the log, whole, and once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from landed.ids import AggregateKey, ClientId
from landed.log import Delete, Event, FeedKind, Write
from landed.sim.durable import Act
from landed.sim.history import History

_Part = tuple[AggregateKey, ClientId, tuple[tuple[object, ...], ...]]
"""One leg of a write, as it can be found again: whatever number the log gave its events."""


def what_was_told_of_beds_is_kept(history: History) -> Iterator[str]:
    """A write of several legs and events is there whole or not at all, and once for its number.

    Source: log rules W10, M1, M8, I15, C9, C10. What was trimmed or deleted since is there all the
    same: as the mark of a hand in the order of changes.
    """
    acts = history.truth.acts
    counts = Counter(_part_of(act) for act in acts if act.batch is not None)
    enforced: set[_Part] = set()
    for tended in history.tended:
        write = tended.request
        if not isinstance(write, Write):
            continue
        parts = [_part(leg.key, write.client_id, leg.events) for leg in write.legs]
        names = " and ".join(history.names[leg.key] for leg in write.legs)
        if len({bool(counts[part]) for part in parts}) > 1:
            yield f"a write on {names} landed on some of its legs and not on others"
        if tended.is_told and not all(counts[part] for part in parts):
            yield f"a write on {names} was acknowledged and is not in the log"
        if any(leg.enforce_sequence for leg in write.legs):
            enforced.update(parts)
    for part in enforced:
        if counts[part] > 1:
            yield f"a write with an enforced sequence landed {counts[part]} times on {history.names[part[0]]}"
    yield from _of_deletes(history)


def _of_deletes(history: History) -> Iterator[str]:
    ended = {act.key for act in history.truth.acts if act.kind is FeedKind.DELETED}
    for tended in history.tended:
        if tended.is_told and isinstance(tended.request, Delete):
            for leg in tended.request.legs:
                if leg.key not in ended:
                    yield f"{history.names[leg.key]} was told to be deleted, and no life of it ended"


def _part_of(act: Act) -> _Part:
    assert act.batch is not None
    return _part(act.key, act.batch.client_id, act.batch.events)


def _part(key: AggregateKey, client_id: ClientId, events: tuple[Event, ...]) -> _Part:
    return key, client_id, tuple([(event.client_seq, event.event_id) for event in events])
