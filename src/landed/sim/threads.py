"""Threads of a simulated world: calls run inline, at moments drawn from the seed.

An executor keeps what it promises and nothing more: calls start in the order in which they were
handed over, at most ``max_workers`` at once. Between a call and the news of it there is time, in
which the rest of the world already sees what the call did; with several workers the news may arrive
in another order.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from landed.sim.faults import Dials

DEFAULT_WORKERS: Final = 8
"""Width of the default executor, and of executors that do not tell theirs."""


class _Call(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]


class _Worker:
    """One thread. News of its calls comes in the order in which it ran them."""

    __slots__ = ("news_at",)

    def __init__(self) -> None:
        self.news_at = 0.0


class Threads:
    """The worker threads of one executor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        rng: Random,
        dials: Dials,
    ) -> None:
        self._loop = loop
        self._rng = rng
        self.dials = dials
        workers: int = getattr(executor, "_max_workers", DEFAULT_WORKERS)
        self._idle = [_Worker() for _ in range(workers)]
        self._waiting: deque[_Call] = deque()

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Hand over a call. The future is done some time after the call has run."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if args:
            function = functools.partial(function, *args)
        call = _Call(function, future)
        if self._idle:
            self._start(self._idle.pop(), call)
        else:
            self._waiting.append(call)
        return future

    def _start(self, worker: _Worker, call: _Call) -> None:
        self._loop.call_later(self._delay(), self._run, worker, call, context=contextvars.Context())

    def _run(self, worker: _Worker, call: _Call) -> None:
        if not call.future.cancelled():  # a call that has begun is not stopped by a cancellation
            error: BaseException | None = None
            result = None
            try:
                result = call.function()
            except BaseException as raised:  # noqa: BLE001  # carried to whoever awaits, as real executors do
                error = raised
            worker.news_at = max(worker.news_at, self._loop.time() + self._delay())
            self._loop.call_at(worker.news_at, _report, call.future, result, error)
        if self._waiting:
            self._start(worker, self._waiting.popleft())
        else:
            self._idle.append(worker)

    def _delay(self) -> float:
        dials, rng = self.dials, self._rng
        low, high = dials.executor_s
        delay = low + (high - low) * rng.random()
        if dials.executor_stall and rng.random() < dials.executor_stall:
            low, high = dials.executor_stall_s
            delay += low + (high - low) * rng.random()
        return delay


def _report(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
