"""A log and an engine that write down what they are asked and what comes back, and change nothing.

``WatchedLog`` stands between a replica's loop and its pool, ``WatchedEngine`` between the server and
the engine: what one was asked once must not reach the other twice. The timeline and most coverage
marks are made of their notes, whatever the rooms around them note themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Final, Self

from landed.client.log import Log, LogInfo, for_decisions
from landed.engines.port import Done, Engine, LogIdentity
from landed.ids import AggregateKey
from landed.log import (
    Answer,
    Batch,
    Busy,
    Delete,
    Details,
    FeedPage,
    FeedRead,
    Landed,
    Page,
    Read,
    Request,
    Trim,
    Unknown,
    Write,
)
from landed.sim.behind import OLD_POOL, Behind
from landed.sim.faults import CALM
from landed.sim.history import Call, History
from landed.sim.loop import sim_loop
from landed.sim.spindle import SimStore

_ROUNDING_S: Final = 1e-6

CALL: ContextVar[Call | None] = ContextVar("landed_sim_call", default=None)
"""The call on whose behalf the log is asked."""


class WatchedLog:
    """Note every request of one replica and its answer. Implements ``Log``."""

    def __init__(
        self, log: Log, history: History, host: str, *, behind: Behind | None = None
    ) -> None:
        self._log = log
        self._history = history
        self._host = host
        self._behind = behind

    def for_decisions(self) -> WatchedLog:
        """The same, as a decision must see it."""
        log = for_decisions(self._log)
        return WatchedLog(log, self._history, self._host, behind=self._behind)

    async def write(self, write: Write, *, timeout_s: float | None = None) -> Landed:
        """See ``Log.write``."""
        call = CALL.get()
        number = call.number if call else 0
        if call:
            call.writes += 1
        self._check_time(call, timeout_s)
        event_id = write.legs[0].events[0].event_id
        self._note("log.write", call=number, legs=legs_of(write), event_id=event_id)
        try:
            if self._behind is None:
                landed = await self._log.write(write, timeout_s=timeout_s)
            else:
                again = partial(self._note_again, call, write)
                landed = await self._behind.write(
                    self._log, write, timeout_s=timeout_s, again=again
                )
        except BaseException as error:
            self._note_error("log.wrote", number, error, legs=legs_of(write))
            raise
        self._note("log.wrote", call=number, answer="landed", versions=landed.versions)
        return landed

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        """See ``Log.read``."""
        call = CALL.get()
        number = call.number if call else 0
        self._check_time(call, timeout_s)
        try:
            page = await self._log.read(read, timeout_s=timeout_s)
        except BaseException as error:
            self._note_error("log.read", number, error)
            raise
        versions = tuple(batch.version for batch in page.batches)
        if read.filters.min_client_seq is None:
            self._note(
                "log.read",
                call=number,
                key=read.key,
                since=read.filters.from_version,
                versions=versions,
                is_cut=page.next_version is not None,
            )
        else:
            self._note(
                "log.asked_owner",
                call=number,
                key=read.key,
                seq=read.filters.min_client_seq,
                owner=self._owner(page, read.filters.min_client_seq),
            )
        return page

    def read_all(self, read: Read) -> AsyncIterator[Batch]:
        """See ``Log.read_all``."""
        return self._log.read_all(read)

    async def details(self, key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        """See ``Log.details``."""
        self._note("log.details", key=key)
        return await self._log.details(key, timeout_s=timeout_s)

    async def trim(self, trim: Trim, *, timeout_s: float | None = None) -> None:
        """See ``Log.trim``."""
        await self._log.trim(trim, timeout_s=timeout_s)

    async def delete(self, delete: Delete, *, timeout_s: float | None = None) -> None:
        """See ``Log.delete``."""
        await self._log.delete(delete, timeout_s=timeout_s)

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        """See ``Log.feed``."""
        return await self._log.feed(read, timeout_s=timeout_s)

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:
        """See ``Log.info``."""
        return await self._log.info(timeout_s=timeout_s)

    async def close(self) -> None:
        """See ``Log.close``."""
        await self._log.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See ``Log.__aexit__``."""
        await self.close()

    def _check_time(self, call: Call | None, timeout_s: float | None) -> None:
        """An attempt has what is left of its call, and no more (SW-33)."""
        if call is None or timeout_s is None:
            return
        if self._history.now() + timeout_s > call.deadline_at + _ROUNDING_S:
            self._history.broken.append(f"call {call.number} asks for more time than it has")

    def _note(self, what: str, **fields: object) -> None:
        self._history.note(self._host, what, **fields)

    def _note_again(self, call: Call | None, write: Write, why: str) -> None:
        if call is not None and why == OLD_POOL:
            call.is_resent = True
        event_id = write.legs[0].events[0].event_id
        number = call.number if call else 0
        self._note("log.again", call=number, why=why, legs=legs_of(write), event_id=event_id)

    def _owner(self, page: Page, seq: int) -> str:
        """Whose the contested sequence is, as the log tells."""
        call = CALL.get()
        for batch in page.batches:
            for event in batch.events:
                if event.client_seq == seq:
                    is_ours = call is None or event.event_id == call.request.event_id
                    return "ours" if is_ours else "sibling"
        return "unwritten"

    def _note_error(self, what: str, number: int, error: BaseException, **fields: object) -> None:
        name = type(error).__name__.removesuffix("Error")
        self._note(what, call=number, answer=name, detail=str(error), **fields)


class WatchedEngine:
    """Note every write that reaches the engine of one host. Implements ``Engine``.

    Each answer is checked at the moment it is given: nothing is told that is not flushed.
    """

    def __init__(self, engine: Engine, history: History, host: str, store: SimStore) -> None:
        self._engine = engine
        self._history = history
        self._host = host
        self._store = store
        self._rng = sim_loop().stream("doubtful answers")
        self._doubtful = self._rng.choice((0.0, 0.0, 0.0, 0.1))

    @property
    def identity(self) -> LogIdentity:
        """See ``Engine.identity``."""
        return self._engine.identity

    @property
    def position(self) -> int:
        """See ``Engine.position``."""
        return self._engine.position

    @property
    def is_stopped(self) -> bool:
        """See ``Engine.is_stopped``."""
        return self._engine.is_stopped

    def submit(self, request: Request, done: Done, /) -> None:
        """See ``Engine.submit``."""
        if self._store.is_dead:
            self._engine.submit(request, done)
            return
        if isinstance(request, Write):
            event_id = request.legs[0].events[0].event_id
            self._history.note(self._host, "engine.took", legs=legs_of(request), event_id=event_id)

        seen = self._store.see(request)

        def checked(answer: Answer) -> None:
            if not self._store.is_dead:
                self._history.broken += self._store.untrue(request, answer, seen)
            if isinstance(answer, Busy) and isinstance(request, Write):
                event_id = request.legs[0].events[0].event_id
                self._note("engine.busy", legs=legs_of(request), event_id=event_id)
            done(self._as_told(answer))

        self._engine.submit(request, checked)

    def _as_told(self, answer: Answer) -> Answer:
        """Now and then what landed is told as unknown, as by a server that gave a flush up (CP-32)."""
        if (
            isinstance(answer, Landed)
            and sim_loop().dials is not CALM
            and self._rng.random() < self._doubtful
        ):
            self._note("engine.doubtful")
            return Unknown("it may have landed")
        return answer

    def _note(self, what: str, **fields: object) -> None:
        self._history.note(self._host, what, **fields)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._engine.close()


def legs_of(write: Write) -> tuple[tuple[AggregateKey, int | None, int], ...]:
    """What a write insists on: for each leg its key, its guard and its lowest sequence."""
    return tuple([(leg.key, leg.expected_version, leg.events[0].client_seq) for leg in write.legs])
