"""Dropping dead batches in the background, one bounded slice at a time (log rule C13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from landed.engines.port import Store
from landed.facts import Note


class Reclaimer:
    """Run a store's ``reclaim`` on the thread of its commits, between two of them."""

    __slots__ = (
        "_began",
        "_executor",
        "_interval_s",
        "_is_closed",
        "_is_due",
        "_loop",
        "_note",
        "_running",
        "_settled",
        "_store",
        "_timer",
    )

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        interval_s: float,
        note: Note,
        began: Callable[[], None],
        settled: Callable[[], None],
    ) -> None:
        """``began`` and ``settled`` are called around every slice."""
        self._store = store
        self._executor = executor
        self._interval_s = interval_s
        self._note = note
        self._began = began
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Future[int] | None = None
        self._is_closed = False
        self._is_due = False
        self.expect()

    @property
    def is_idle(self) -> bool:
        """Whether no slice is on its way."""
        return self._running is None

    def expect(self) -> None:
        """Something died, or may have before the last close: look after it in a while.

        A slice that is on its way may have looked before it died, and is no reason not to.
        """
        if self._running is not None:
            self._is_due = True
        elif self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(self._interval_s, self._begin)

    async def run(self) -> int:
        """Drop one slice now; returns how many batches it dropped."""
        while self._running is not None:
            await asyncio.wait([self._running])
        self._begin()
        return await asyncio.shield(self._slice())

    def close(self) -> None:
        """Begin nothing more. A slice on its way is finished."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _slice(self) -> asyncio.Future[int]:
        assert self._running is not None
        return self._running

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._began()
        self._running = self._loop.run_in_executor(self._executor, self._store.reclaim)
        self._running.add_done_callback(self._finish)

    def _finish(self, future: asyncio.Future[int]) -> None:
        self._running = None
        error = future.exception()
        if error is not None:
            self._note("lane.reclaim_failed", {"error": repr(error)})
            self.expect()
        elif future.result():
            self._note("lane.reclaimed", {"batches": future.result()})
            if not self._is_closed:
                self._begin()
        elif self._is_due:
            self._is_due = False
            self.expect()
        self._settled()
