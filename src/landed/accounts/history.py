"""What happened on one account, version by version."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from landed.accounts.domain import Kind, account_key, decode
from landed.client.log import Log
from landed.commands import Seen
from landed.errors import TrimmedError
from landed.log import Batch, Read, ReadFilters

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Happened(msgspec.Struct, rename="camel", omit_defaults=True):
    """One event of an account, as callers see it."""

    aggregate_version: int
    type: str
    amount_cents: int
    timestamp: str
    """When the log accepted it: RFC 3339, UTC, milliseconds."""
    event_id: UUID | None = None
    to_account_id: UUID | None = None
    from_account_id: UUID | None = None


class History(msgspec.Struct, rename="camel", omit_defaults=True):
    """A stretch of an account's events, newest last."""

    events: list[Happened]
    current_aggregate_version: int
    balance_cents: int
    next_version: int | None = None
    """Where to go on; absent at the end."""
    available_from: int | None = None
    """The first version left, where earlier ones were asked for and are gone."""


async def history_of(
    log: Log, account: UUID, seen: Seen[int], *, from_version: int, limit: int
) -> History:
    """Read at most ``limit`` versions from ``from_version`` on, none newer than what was seen.

    Raises:
        LandedError: the log cannot be read; a second TrimmedError where it was trimmed meanwhile.
    """
    first, available_from = max(1, from_version), None
    if first > seen.version:
        return History([], seen.version, seen.state)
    try:
        batches = await _read(log, account, first, min(first + limit - 1, seen.version))
    except TrimmedError as e:
        first = available_from = e.first_version or seen.version
        batches = await _read(log, account, first, min(first + limit - 1, seen.version))
    last = first + limit - 1
    return History(
        [happened for batch in batches for happened in _happened(batch)],
        seen.version,
        seen.state,
        next_version=last + 1 if last < seen.version else None,
        available_from=available_from,
    )


async def _read(log: Log, account: UUID, first: int, last: int) -> list[Batch]:
    read = Read(account_key(account), ReadFilters(from_version=first, to_version=last))
    return [batch async for batch in log.read_all(read)]


def _happened(batch: Batch) -> list[Happened]:
    at = _rfc3339(batch.server_ms)
    told = []
    for event in batch.events:
        movement = decode(event)
        other = movement.other
        told.append(
            Happened(
                batch.version,
                movement.name,
                movement.amount_cents,
                at,
                event.event_id,
                to_account_id=other if movement.kind is Kind.TRANSFERRED_OUT else None,
                from_account_id=other if movement.kind is Kind.TRANSFERRED_IN else None,
            )
        )
    return told


def _rfc3339(server_ms: int) -> str:
    try:
        at = _EPOCH + timedelta(milliseconds=server_ms)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
