"""A log in this very process: the same face as a pool, without a wire between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from landed.client.log import LogInfo
from landed.client.pages import batches_of
from landed.client.shape import check_shape, check_values, from_the_start
from landed.engines.ask import ask
from landed.engines.port import Engine
from landed.errors import (
    ConfigurationError,
    LandedError,
    OutcomeUnknownError,
    PoolClosedError,
    ReadTimeoutError,
)
from landed.ids import AggregateKey
from landed.log import (
    Answer,
    Batch,
    Delete,
    Deleted,
    Details,
    FeedPage,
    FeedRead,
    GetDetails,
    Landed,
    Mutation,
    Page,
    Read,
    Request,
    Trim,
    Trimmed,
    Write,
)
from landed.wire.codes import error_of
from landed.wire.messages import operation_of


class EmbeddedLog:
    """A ``Log`` over an engine in this process. Owns the engine: closing one closes the other.

    What was submitted is carried to its end even if nobody waits for it any more (log rule W20):
    a change that was cancelled or ran out of time is unknown, as it is over a wire.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    async def write(self, write: Write, *, timeout_s: float | None = None) -> Landed:
        """Append, all or nothing. See ``Log.write``."""
        check_shape(write)
        answer = await self._ask(write, timeout_s)
        if isinstance(answer, Landed):
            return answer
        raise self._error(write, answer)

    async def trim(self, trim: Trim, *, timeout_s: float | None = None) -> None:
        """Raise the floor. See ``Log.trim``."""
        answer = await self._ask(trim, timeout_s)
        if not isinstance(answer, Trimmed):
            raise self._error(trim, answer)

    async def delete(self, delete: Delete, *, timeout_s: float | None = None) -> None:
        """End the aggregates' lives. See ``Log.delete``."""
        check_shape(delete)
        answer = await self._ask(delete, timeout_s)
        if not isinstance(answer, Deleted):
            raise self._error(delete, answer)

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        """One page. See ``Log.read``."""
        read = from_the_start(read)
        answer = await self._ask(read, timeout_s)
        if isinstance(answer, Page):
            return answer
        raise self._error(read, answer)

    def read_all(self, read: Read) -> AsyncIterator[Batch]:
        """Every batch, page after page. See ``Log.read_all``."""
        return batches_of(read, self.read)

    async def details(self, key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        """State without events. See ``Log.details``."""
        request = GetDetails(key)
        answer = await self._ask(request, timeout_s)
        if isinstance(answer, Details):
            return answer
        raise self._error(request, answer)

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        """Changes of the whole log after a position. See ``Log.feed``."""
        answer = await self._ask(read, timeout_s)
        if isinstance(answer, FeedPage):
            return answer
        raise self._error(read, answer)

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:  # noqa: ARG002  # the face of Log
        """Which log this is. Answered at once, so ``timeout_s`` bounds nothing."""
        self._refuse_if_closed()
        identity = self._engine.identity
        return LogInfo(identity.log_id, identity.restore_epoch, self._engine.position)

    async def close(self) -> None:
        """Finish what was submitted and close the engine. Idempotent."""
        self._is_closed = True
        await self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"at {self._engine.position}"
        return f"<EmbeddedLog {self._engine.identity.log_id} {state}>"

    async def _ask(self, request: Request, timeout_s: float | None) -> Answer:
        """Submit, and wait that long.

        Raises:
            OutcomeUnknownError, ReadTimeoutError: the time was up first.
        """
        self._refuse_if_closed()
        self._check_home()
        check_values(request)
        future = ask(self._engine, request)
        if future.done() or timeout_s is None:
            return await future
        # A timer instead of asyncio.wait: that costs a third of a whole write in memory.
        timer = asyncio.get_running_loop().call_later(
            timeout_s, _give_up, future, request, timeout_s
        )
        try:
            return await future
        finally:
            timer.cancel()

    def _check_home(self) -> None:
        """Refuse a second event loop, which would wait for ever, and a child that has no threads.

        Raises:
            ConfigurationError: it is called from another loop or process than before.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ConfigurationError("this log belongs to another event loop; open one a loop")
        if self._process != os.getpid():
            raise ConfigurationError("this log belongs to the parent process; use landed serve")

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise PoolClosedError("the log is closed")

    def _error(self, request: Request, answer: Answer) -> LandedError:
        return error_of(operation_of(request), answer)


def _give_up(future: asyncio.Future[Answer], request: Request, timeout_s: float) -> None:
    if future.done():
        return
    if isinstance(request, Mutation):
        future.set_exception(
            OutcomeUnknownError("timeout", detail=f"not durable within {timeout_s} s")
        )
    else:
        future.set_exception(ReadTimeoutError(f"not answered within {timeout_s} s"))
