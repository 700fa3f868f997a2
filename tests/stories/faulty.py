"""A log that does what a bad network and a bad moment do, at the request the story names."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from landed.client.log import Log, LogInfo
from landed.client.pages import batches_of
from landed.errors import ConnectFailedError, LandedError, OutcomeUnknownError
from landed.ids import AggregateKey
from landed.log import Batch, Delete, Details, FeedPage, FeedRead, Landed, Page, Read, Trim, Write


@dataclass(frozen=True)
class LoseAnswer:
    """The write arrives and is judged; nobody hears how."""


@dataclass(frozen=True)
class LoseRequest:
    """The write leaves and never arrives."""


@dataclass(frozen=True)
class DelayApply:
    """The answer is given up at once; the write arrives that much later."""

    delay_s: float


@dataclass(frozen=True)
class Answer:
    """The log answers with this error, and has done nothing."""

    error: LandedError


@dataclass(frozen=True)
class LandAt:
    """The write lands, and the answer names this version."""

    version: int


@dataclass(frozen=True)
class Pass:
    """Nothing special."""


Fault = LoseAnswer | LoseRequest | DelayApply | Answer | LandAt | Pass


class Pause:
    """A place where one request stops until the story lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def stop(self) -> None:
        self.reached.set()
        await self._go.wait()

    def go_on(self) -> None:
        self._go.set()


class FaultyLog:
    """One replica's way to the log. Faults are scripted for the next writes or reads, in order."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.writes: list[Write] = []
        """What was handed over for sending, in order, faults included."""
        self.reads: list[Read] = []
        self.details_asked = 0
        self.write_script: deque[Fault] = deque()
        self.read_script: deque[Fault] = deque()
        self.details_script: deque[LandedError] = deque()
        self.is_down = False
        """Nobody can be dialled."""
        self.is_stuck = False
        """Writes are neither delivered nor answered."""
        self._pauses: dict[str, deque[Pause]] = {}
        self._late: list[asyncio.Task[None]] = []

    def swap(self, log: Log) -> None:
        """Put another log behind this address."""
        self._log = log

    def on_write(self, *faults: Fault) -> None:
        """Script the next writes."""
        self.write_script.extend(faults)

    def on_read(self, *faults: Fault) -> None:
        """Script the next reads."""
        self.read_script.extend(faults)

    def on_details(self, *errors: LandedError) -> None:
        """Script the next questions for details."""
        self.details_script.extend(errors)

    def pause(self, point: str) -> Pause:
        """Stop the next request at a point.

        ``before_read``, ``after_read``, ``before_send``, ``after_send``, ``before_info``.
        """
        pause = Pause()
        self._pauses.setdefault(point, deque()).append(pause)
        return pause

    async def settle(self) -> None:
        """Wait until every delayed write has arrived."""
        await asyncio.gather(*self._late)

    async def write(self, write: Write, *, timeout_s: float | None = None) -> Landed:
        await self._at("before_send")
        self._refuse_if_down()
        self.writes.append(write)
        if self.is_stuck:
            await asyncio.sleep(timeout_s or 5.0)
            raise OutcomeUnknownError("timeout")
        fault = self.write_script.popleft() if self.write_script else Pass()
        match fault:
            case LoseRequest():
                raise OutcomeUnknownError("timeout")
            case Answer(error):
                raise error
            case DelayApply(delay_s):
                self._late.append(asyncio.ensure_future(self._arrive_late(write, delay_s)))
                raise OutcomeUnknownError("timeout")
            case LoseAnswer() | LandAt() | Pass():
                pass
        try:
            landed = await self._log.write(write, timeout_s=timeout_s)
        except LandedError as error:
            if isinstance(fault, LoseAnswer):
                raise OutcomeUnknownError("eof") from error
            raise
        if isinstance(fault, LoseAnswer):
            raise OutcomeUnknownError("eof")
        await self._at("after_send")
        if isinstance(fault, LandAt):
            return Landed((fault.version,))
        return landed

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        await self._at("before_read")
        self._refuse_if_down()
        self.reads.append(read)
        fault = self.read_script.popleft() if self.read_script else Pass()
        if isinstance(fault, Answer):
            raise fault.error
        page = await self._log.read(read, timeout_s=timeout_s)
        await self._at("after_read")
        return page

    def read_all(self, read: Read) -> AsyncIterator[Batch]:
        return batches_of(read, self.read)

    async def details(self, key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        self._refuse_if_down()
        self.details_asked += 1
        if self.details_script:
            raise self.details_script.popleft()
        return await self._log.details(key, timeout_s=timeout_s)

    async def trim(self, trim: Trim, *, timeout_s: float | None = None) -> None:
        await self._log.trim(trim, timeout_s=timeout_s)

    async def delete(self, delete: Delete, *, timeout_s: float | None = None) -> None:
        await self._log.delete(delete, timeout_s=timeout_s)

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        return await self._log.feed(read, timeout_s=timeout_s)

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:
        await self._at("before_info")
        self._refuse_if_down()
        return await self._log.info(timeout_s=timeout_s)

    async def close(self) -> None:
        """The log is shared; its owner closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _refuse_if_down(self) -> None:
        if self.is_down:
            raise ConnectFailedError("nobody listens there")

    async def _at(self, point: str) -> None:
        waiting = self._pauses.get(point)
        if waiting:
            await waiting.popleft().stop()

    async def _arrive_late(self, write: Write, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with suppress(LandedError):  # refused: a stale guard makes late copies harmless
            await self._log.write(write)
