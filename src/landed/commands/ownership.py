"""Whose sequence was it? A point read of the log, the only witness all replicas share.

No memory of "numbers I used" is consulted: any replica can ask, and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from landed.errors import AggregateMissingError, ReadFailedError, TrimmedError
from landed.ids import AggregateKey, ClientId, EventId
from landed.log import Batch, Page, Read, ReadFilters
from landed.projections.fold import fingerprint_in
from landed.projections.port import Domain

T = TypeVar("T")

ReadPage = Callable[[Read], Awaitable[Page]]
"""Read one page, within the time the call has left."""

SCAN_SLACK_MS = 1_000
"""The time bound of a read is inclusive in one place and called exclusive in another, and clocks of
successive leaders drift; a second covers all of it (rule SW-74)."""


@dataclass(frozen=True, slots=True)
class Ours:
    """The event is in the log, and carries our event id."""

    version: int
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True)
class Sibling:
    """The sequence is in the log, on somebody else's event. Ours is not there under it."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Not visible. Not a verdict: it never means that the sequence is free (rule SW-45)."""


Owner = Ours | Sibling | Unwritten


async def who_owns(
    read_page: ReadPage,
    key: AggregateKey,
    *,
    client_seq: int,
    client_id: ClientId,
    event_id: EventId,
    domain: Domain[Any],
) -> Owner:
    """Ask the log who holds a sequence.

    Only our own client id's batches are read: another writer's event with the same number would
    look like a sibling's and send a landed write round again under a fresh number (rule SW-42).

    Raises:
        LandedError: the read failed; ask again.

    Source: rules SW-40 to SW-46; mission 1, "Who owns the sequence".
    """
    filters = ReadFilters(
        include_client=client_id, min_client_seq=client_seq, max_client_seq=client_seq
    )
    is_written = False

    def look(batch: Batch) -> Ours | None:
        nonlocal is_written
        if batch.client_id != client_id:
            return None
        for event in batch.events:
            if event.client_seq != client_seq:
                continue
            is_written = True
            if event.event_id == event_id:
                return Ours(batch.version, fingerprint_in(batch, event_id, key, domain))
        return None

    ours = await _first(read_page, Read(key, filters), look)
    if ours is not None:
        return ours
    return Sibling() if is_written else Unwritten()


async def find_request(
    read_page: ReadPage,
    key: AggregateKey,
    *,
    client_id: ClientId,
    event_id: EventId,
    since_ms: int,
    domain: Domain[Any],
) -> Ours | None:
    """Scan the recent batches of our client id for a request that nobody remembers.

    ``since_ms`` is server time, milliseconds since 1970, never a host's clock (rule SW-74).

    Raises:
        LandedError: the read failed.
    """
    filters = ReadFilters(include_client=client_id, min_server_ms=max(0, since_ms - SCAN_SLACK_MS))

    def look(batch: Batch) -> Ours | None:
        if any(event.event_id == event_id for event in batch.events):
            return Ours(batch.version, fingerprint_in(batch, event_id, key, domain))
        return None

    return await _first(read_page, Read(key, filters), look)


async def _first(read_page: ReadPage, read: Read, look: Callable[[Batch], T | None]) -> T | None:
    """Go through every page until ``look`` finds something.

    On a trimmed aggregate the read starts once again from the first version left, and not a second
    time: a trim that runs ahead of us must not keep us reading (rule SW-43). Not found means that
    nothing is visible (rule SW-44).
    """
    has_restarted = False
    while True:
        try:
            page = await read_page(read)
        except AggregateMissingError:
            return None
        except TrimmedError as trimmed:
            if has_restarted or trimmed.first_version is None:
                return None
            has_restarted = True
            read = _from(read, trimmed.first_version)
            continue
        for batch in page.batches:
            found = look(batch)
            if found is not None:
                return found
        if page.next_version is None:
            return None
        read = _from(read, page.next_version)


def _from(read: Read, version: int) -> Read:
    if version <= read.filters.from_version:
        raise ReadFailedError(f"a page of {read.key} does not lead on: {version}")
    return Read(read.key, read.filters._replace(from_version=version))
