"""What it means that the log calls a number taken (2002): judged by two witnesses.

One is the store, which knows what it ever sent; the other is the log, which shows whose event has
the number. Only this module compares the two, for a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from landed.client.log import Log
from landed.errors import AggregateMissingError, TrimmedError
from landed.ids import AggregateKey, ClientId, EventId
from landed.log import Read, ReadFilters
from landed.offline.entry import Run, Settled


class Regressed(NamedTuple):
    """The log knows more under this client id than this store ever sent (rule SW-108)."""

    highest_seq: int
    detail: str


class Absurd(NamedTuple):
    """The log calls a number taken and names a mark below it."""

    highest_seq: int


def judge_taken(
    run: Run, highest_seq: int, owners: Mapping[int, EventId | None]
) -> Settled | Regressed | Absurd:
    """Say how far a refused run is in the log.

    A number above everything ever sent cannot be a lost acknowledgement of ours: whoever used it
    has our identity (design decision 21). Nor can a number that holds another event, even if we did
    try it: after a restore the first try may have been refused unheard. What remains is ours, up to
    the mark; the rest of a regrouped run never left. ``owners`` is what the log shows; silence proves nothing.

    Source: rules SW-104, SW-108; mission 1, "The offline client".
    """
    if highest_seq < run.first:
        return Absurd(highest_seq)
    if highest_seq > run.attempted_seq:
        return Regressed(highest_seq, "")
    for entry in run.entries:
        if entry.client_seq > highest_seq:
            break
        if owners.get(entry.client_seq, entry.event_id) != entry.event_id:
            return Regressed(highest_seq, f", and number {entry.client_seq} is another event's")
    upto = max(entry.client_seq for entry in run.entries if entry.client_seq <= highest_seq)
    return Settled(run, upto)


async def owners_of(
    log: Log,
    key: AggregateKey,
    *,
    client_id: ClientId,
    first: int,
    last: int | None = None,
) -> dict[int, EventId | None]:
    """Read back which events have the numbers from ``first`` to ``last`` of a client id.

    A trimmed aggregate is read once more from the first version left (rule SW-43). Not found shows
    nothing, which proves nothing (SW-44).

    Raises:
        LandedError: the read failed; look again.
    """
    filters = ReadFilters(include_client=client_id, min_client_seq=first, max_client_seq=last)
    try:
        return await _owners(log, Read(key, filters))
    except AggregateMissingError:
        return {}
    except TrimmedError as trimmed:
        if trimmed.first_version is None:
            return {}
        filters = filters._replace(from_version=trimmed.first_version)
    try:
        return await _owners(log, Read(key, filters))
    except (AggregateMissingError, TrimmedError):
        return {}


async def _owners(log: Log, read: Read) -> dict[int, EventId | None]:
    owners: dict[int, EventId | None] = {}
    async for batch in log.read_all(read):
        if batch.client_id == read.filters.include_client:
            owners.update((event.client_seq, event.event_id) for event in batch.events)
    return owners
