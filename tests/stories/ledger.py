"""The ledger check that ends every story (rule SW-134): the log itself is the witness."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from landed.accounts.domain import Order, Transfer, account_key, decode
from landed.client.log import Log
from landed.commands import Applied, Done, Fault, How, Outcome, Seen
from landed.errors import AggregateMissingError, TrimmedError
from landed.ids import ClientId
from landed.log import Batch, Read, ReadFilters


@dataclass(frozen=True)
class Answered:
    """One finished call: what was asked under which key, and how it ended."""

    order: Order
    key: UUID
    outcome: Outcome[Any, Any]
    began_at: float
    """When, on the loop; the promised window is counted from here."""


def accounts_of(order: Order) -> tuple[UUID, ...]:
    return (order.source, order.target) if isinstance(order, Transfer) else (order.account,)


async def batches_of(log: Log, account: UUID) -> list[Batch]:
    """Everything that is left of an account's history."""
    key = account_key(account)
    try:
        return [batch async for batch in log.read_all(Read(key))]
    except AggregateMissingError:
        return []
    except TrimmedError as trimmed:
        filters = ReadFilters(from_version=trimmed.first_version or 1)
        return [batch async for batch in log.read_all(Read(key, filters))]


def check(
    calls: list[Answered],
    histories: dict[UUID, list[Batch]],
    *,
    own: frozenset[ClientId],
    expired: frozenset[UUID] = frozenset(),
    unreadable: frozenset[UUID] = frozenset(),
) -> None:
    """Say whether the log and what callers were told fit together.

    ``expired`` names keys that may have run again after their window; ``unreadable`` accounts whose
    history was deleted or trimmed, so that absence proves nothing.
    """
    where: dict[UUID, list[UUID]] = defaultdict(list)
    for account, batches in histories.items():
        for batch in batches:
            if batch.client_id in own:
                for event in batch.events:
                    assert event.event_id is not None
                    where[event.event_id].append(account)
    for key, accounts in where.items():
        if key not in expired:
            assert len(set(accounts)) == len(accounts), f"{key} is written twice: {accounts}"
    results: dict[UUID, Any] = {}
    told: dict[UUID, list[Answered]] = defaultdict(list)
    for call in calls:
        told[call.key].append(call)
        if isinstance(call.outcome, Done):
            for account in set(accounts_of(call.order)) - unreadable:
                assert account in where[call.key], f"{call} is not in the log"
            if call.outcome.how is not How.REBUILT and call.key not in expired:
                first = results.setdefault(call.key, call.outcome.results)
                assert first == call.outcome.results, f"{call.key} got two answers"
    for key, of_key in told.items():
        if all(call.outcome.applied is Applied.NOT_APPLIED for call in of_key):
            assert not where[key], f"{key} was told 'not applied' and is in {where[key]}"
    _check_legs(histories, unreadable)


def _check_legs(histories: dict[UUID, list[Batch]], unreadable: frozenset[UUID]) -> None:
    """Both legs of each transfer exist, or neither."""
    legs: dict[tuple[UUID | None, UUID, UUID], set[str]] = defaultdict(set)
    for account, batches in histories.items():
        for batch in batches:
            for event in batch.events:
                if event.type_major not in {3, 4}:
                    continue
                movement = decode(event)
                assert movement.other is not None
                if movement.signed_cents < 0:
                    legs[event.event_id, account, movement.other].add("out")
                else:
                    legs[event.event_id, movement.other, account].add("in")
    for (key, source, target), found in legs.items():
        if not {source, target} & unreadable and {source, target} <= histories.keys():
            assert found == {"out", "in"}, f"transfer {key} has only its {found} leg"


def balance_of(batches: list[Batch]) -> int:
    return sum(decode(event).signed_cents for batch in batches for event in batch.events)


def check_view(seen: object, batches: list[Batch]) -> None:
    """A replica that has caught up agrees with the log."""
    assert not isinstance(seen, Fault), seen
    assert isinstance(seen, Seen), seen
    assert (seen.state, seen.version) == (balance_of(batches), len(batches))
