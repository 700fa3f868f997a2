"""``Log``: what a caller holds, whatever is behind it. Answers yes, raises everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self, cast
from uuid import UUID

from landed.ids import AggregateKey
from landed.log import Batch, Delete, Details, FeedPage, FeedRead, Landed, Page, Read, Trim, Write


class LogInfo(NamedTuple):
    """Which log answered, and how far it is."""

    log_id: UUID
    restore_epoch: int
    position: int
    """Of the newest feed entry; 0 of an empty log."""


class Log(Protocol):
    """An event log. Every method raises a ``LandedError`` that says what to do next.

    ``timeout_s`` bounds the whole call, waiting and dialling included; None takes the default.
    A cancelled ``write``, ``trim`` or ``delete`` may have landed: treat it as unknown.
    """

    async def write(self, write: Write, *, timeout_s: float | None = None) -> Landed:
        """Append, all or nothing; returns when it is durable and readable.

        Raises:
            VersionConflictError: catch up, decide again, take a fresh sequence.
            SequenceTakenError: read the sequence back and see whose it is.
            SequenceInFlightError, OutcomeUnknownError: hold the sequence, catch up, send again.
            NotSentError, BusyError: send again as it is.
            AggregateMissingError, AggregateClosedError, InvalidWriteError, NotAllowedError: give up.
        """

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        """One page.

        Raises:
            TrimmedError: read again from ``first_version``.
            AggregateMissingError: never written, or deleted.
            ReadFailedError, NotSentError: read again.
        """

    def read_all(self, read: Read) -> AsyncIterator[Batch]:
        """Every batch, page after page, each once and in version order."""

    async def details(self, key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        """State without events. Raises AggregateMissingError only for a key never written."""

    async def trim(self, trim: Trim, *, timeout_s: float | None = None) -> None:
        """Raise the floor. Safe to repeat."""

    async def delete(self, delete: Delete, *, timeout_s: float | None = None) -> None:
        """End the aggregates' lives, all or none. Not protected against replay (log rule D13)."""

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        """Changes of the whole log after a position, in an order that never changes."""

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:
        """Which log this is."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything. Idempotent."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""


def for_decisions(log: Log) -> Log:
    """The same log as a decision must see it, sharing its connections.

    Reads come from the leader or fail: a decision must not rest on a stale view. Nothing is sent
    again behind the caller's back, not even to a busy node: whoever decides also counts attempts.
    A log in this process is like that already.

    Source: pool rule CP-47, design decision 14.
    """
    narrow = getattr(log, "for_decisions", None)
    return log if narrow is None else cast("Log", narrow())
