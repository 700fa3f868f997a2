"""Answers written down in groups: what comes in while one group commits is the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from landed.records.attempts import Answered, Ended

GROUP_MAX: Final = 100
"""Answers in one transaction: enough for its cost to be shared, few enough for it to be short."""
HOLD_S: Final = 60.0
"""How long an answer in hand waits for a database that is away: without it, nobody would know."""
LEAVE_S: Final = 3.0
"""How long all of them wait together, once the worker has to leave."""


@dataclass(slots=True, eq=False)
class Waiting:
    """An answer in hand that is not written yet."""

    answered: Answered
    is_resend: bool
    since_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    """By the event loop's clock."""
    done: asyncio.Future[Ended] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """For whoever waits, who may be cancelled; what counts is ``outcome``."""
    outcome: Ended | BaseException | None = None

    def settle(self, outcome: Ended | BaseException) -> None:
        """It is written, or cannot be."""
        self.outcome = outcome
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


Write = Callable[[Sequence[Waiting]], Coroutine[Any, Any, list[Ended]]]
WriteAlone = Callable[[Waiting, bool], Coroutine[Any, Any, Ended]]
"""The flag says that it may be on record already: a group that held it has failed."""


class Ends:
    """Writes what attempts came to, one group at a time (TX-END).

    A group that fails is written one by one, so that what cannot be written holds up nothing else.
    """

    def __init__(self, write: Write, write_alone: WriteAlone) -> None:
        self._write = write
        self._write_alone = write_alone
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._left_s: float | None = None

    def leave(self) -> None:
        """The worker's time is over: what is in hand gets a few seconds more."""
        if self._left_s is None:
            self._left_s = asyncio.get_running_loop().time()

    def is_worth_a_try(self, one: Waiting) -> bool:
        """Whether to go on trying to write an answer while the database is away."""
        until_s = one.since_s + HOLD_S if self._left_s is None else self._left_s + LEAVE_S
        return asyncio.get_running_loop().time() < until_s

    async def end(self, answered: Answered, *, is_resend: bool) -> Ended:
        """Write one answer, with whatever else waits; returns after its commit.

        The answer is written even if whoever waits for it is cancelled (rule AT-11): the worker's
        time is over then, and the cancellation comes after the answer.

        Raises:
            StorageError: it could not be written; the attempt is reaped, as if never answered.
        """
        waiting = Waiting(answered, is_resend)
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="landed ends")
        try:
            return await waiting.done
        except asyncio.CancelledError:
            if waiting.outcome is None:
                self.leave()
                waiting.done = asyncio.get_running_loop().create_future()
                await asyncio.wait({waiting.done})
                waiting.done.exception()  # seen: whoever was cancelled has no use for it
            raise

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[:GROUP_MAX]
                del self._waiting[: len(group)]
                await self._write_group(group)
        finally:
            self._writing = None

    async def _write_group(self, group: Sequence[Waiting]) -> None:
        ended: Sequence[Ended] = ()
        if len(group) > 1:
            with suppress(Exception):  # each of them meets it again, alone
                ended = await self._write(group)
        if ended:
            for one, end in zip(group, ended, strict=True):
                one.settle(end)
            return
        for one in group:
            await self._write_one(one, is_again=len(group) > 1)

    async def _write_one(self, one: Waiting, *, is_again: bool) -> None:
        try:
            end = await self._write_alone(one, is_again)
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001  # it belongs to whoever waits for this one
            one.settle(e)
        else:
            one.settle(end)
