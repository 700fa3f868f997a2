"""What a reader may ask for, and which batches and events its filters select."""

from __future__ import annotations

from typing import NamedTuple

from landed.ids import AggregateKey, ClientId, UserId
from landed.log.answer import AggregateMissing, Details
from landed.log.event import Batch, Event
from landed.log.head import Head, Life


class ReadFilters(NamedTuple):
    """Conditions on batches and events, all inclusive and all ANDed (log rule R5).

    In the field order of the protocol. Version, client, user and server time select whole batches;
    type, event time, event_seq and client_seq also remove single events.
    """

    from_version: int = 1
    to_version: int | None = None
    include_types: tuple[int, ...] | None = None
    """Major types; None or empty: all of them."""
    exclude_client: ClientId | None = None
    include_client: ClientId | None = None
    exclude_user: UserId | None = None
    include_user: UserId | None = None
    min_server_ms: int | None = None
    max_server_ms: int | None = None
    min_client_seq: int | None = None
    max_client_seq: int | None = None
    min_event_ms: int | None = None
    max_event_ms: int | None = None
    min_event_seq: int | None = None
    max_event_seq: int | None = None


class Read(NamedTuple):
    """One page of one aggregate's batches, in version order."""

    key: AggregateKey
    filters: ReadFilters = ReadFilters()


class GetDetails(NamedTuple):
    """What is known of an aggregate besides its events."""

    key: AggregateKey


class FeedRead(NamedTuple):
    """The changes of the whole log after a position, in an order that never changes."""

    after: int
    """Position of the last entry seen; 0 from the start."""
    limit: int = 1_000
    """Entries at most. The page budget in bytes holds as well."""
    wait_ms: int = 0
    """How long to wait for an entry if there is none yet. The server bounds it."""


def selects_batch(filters: ReadFilters, batch: Batch) -> bool:
    """Say whether a batch passes the conditions on batches (not the version range)."""
    if filters.include_client is not None and batch.client_id != filters.include_client:
        return False
    if filters.exclude_client is not None and batch.client_id == filters.exclude_client:
        return False
    if filters.include_user is not None and batch.user_id != filters.include_user:
        return False
    if filters.exclude_user is not None and batch.user_id == filters.exclude_user:
        return False
    return _within(batch.server_ms, filters.min_server_ms, filters.max_server_ms)


def has_event_conditions(filters: ReadFilters) -> bool:
    """Say whether single events may be removed, so that events must be looked at."""
    return bool(filters.include_types) or any(bound is not None for bound in filters[9:])


def selects_event(filters: ReadFilters, event: Event) -> bool:
    """Say whether a single event passes the conditions on events (log rule R6)."""
    if filters.include_types and event.type_major not in filters.include_types:
        return False
    return (
        _within(event.client_seq, filters.min_client_seq, filters.max_client_seq)
        and _within(event.event_ms, filters.min_event_ms, filters.max_event_ms)
        and _within(event.event_seq, filters.min_event_seq, filters.max_event_seq)
    )


def select(filters: ReadFilters, batch: Batch) -> Batch | None:
    """Return what the filters leave of a batch, or None if nothing is left of it."""
    if not selects_batch(filters, batch):
        return None
    if not has_event_conditions(filters):
        return batch
    kept = tuple(event for event in batch.events if selects_event(filters, event))
    return batch._replace(events=kept) if kept else None


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def details_of(key: AggregateKey, head: Head) -> Details | AggregateMissing:
    """Answer a question for details from the head that readers may see (log rules N)."""
    if head.life is Life.NEVER:
        return AggregateMissing(key)
    is_deleted = head.life is Life.DELETED
    return Details(
        first_version=0 if is_deleted else head.floor,
        version=head.version,
        event_seq=head.event_seq,
        is_deleted=is_deleted,
        allow_recreate=is_deleted and head.allow_recreate,
        allow_continuation=is_deleted and head.allow_continuation,
        last_server_ms=head.last_ms,
        last_client_id=head.last_client,
        last_user_id=head.last_user,
    )
