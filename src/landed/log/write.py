"""What a writer may ask for: write, trim, delete. And every request the log takes, as one union."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from landed.ids import AggregateKey, ClientId, UserId
from landed.log.event import Event
from landed.log.read import FeedRead, GetDetails, Read

ANY: Final = None
"""The expected version of a writer that does not care. It must be said: there is no default."""


class Leg(NamedTuple):
    """A write's part for one aggregate; it becomes one batch."""

    key: AggregateKey
    events: tuple[Event, ...]
    expected_version: int | None
    """The version the aggregate must have; 0: it was never written; ANY: no guard."""
    allow_create: bool
    enforce_sequence: bool
    """Refuse the write unless its lowest client_seq is above the highest one seen."""


class Write(NamedTuple):
    """One all-or-nothing request: every leg lands, or none does (log rules W and M)."""

    client_id: ClientId
    legs: tuple[Leg, ...]
    """One or more, each key once."""
    user_id: UserId | None = None

    @classmethod
    def to(
        cls,
        key: AggregateKey,
        events: Iterable[Event],
        *,
        client_id: UUID,
        expected_version: int | None,
        allow_create: bool = True,
        enforce_sequence: bool = True,
        user_id: UUID | None = None,
    ) -> Write:
        """Make a write of one leg."""
        leg = Leg(key, tuple(events), expected_version, allow_create, enforce_sequence)
        return cls(ClientId(client_id), (leg,), None if user_id is None else UserId(user_id))


class Trim(NamedTuple):
    """Make every version below ``keep_from`` of one aggregate unreadable (log rules T)."""

    key: AggregateKey
    keep_from: int
    client_id: ClientId
    user_id: UserId | None = None


class DeleteLeg(NamedTuple):
    """A delete's part for one aggregate."""

    key: AggregateKey
    expected_version: int | None
    allow_recreate: bool
    allow_continuation: bool
    """After a recreate, go on counting instead of starting at 1 again."""


class Delete(NamedTuple):
    """End the present life of one or more aggregates, all or none (log rules D)."""

    client_id: ClientId
    legs: tuple[DeleteLeg, ...]
    user_id: UserId | None = None


Mutation = Write | Trim | Delete
Request = Mutation | Read | GetDetails | FeedRead
