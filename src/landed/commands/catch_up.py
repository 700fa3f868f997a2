"""Fold what is new of one aggregate, and say whether the request is in it.

Every attempt begins with this, the first one included (rule SW-16): the guard of a write is the
cursor that this very attempt's catch-up came back with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from landed.client.log import Log, LogInfo
from landed.commands.outcome import FaultKind
from landed.errors import (
    AggregateMissingError,
    ReadFailedError,
    ReadTimeoutError,
    StorageError,
    TrimmedError,
    UndecodableEventError,
)
from landed.ids import AggregateKey, EventId
from landed.log import Details, Page, Read, ReadFilters
from landed.projections import Folded, Gap, Ours, fold_page, from_snapshot
from landed.projections.port import Domain, Projection, View

S = TypeVar("S")

_RESTARTS_MAX: Final = 3
"""Evictions during one catch-up before it counts as a failed read: the projection is too small."""


class Broken(NamedTuple):
    """The aggregate cannot be folded, and repeating it does not help."""

    kind: FaultKind
    detail: str
    code: int = 0


@dataclass(slots=True)
class Reader(Generic[S]):
    """What one call reads with, and until when. Not changed once made; not frozen, as that costs."""

    log: Log
    projection: Projection[S]
    domain: Domain[S]
    ours: Ours
    now: Callable[[], float]
    """The event loop's time, seconds."""
    deadline_at: float
    attempt_timeout_s: float

    def timeout_s(self) -> float:
        """What the next request to the log may take; 0 or less: nothing may be sent any more."""
        left_s = self.deadline_at - self.now()
        return min(self.attempt_timeout_s, left_s)

    # Not ``async``: what the log gives back is awaited by the caller, without a frame in between.

    def page(self, read: Read, /) -> Awaitable[Page]:
        """Read one page within the time that is left."""
        return self.log.read(read, timeout_s=self._timeout_s())

    def details(self, key: AggregateKey) -> Awaitable[Details]:
        """Ask for details within the time that is left."""
        return self.log.details(key, timeout_s=self._timeout_s())

    def info(self) -> Awaitable[LogInfo]:
        """Ask which log this is within the time that is left."""
        return self.log.info(timeout_s=self._timeout_s())

    def _timeout_s(self) -> float:
        timeout_s = self.timeout_s()
        if timeout_s <= 0:
            raise ReadTimeoutError("no time is left for a read")
        return timeout_s


async def catch_up(
    reader: Reader[S], view: View[S], event_id: EventId | None, *, is_doubted: bool
) -> View[S] | Broken:
    """Bring a view to the end of its aggregate, page after page, and persist it.

    Stops early where the request is found: then ``answered`` is set, however old the event is.

    Args:
        reader: what to read with.
        view: what the projection showed.
        event_id: the request to look for, or None.
        is_doubted: a write was refused in a way that an aggregate never written cannot explain, so
            "not found" at version 0 is looked into (design 20).

    Raises:
        LandedError: a read or the projection failed; nothing was concluded.

    Source: rules SW-17, SW-21 to SW-24, SW-61.
    """
    for _ in range(_RESTARTS_MAX):
        caught_up = await _fold_to_end(reader, view, event_id, is_doubted=is_doubted)
        if caught_up is not None:
            return caught_up
        (view,) = await reader.projection.load((view.key,), event_id, reader.domain)
        if view.answered is not None:
            return view
    raise ReadFailedError(f"{view.key} was evicted again and again while it was folded")


async def _fold_to_end(
    reader: Reader[S], view: View[S], event_id: EventId | None, *, is_doubted: bool
) -> View[S] | Broken | None:
    """Fold page after page; None if the projection lost the aggregate meanwhile."""
    while True:
        base = view.version
        try:
            page = await reader.page(Read(view.key, ReadFilters(base + 1)))
        except AggregateMissingError:
            return await _when_missing(reader, view, is_doubted=is_doubted)
        except TrimmedError as trimmed:
            restart = await _restart(reader, view, trimmed)
            if isinstance(restart, Broken):
                return restart
            view, page = restart
        if not page.batches and page.next_version is None:
            return view
        try:
            folded = fold_page(
                view, page.batches, domain=reader.domain, ours=reader.ours, event_id=event_id
            )
        except UndecodableEventError as error:
            return Broken(FaultKind.UNDECODABLE, f"{view.key}: {error}")
        if isinstance(folded, Gap):
            return Broken(
                FaultKind.REGRESSED,
                f"{view.key}: version {folded.expected} should follow, but {folded.found} does",
            )
        if not await _persist(reader, folded, base):
            return None
        view = folded.view
        if page.next_version is None or view.answered is not None:
            return view
        if page.next_version != view.version + 1:
            raise ReadFailedError(f"a page of {view.key} does not lead on: {page.next_version}")


async def _persist(reader: Reader[S], folded: Folded[S], base: int) -> bool:
    """Let the projection take a fold. A hit may be answered even if it cannot (rule SW-24)."""
    step = folded.step if folded.step.base == base else folded.step._replace(base=base)
    try:
        is_taken = await reader.projection.advance(step)
    except StorageError:
        if folded.view.answered is None:
            raise
        return True
    return is_taken or folded.view.answered is not None


async def _restart(
    reader: Reader[S], view: View[S], trimmed: TrimmedError
) -> tuple[View[S], Page] | Broken:
    """Start again from a snapshot, or say that history is lost (rule SW-23, design 16)."""
    lost = Broken(
        FaultKind.TRIMMED,
        f"{view.key}: versions from {view.version + 1} are gone before they were folded, and "
        f"version {trimmed.first_version} is no snapshot",
    )
    if trimmed.first_version is None:
        return lost
    try:
        page = await reader.page(Read(view.key, ReadFilters(from_version=trimmed.first_version)))
    except TrimmedError as again:
        raise ReadFailedError(f"{view.key} is being trimmed while it is read") from again
    except AggregateMissingError as gone:
        raise ReadFailedError(f"{view.key} was deleted while it was read") from gone
    start = from_snapshot(view, page.batches, domain=reader.domain)
    return lost if start is None else (start, page)


async def _when_missing(reader: Reader[S], view: View[S], *, is_doubted: bool) -> View[S] | Broken:
    """Read "not found": a new aggregate at version 0, and never "nothing new" above it (SW-22)."""
    if view.version == 0 and not is_doubted:
        return view
    try:
        details = await reader.details(view.key)
    except AggregateMissingError:
        if view.version == 0:
            return view
        return Broken(
            FaultKind.REGRESSED, f"{view.key} was at version {view.version} and is unknown now"
        )
    if details.is_deleted:
        return Broken(FaultKind.CLOSED, f"{view.key} is deleted")
    raise ReadFailedError(f"{view.key} was not found and exists; it is read again")


def is_other_wish(answer_fingerprint: bytes | None, fingerprint: bytes) -> bool:
    """Say whether a recognised request asked for something else (rule SW-81).

    An event that cannot tell its fingerprint passes for any command: the domain chose so.
    """
    return answer_fingerprint is not None and answer_fingerprint != fingerprint
