"""An engine on trial: the engine, the levers, and short words for what obligations do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from landed.engines.ask import ask, ask_all
from landed.engines.flush import FlushGate
from landed.engines.port import Engine
from landed.errors import StorageError
from landed.ids import AggregateKey, ClientId, UserId
from landed.limits import Limits
from landed.log import (
    ANY,
    Answer,
    Batch,
    Delete,
    Deleted,
    DeleteLeg,
    Details,
    Event,
    FeedEntry,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Leg,
    Page,
    Read,
    ReadFilters,
    Request,
    Trim,
    Trimmed,
    Write,
)

A: Final = ClientId(UUID(int=0xA))
B: Final = ClientId(UUID(int=0xB))
C: Final = ClientId(UUID(int=0xC))


class Levered(Engine, Protocol):
    """An engine with what the levers pull."""

    @property
    def gate(self) -> FlushGate: ...

    async def reclaim(self) -> int:
        """Drop a slice of what is dead; returns how many batches."""


Opener = Callable[[Limits], Awaitable[Levered]]
"""Open the log on trial; called again after a close, it must open the same data."""

_Answer = TypeVar("_Answer", bound=Answer)


class Trial:
    """One engine with data of its own. ``engine`` changes when it is restarted."""

    def __init__(self, opener: Opener, limits: Limits) -> None:
        self._opener = opener
        self.limits = limits
        self.engine: Levered

    async def start(self) -> None:
        """Open the engine."""
        self.engine = await self._opener(self.limits)

    async def close(self) -> None:
        """Close the engine; its data stays."""
        await self.engine.close()

    # --- levers

    async def restart(self, limits: Limits | None = None) -> None:
        """Close and open again, possibly with other limits."""
        await self.engine.close()
        self.engine = await self._opener(limits or self.limits)

    def hold(self) -> None:
        """Keep what is accepted from now on in flight."""
        self.engine.gate.hold()

    def release(self) -> None:
        """Let it go to the disk."""
        self.engine.gate.release()

    def fail_next(self) -> None:
        """Make the next flush fail, with nothing stored."""
        self.engine.gate.fails_next = StorageError("made to fail")

    async def reclaim(self) -> None:
        """Drop everything dead."""
        while await self.engine.reclaim():
            pass

    # --- words

    def ask(self, request: Request) -> asyncio.Future[Answer]:
        """Submit now, await later."""
        return ask(self.engine, request)

    def ask_all(self, requests: Iterable[Request]) -> asyncio.Future[list[Answer]]:
        """Submit all now, in order."""
        return ask_all(self.engine, list(requests))

    async def land(self, write: Write) -> int:
        """Write what must land; returns the version of its first leg."""
        return expect(Landed, await self.ask(write)).versions[0]

    async def trim(self, key: AggregateKey, keep_from: int, client: ClientId = A) -> None:
        """Trim what must be trimmed."""
        expect(Trimmed, await self.ask(Trim(key, keep_from, client)))

    async def delete(
        self, key: AggregateKey, *, recreate: bool = False, go_on: bool = False
    ) -> None:
        """Delete what must be deleted."""
        expect(Deleted, await self.ask(delete(key, recreate=recreate, go_on=go_on)))

    async def details(self, key: AggregateKey) -> Details:
        """Details that must be there."""
        return expect(Details, await self.ask(GetDetails(key)))

    async def pages(self, key: AggregateKey, filters: ReadFilters) -> list[Page]:
        """Read page after page to the end, as a caller does."""
        pages = [expect(Page, await self.ask(Read(key, filters)))]
        while (following := pages[-1].next_version) is not None:
            read = Read(key, filters._replace(from_version=following))
            pages.append(expect(Page, await self.ask(read)))
        return pages

    async def batches(
        self, key: AggregateKey, from_version: int = 1, **filters: Any
    ) -> list[Batch]:
        """Every batch from a version on that the filters leave."""
        chosen = ReadFilters(from_version)._replace(**filters)
        return [batch for page in await self.pages(key, chosen) for batch in page.batches]

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Ask again until it is so, letting the engine work in between."""
        while not await is_so():  # noqa: ASYNC110  # a reader who polls is what is shown
            await asyncio.sleep(0.001)

    async def versions(self, key: AggregateKey, from_version: int = 1) -> list[int]:
        """The versions that can be read."""
        return [batch.version for batch in await self.batches(key, from_version)]

    async def written(self, key: AggregateKey, from_version: int = 1) -> list[tuple[ClientId, int]]:
        """Who wrote which sequence, event by event."""
        batches = await self.batches(key, from_version)
        return [(b.client_id, event.client_seq) for b in batches for event in b.events]

    async def entries(self, after: int = 0, limit: int = 1_000) -> list[FeedEntry]:
        """The whole feed after a position."""
        entries: list[FeedEntry] = []
        while True:
            page = expect(FeedPage, await self.ask(FeedRead(after, limit)))
            entries.extend(page.entries)
            if page.is_at_end:
                return entries
            assert page.next_after > after, "a page that is not the last moves on"
            after = page.next_after


def key(id: int = 1, *, type: int = 2, org: int = 1) -> AggregateKey:
    """An aggregate by a small number."""
    return AggregateKey(UUID(int=org), UUID(int=type), UUID(int=id))


def events(*seqs: int, value: bytes = b"v", type_major: int = 1) -> tuple[Event, ...]:
    """Events with these sequences, each with an id made from its sequence."""
    return tuple(
        Event.new(type_major, value, client_seq=seq, event_id=UUID(int=1_000_000 + seq))
        for seq in seqs
    )


def leg(
    to: AggregateKey,
    *seqs: int,
    at: int | None = ANY,
    create: bool = True,
    enforce: bool = True,
    value: bytes = b"v",
) -> Leg:
    """A leg of one event a sequence; ``at`` is the version it insists on."""
    return Leg(to, events(*seqs, value=value), at, create, enforce)


def write(
    to: AggregateKey,
    *seqs: int,
    at: int | None = ANY,
    client: ClientId = A,
    user: UserId | None = None,
    create: bool = True,
    enforce: bool = True,
    value: bytes = b"v",
) -> Write:
    """A write of one leg, likewise."""
    return Write(
        client, (leg(to, *seqs, at=at, create=create, enforce=enforce, value=value),), user
    )


def delete(
    *keys: AggregateKey, at: int | None = ANY, recreate: bool = False, go_on: bool = False
) -> Delete:
    """A delete of these aggregates, all with the same options."""
    return Delete(A, tuple(DeleteLeg(each, at, recreate, go_on) for each in keys))


def expect(kind: type[_Answer], answer: Answer) -> _Answer:
    """Return the answer, which must be of this kind."""
    assert isinstance(answer, kind), f"expected {kind.__name__}, got {answer}"
    return answer


def count(kind: type[Answer], answers: Iterable[Answer]) -> int:
    """How many answers are of a kind."""
    return sum(isinstance(answer, kind) for answer in answers)
