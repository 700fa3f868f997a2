"""The one door of an engine, and the few verbs its store must have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from landed.engines.standing import Standing
from landed.ids import AggregateKey, ClientId
from landed.log import (
    AggregateMissing,
    Answer,
    Batch,
    BelowFloor,
    FeedKind,
    FeedPage,
    FeedRead,
    Head,
    Page,
    Read,
    Request,
)

Done = Callable[[Answer], None]


class LogIdentity(NamedTuple):
    """Which log this is, so that a projection notices when it was swapped or restored."""

    log_id: UUID
    restore_epoch: int
    """Raised whenever the log is restored from a backup; history may have forked there."""


class Engine(Protocol):
    """A durable log. Everything goes through one door, in arrival order."""

    @property
    def identity(self) -> LogIdentity: ...

    @property
    def position(self) -> int:
        """Of the newest durable feed entry; 0 of an empty log."""

    @property
    def is_stopped(self) -> bool:
        """A commit's outcome is unknown, so no further change is taken. Final.

        Every change that was on its way is then answered with ``Unknown``; a server drops its
        connections instead of passing such answers on (log rule C7).
        """

    def submit(self, request: Request, done: Done, /) -> None:
        """Take a request; call ``done`` exactly once, on the event loop, with its answer.

        Never raises and never blocks. Mutations are judged in the order in which they are
        submitted, against the accepted tail; ``done`` may be called before ``submit`` returns
        (a refusal), or after the flush that made the change durable. What was submitted is carried
        to its end even if nobody waits for it any more (log rule W20).
        """

    async def close(self) -> None:
        """Finish what was submitted, then let go of the file. Idempotent."""


class Staged(NamedTuple):
    """One aggregate's part of an admitted change, numbered and ready to be stored."""

    key: AggregateKey
    kind: FeedKind
    position: int
    """Place in the feed, rising within a group and over groups, never reused."""
    head: Head
    """The head after the change."""
    batch: Batch | None
    """The batch with its events numbered; None for trims and deletes."""
    client_id: ClientId
    mark: int
    """The highest client_seq of the batch; 0 where the change does not touch the pair's mark.

    A store keeps the higher of this and what it has: a mark is never lowered (log rule I5), and a
    write that does not enforce its sequence is staged without looking the mark up (I18).
    """
    standing: Standing
    """Of the aggregate, the same in all that is in flight; a store may use its ``place``."""


class Stored(NamedTuple):
    """What a store knows durably of one key and one pair, in answer to ``load``."""

    heads: dict[AggregateKey, Head]
    marks: dict[tuple[AggregateKey, ClientId], int]


class Store(Protocol):
    """Where a lane keeps what it admitted. Synchronous; called on the lane's executor threads.

    ``commit`` is called by one thread at a time. ``load``, ``read`` and ``feed`` see durable state
    only, and may be called by several threads while a commit is running.
    """

    @property
    def identity(self) -> LogIdentity: ...

    def open(self) -> tuple[int, int]:
        """Open or create it. Returns the highest position ever used and the last server time."""

    def load(
        self, keys: Sequence[AggregateKey], pairs: Sequence[tuple[AggregateKey, ClientId]]
    ) -> Stored:
        """Look up heads and marks. What is not there was never written: NEVER and 0."""

    def commit(self, group: Sequence[Staged]) -> None:
        """Make a group durable, all of it or nothing of it. One flush.

        Transaction: every batch, head, mark, floor and tombstone of the group, or none.

        Raises:
            StorageError: nothing of it is stored and nothing of it will surface
                (``is_outcome_known``), or nobody can say, and the engine must stop.
        """

    def read(self, read: Read, head: Head, budget: int) -> Page | BelowFloor | AggregateMissing:
        """One page of the life that ``head`` describes; ``budget`` in encoded bytes (R8).

        ``head`` is live and is what readers may see: nothing above its version or below its floor
        is returned, even if the store holds it already or still. Where a trim or delete made since
        ``head`` was taken has let the space go, the refusal of that later moment is the answer.
        """

    def feed(self, read: FeedRead, budget: int) -> FeedPage:
        """Entries after a position: batches still readable, every trim and every delete."""

    def reclaim(self) -> int:
        """Free space of dead batches, a bounded slice. Returns how many it dropped (C13)."""

    def close(self) -> None: ...
