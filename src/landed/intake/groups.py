"""Receipts in groups: requests that wait together share one transaction and one commit (RC-12).

One group at a time is committed, on a thread of its own, while the next one forms. Nobody is
answered before the commit of his group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError

from landed.deliveries.classify import QuarantinedEvent, is_beyond_floor
from landed.deliveries.event import Rejected
from landed.errors import StorageError
from landed.facts import Note
from landed.intake.admission import Admitted, beyond_retention
from landed.records.bell import Ring, silent
from landed.records.receipts import Arrival, Conflicting, Kept, Taken, keep
from landed.records.retention import replay_floor
from landed.records.session import Books, transact

ALONE_S: Final = 2.0
"""After a group failed its members are tried alone for so long; the rest is told to come again."""

Outcome = tuple[Taken | Rejected, ...] | Rejected
"""By event of a delivery, in its order; or one answer for the whole delivery."""


class Busy(Exception):  # noqa: N818  # an answer on its way, not a failure
    """More waits than is bounded."""


@dataclass(slots=True)
class _Waiting:
    admitted: Admitted
    size: int
    done: asyncio.Future[Outcome]


class Sizes(NamedTuple):
    """The bounds of groups."""

    members: int = 64
    size: int = 4 * 1024 * 1024
    waiting: int = 1024
    waiting_size: int = 64 * 1024 * 1024


class Groups:
    """Takes admitted deliveries and answers each after its commit."""

    def __init__(
        self,
        engine: Engine,
        books: Books,
        *,
        note: Note,
        sizes: Sizes,
        is_grouping: bool = True,
        ring: Ring = silent,
    ) -> None:
        self._engine = engine
        self._books = books
        self._note = note
        self._sizes = sizes
        self._ring = ring
        self._members_max = sizes.members if is_grouping else 1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="landed-receipts")
        self._waiting: list[_Waiting] = []
        self._waiting_size = 0
        self._committing: asyncio.Task[None] | None = None

    async def take(self, admitted: Admitted) -> Outcome:
        """Keep a delivery's events in the next group.

        Raises:
            Busy: too much waits already.
        """
        size = sum(len(a.event.data) for a in admitted.arrivals if isinstance(a, Arrival))
        sizes = self._sizes
        if (
            len(self._waiting) >= sizes.waiting
            or self._waiting_size + size > sizes.waiting_size > size
        ):
            raise Busy
        member = _Waiting(admitted, size, asyncio.get_running_loop().create_future())
        self._waiting.append(member)
        self._waiting_size += size
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name="landed receipts")
        return await member.done

    async def on_thread(self, work: Callable[[], None]) -> None:
        """Run something of ours between two groups."""
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Finish what was begun."""
        if self._committing is not None:
            await self._committing
        self._thread.shutdown(wait=False)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                group = self._next_group()
                loop = asyncio.get_running_loop()
                outcomes = await loop.run_in_executor(
                    self._thread, self._commit, [member.admitted for member in group]
                )
                if any(map(_is_work, outcomes)):
                    self._ring()
                for member, outcome in zip(group, outcomes, strict=True):
                    if not member.done.done():
                        member.done.set_result(outcome)
        finally:
            self._committing = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        for member in self._waiting:
            size += member.size
            if group and (size > self._sizes.size or len(group) >= self._members_max):
                break
            group.append(member)
        del self._waiting[: len(group)]
        self._waiting_size -= sum(member.size for member in group)
        return group

    def _commit(self, group: Sequence[Admitted]) -> list[Outcome]:
        """Commit a group; if that fails and nothing of it was kept, every member alone."""
        try:
            outcomes = self._transact(group)
        except Exception as e:  # noqa: BLE001  # whatever it is, nobody gets a 2xx for it
            self._failed(e, len(group))
            if len(group) == 1 or not _is_outcome_known(e):
                return [refusal_of(e)] * len(group)
        else:
            self._note("kp", {"point": "KP-3"})
            return outcomes
        began_ms = self._books.clock.monotonic_ms()
        alone: list[Outcome] = []
        for admitted in group:
            if self._books.clock.monotonic_ms() - began_ms > ALONE_S * 1000:
                alone.append(unavailable())
            else:
                alone += self._commit([admitted])
        return alone

    def _transact(self, group: Sequence[Admitted]) -> list[Outcome]:
        def _work(conn: Connection) -> list[Outcome]:
            return keep_all(conn, self._books, group, note=self._note)

        return transact(self._engine, _work)

    def _failed(self, error: Exception, members: int) -> None:
        self._note(
            "intake.failed",
            {
                "error": str(error) if isinstance(error, StorageError) else type(error).__name__,
                "members": members,
            },
        )


def keep_all(
    conn: Connection, books: Books, group: Sequence[Admitted], *, note: Note
) -> list[Outcome]:
    """Keep a group of deliveries in the caller's transaction (TX-RECV); one outcome for each."""
    floors = {
        producer.namespace: replay_floor(conn, producer.namespace)
        for producer in {
            admitted.producer.namespace: admitted.producer for admitted in group
        }.values()
        # No other producer has a floor that is raised while the program runs (rule RT-10).
        if producer.has_signed_event_time
    }

    def _judged(admitted: Admitted, arrival: Arrival | Rejected) -> Arrival | Rejected:
        if isinstance(arrival, Rejected):
            return arrival
        floor_us = floors.get(admitted.producer.namespace)
        if is_beyond_floor(arrival.event, admitted.producer, floor_us=floor_us):
            return beyond_retention(admitted.producer.namespace)
        return arrival

    judged = [[_judged(admitted, arrival) for arrival in admitted.arrivals] for admitted in group]
    arrivals = [a for each in judged for a in each if isinstance(a, Arrival)]
    note("kp", {"point": "KP-6"})
    taken = iter(keep(conn, books, arrivals))
    if any(isinstance(arrival.disposition, QuarantinedEvent) for arrival in arrivals):
        note("kp", {"point": "KP-5"})
    outcomes: list[Outcome] = []
    for each in judged:
        outcome = tuple(a if isinstance(a, Rejected) else next(taken) for a in each)
        is_whole = len(outcome) == 1 and isinstance(outcome[0], Rejected)
        outcomes.append(outcome[0] if is_whole else outcome)  # type: ignore[arg-type]  # just checked
    note("kp", {"point": "KP-1"})
    return outcomes


def unavailable(detail: str = "it cannot be kept durably now") -> Rejected:
    """Durability cannot be promised: come again (rule AU-9)."""
    return Rejected(status=503, reason="unavailable", detail=detail, retry_after_s=1)


def refusal_of(error: Exception) -> Rejected:
    """What a sender is told of a failure: never a 2xx, and never a 500."""
    if isinstance(error, StorageError):
        if isinstance(error.__cause__, DataError):
            return Rejected(status=400, reason="not_storable", detail="it cannot be stored")
        if not error.is_outcome_known:
            return unavailable("nobody knows whether it was kept; a repeat is recognised")
    return unavailable()


def _is_work(outcome: Outcome) -> bool:
    """Whether something new was kept; of a repeat nothing follows."""
    return not isinstance(outcome, Rejected) and any(
        isinstance(item, Kept | Conflicting) for item in outcome
    )


def _is_outcome_known(error: Exception) -> bool:
    return not isinstance(error, StorageError) or error.is_outcome_known
