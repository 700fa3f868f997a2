"""What a projection must be able to do, and what a domain must be able to say.

A projection is one object that owns the cursor of an aggregate **and** the answers given on it.
Both move in one step, and nothing here takes one without the other: whoever moves a cursor past
an event keeps its answer in the same motion, or nobody ever will (rules SW-48, SW-58).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from landed.ids import AggregateKey, EventId
from landed.log import Event

S = TypeVar("S")


class Domain(Protocol[S]):
    """What the events of a user's aggregates mean. Pure: no I/O, no clock.

    A state is never changed in place; ``fold`` returns another one. Answers keep the state they
    were given from.
    """

    def initial(self, key: AggregateKey, /) -> S:
        """The state of an aggregate that has no events yet."""

    def fold(self, state: S, event: Event, key: AggregateKey, /) -> S:
        """The state after one more event.

        Raises:
            UndecodableEventError: the type or the payload is not understood. Never skip an event
                and never count it as nothing: a skipped event is a wrong balance (rule SW-21).
        """

    def fingerprint_of(self, event: Event, key: AggregateKey, /) -> bytes | None:
        """The fingerprint of the command that made this event, from the event alone.

        It must equal the ``fingerprint`` of that command, so that a replica that only folded the
        event can tell a retry from a key used twice (rule SW-80). None: this event does not tell
        (another one of its batch may). A batch of which no event tells passes for any command.
        """


@runtime_checkable
class SnapshotDomain(Protocol):
    """A domain that also has snapshot events, so that aggregates may be trimmed below one."""

    def is_snapshot(self, event: Event, /) -> bool:
        """Say whether folding this event alone, on the initial state, gives the whole state."""


class Answered(NamedTuple, Generic[S]):
    """What a request made of one aggregate, kept so that its retry gets the same answer."""

    state: S
    """The state after the last of the request's events."""
    version: int
    """The version of the batch that holds them."""
    fingerprint: bytes | None
    is_exact: bool = True
    """False where a scan found the request and the state is a later one (rule SW-75)."""


class View(NamedTuple, Generic[S]):
    """One consistent look at one aggregate (rule SW-16)."""

    key: AggregateKey
    state: S
    version: int
    """The cursor: the version folded up to; 0 if nothing was."""
    client_seq: int
    """The highest sequence of our own client id that was folded; 0 if none."""
    client_seq_floor: int
    """A lower bound for the next sequence, learned from a violation; 0 if none (rule SW-45)."""
    newest_ms: int
    """The newest server time folded, milliseconds since 1970; 0 if none (rule SW-57)."""
    answered: Answered[S] | None
    """The unexpired answer to the event id that was asked for."""


class Entry(NamedTuple, Generic[S]):
    """An answer to be kept, and for how long from now on."""

    event_id: EventId
    answered: Answered[S]
    life_ms: float
    """Milliseconds on the projection's own clock, from the moment it is kept."""


class Advance(NamedTuple, Generic[S]):
    """One step of one aggregate: the cursor and the answers it passes, never one alone."""

    key: AggregateKey
    base: int
    """The cursor from which this step was made."""
    state: S
    version: int
    client_seq: int
    newest_ms: int
    entries: tuple[Entry[S], ...]


class Projection(Protocol[S]):
    """Folded states, their cursors and their answers, in one store.

    Every method is one transaction. Failures of a store are raised as ``StorageError``.
    """

    async def load(
        self, keys: Sequence[AggregateKey], event_id: EventId | None, domain: Domain[S], /
    ) -> tuple[View[S], ...]:
        """Look at every key, in the order given, each from one consistent view.

        A key that was never folded shows the initial state at version 0.
        """

    async def advance(self, step: Advance[S], /) -> bool:
        """Take what a fold of the log made of an aggregate.

        Answers are kept first, then the cursor moves; it never goes back. An answer that is known
        already takes the result of the higher version and the later expiry (rule SW-53).

        Returns:
            False if the cursor is below ``base`` now (the aggregate was evicted meanwhile):
            nothing was taken, and the catch-up must start over (rule SW-61).
        """

    async def record(self, steps: Sequence[Advance[S]], /) -> None:
        """Take what our own write made, all legs in one step.

        The answers are kept in any case; a cursor moves only if it still is at ``base``, and only
        by one version (rules SW-52, SW-62, SW-87).
        """

    async def raise_floor(self, key: AggregateKey, client_seq: int, /) -> None:
        """Remember that sequences up to this one are taken, whoever has them (rule SW-45)."""

    async def meet(self, *, log_id: UUID, restore_epoch: int) -> None:
        """Be told which log is read. Of another log than before nothing may be kept.

        Raises:
            StorageError: this projection belongs to another log and cannot let go of it by itself.
        """
