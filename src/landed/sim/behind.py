"""What happens to a write behind the back of whoever made it: it is sent or delivered once more.

A pool of an older library sends again after a broken connection and shows only the second answer. A
network, a proxy or a queue delivers a copy long after the answer. A writer that is safe to retry is
safe against both, though it knows of neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from landed.errors import (
    LandedError,
    OutcomeUnknownError,
    SequenceInFlightError,
    SequenceTakenError,
    VersionConflictError,
)
from landed.log import Landed, Write

if TYPE_CHECKING:
    from landed.client.log import Log
    from landed.sim.plan import Plan

Again = Callable[[str], None]
OLD_POOL: Final = "an old pool"
TWICE: Final = "delivered twice"

_DEFINITE: Final = (VersionConflictError, SequenceTakenError, SequenceInFlightError)
"""Answers to a copy that an old pool passes on. Any other says nothing of the first sending."""


class Behind:
    """The copies that one replica's pool and network make of its writes."""

    def __init__(self, plan: Plan, rng: Random) -> None:
        self._plan = plan
        self._rng = rng
        self._is_calm = False
        self._copies: set[asyncio.Task[None]] = set()

    async def write(
        self, log: Log, write: Write, *, timeout_s: float | None, again: Again
    ) -> Landed:
        """Send a write, and perhaps once more. ``again`` is told before each copy.

        Raises:
            LandedError: as the log's own ``write``; of two answers, the second.
        """
        try:
            landed = await self._send(log, write, timeout_s, again)
        except (OutcomeUnknownError, *_DEFINITE):
            self._copy_later(log, write, again)
            raise
        self._copy_later(log, write, again)
        return landed

    async def _send(self, log: Log, write: Write, timeout_s: float | None, again: Again) -> Landed:
        try:
            return await log.write(write, timeout_s=timeout_s)
        except OutcomeUnknownError as unknown:
            if self._is_calm or self._rng.random() >= self._plan.resend:
                raise
            again(OLD_POOL)
            try:
                return await log.write(write, timeout_s=timeout_s)
            except _DEFINITE:
                raise
            except LandedError:
                raise unknown from None

    def _copy_later(self, log: Log, write: Write, again: Again) -> None:
        if not self._is_calm and self._rng.random() < self._plan.copy:
            delay_s = self._plan.policy.attempt_timeout_s * 4 * self._rng.random()
            task = asyncio.create_task(self._copy(log, write, delay_s, again))
            self._copies.add(task)
            task.add_done_callback(self._copies.discard)

    async def _copy(self, log: Log, write: Write, delay_s: float, again: Again) -> None:
        await asyncio.sleep(delay_s)
        again(TWICE)
        with suppress(LandedError):
            await log.write(write)

    async def settle(self) -> None:
        """Make no more copies, and return once every one is delivered."""
        self._is_calm = True
        if self._copies:
            await asyncio.wait(self._copies)

    async def end(self) -> None:
        """Its host dies, and with it what it still meant to send."""
        for task in list(self._copies):
            task.cancel()
        if self._copies:
            await asyncio.wait(self._copies)
