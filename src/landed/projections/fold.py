"""From batches to a state: the same fold for every projection. Pure.

What a fold returns moves the cursor and carries the answers it passed, in one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from landed.ids import AggregateKey, ClientId, EventId
from landed.log import Batch
from landed.projections.port import Advance, Answered, Domain, Entry, SnapshotDomain, View
from landed.projections.window import life_left_ms

S = TypeVar("S")


class Ours(NamedTuple):
    """Whose batches are our own work, and how long answers live."""

    client_id: ClientId
    """Only its batches raise the highest own sequence (rule SW-19)."""
    all_ids: frozenset[ClientId]
    """It and its predecessors: only their batches give answers (rule SW-20)."""
    life_ms: float
    """Window and margin together."""


class Folded(NamedTuple, Generic[S]):
    """A page, folded."""

    step: Advance[S]
    """What the projection is to take."""
    view: View[S]
    """The view after it. ``answered`` is set if it was before, or if the request was found in the
    page, whatever its age (rule SW-24)."""


class Gap(NamedTuple):
    """The page does not follow on the cursor: not the aggregate that was folded so far."""

    expected: int
    found: int


def fold_page(
    view: View[S],
    batches: Sequence[Batch],
    *,
    domain: Domain[S],
    ours: Ours,
    event_id: EventId | None,
) -> Folded[S] | Gap:
    """Fold the batches that follow on a view, in version order, without a gap.

    Args:
        view: where the fold starts; its ``key`` names the aggregate.
        batches: what was read from ``view.version + 1`` on.
        domain: what the events mean.
        ours: whose batches count as our own.
        event_id: a request to look for, or None.

    Raises:
        UndecodableEventError: the domain does not understand an event.

    Source: rules SW-19 to SW-21, SW-24, SW-50, SW-51, SW-61.
    """
    state, version, client_seq = view.state, view.version, view.client_seq
    newest_ms = max([view.newest_ms, *(batch.server_ms for batch in batches)])
    entries: dict[EventId, Entry[S]] = {}
    found: Answered[S] | None = None
    for batch in batches:
        if batch.version != version + 1:
            return Gap(version + 1, batch.version)
        version = batch.version
        life_ms = life_left_ms(batch_ms=batch.server_ms, newest_ms=newest_ms, life_ms=ours.life_ms)
        is_answer = batch.client_id in ours.all_ids and (life_ms > 0 or _has(batch, event_id))
        states: dict[EventId, S] = {}
        for event in batch.events:
            state = domain.fold(state, event, view.key)
            if is_answer and event.event_id is not None:
                states[event.event_id] = state
        if batch.client_id == ours.client_id:
            client_seq = max(client_seq, *(event.client_seq for event in batch.events))
        for answered_id, after in states.items():
            answered = Answered(
                after, version, fingerprint_in(batch, answered_id, view.key, domain)
            )
            if life_ms > 0:
                entries[answered_id] = Entry(answered_id, answered, life_ms)
            if answered_id == event_id:
                found = answered
    step = Advance(
        view.key, view.version, state, version, client_seq, newest_ms, tuple(entries.values())
    )
    known = view.answered if found is None else found
    after_page = View(view.key, state, version, client_seq, view.client_seq_floor, newest_ms, known)
    return Folded(step, after_page)


def from_snapshot(view: View[S], batches: Sequence[Batch], *, domain: Domain[S]) -> View[S] | None:
    """Where to start folding after a trim: the initial state, just before a snapshot event.

    None if the first batch left does not begin with one: then the history is lost (rule SW-23,
    design 16). What the snapshot does not carry is who wrote what before it: an aggregate must not
    be trimmed above a request whose window is still open.
    """
    if not batches or not batches[0].events or not isinstance(domain, SnapshotDomain):
        return None
    if not domain.is_snapshot(batches[0].events[0]):
        return None
    return view._replace(state=domain.initial(view.key), version=batches[0].version - 1)


def fingerprint_in(
    batch: Batch, event_id: EventId, key: AggregateKey, domain: Domain[S]
) -> bytes | None:
    """The fingerprint of a request, from whichever of its events in a batch can tell it."""
    for event in batch.events:
        if event.event_id == event_id:
            fingerprint = domain.fingerprint_of(event, key)
            if fingerprint is not None:
                return fingerprint
    return None


def _has(batch: Batch, event_id: EventId | None) -> bool:
    return event_id is not None and any(event.event_id == event_id for event in batch.events)
