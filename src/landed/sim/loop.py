"""An asyncio event loop with virtual time, whose time, network and threads come from one seed.

Production code is plain asyncio: it runs here unchanged. Disorder is drawn where the world has it
(delivery, threads, faults); the ready queue stays first in, first out, because asyncio promises
that order and breaking it finds bugs that cannot occur. Time jumps to the next timer when nothing
is ready, so nobody waits.

A run that leaves a task behind, an exception that nobody took, or a coroutine that nobody awaited
has failed, whatever its result.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import warnings
import weakref
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final, TypeVar

from landed.facts import Note, forget
from landed.sim.clock import HostClock
from landed.sim.faults import CALM, Dials
from landed.sim.network import HERE, LOCALHOST, Network, SimServer, on_host, this_host
from landed.sim.threads import Threads
from landed.sim.transport import SimTransport

T = TypeVar("T")

START_S: Final = 1000.0
"""Where virtual time begins; not 0, so that no instant reads as False."""
HORIZON_S: Final = 7 * 86_400.0
"""A run that has not ended after so much virtual time never will."""
_TURNS_MAX: Final = 200_000
"""Turns of the loop in one instant; more is a loop that never waits."""
_TIMERS_MIN: Final = 128
"""Below so many timers nobody bothers to sweep the cancelled ones out."""


class SimulationStuckError(RuntimeError):
    """Nothing can ever happen again, or it happens for ever, and the run is not over."""


class WorldFailedError(AssertionError):
    """The run ended with a task left behind, an exception nobody took, or the like."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash does not depend on where it lies in memory.

    ``TaskGroup`` keeps its tasks in a set and cancels them in the order of that set.
    """

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimHandle(asyncio.Handle):
    """A handle that is made without asking for the loop's debug mode: half of the cost of a turn."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False


class SimTimer(asyncio.TimerHandle):
    """The same, due at a moment."""

    __slots__ = ()
    _repr = None
    _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        """Never call it."""
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)  # type: ignore[attr-defined]
            self._callback = self._args = None  # type: ignore[assignment]


class SimLoop(base_events.BaseEventLoop):
    """A loop that is a function of its seed.

    Args:
        seed: everything drawn comes from it. The same seed and the same program give the same run.
        dials: delays and faults; calm unless said otherwise.
        note: takes facts about the network (``net.landed``, ``net.lost_after`` and so on).
        horizon_s: virtual seconds after which a run is given up.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _closed: bool
    get_debug = bool  # asked for every future: this says False without a frame of its own, as
    # does the partial by which futures are made

    def __init__(
        self,
        seed: int | str = 0,
        *,
        dials: Dials = CALM,
        note: Note = forget,
        horizon_s: float = HORIZON_S,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.dials = dials
        self.network = Network(self, self.stream("network"), dials, note)
        self.unhandled: list[str] = []
        """Exceptions that nobody took, as text."""
        self._now = START_S
        self._end = START_S + horizon_s
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._turns = 0
        self._threads_rng = self.stream("threads")
        self._threads: dict[Executor | None, Threads] = {}
        self._clocks: dict[str, HostClock] = {}
        self._paused: dict[str, list[asyncio.Handle]] = {}
        self._tasks_made = 0
        self._tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.set_task_factory(_make_task)  # type: ignore[arg-type]  # typeshed has another shape a version
        self.slow_callback_duration = float("inf")  # virtual time does not pass while code runs

    # --- time ---------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds. They pass only while everything waits."""
        return self._now

    def stream(self, name: str) -> Random:
        """A generator of this run's seed, of its own for each name."""
        return Random(f"{self.seed}/{name}")  # noqa: S311  # repeatable on purpose

    def clock(self, host: str | None = None) -> HostClock:
        """The clocks of a host; of the caller's own if None."""
        return self._clocks.setdefault(host or this_host(), HostClock(self.time))

    def calm(self) -> None:
        """Turn every dial back: from now on nothing goes wrong. What is late stays late."""
        self.dials = self.network.dials = CALM
        for host in list(self._paused):
            self.resume(host)
        for threads in self._threads.values():
            threads.dials = CALM

    def pause(self, host: str) -> None:
        """Stop a host as SIGSTOP would: nothing of it runs until ``resume``, and time goes on."""
        self._paused.setdefault(host, [])

    def resume(self, host: str) -> None:
        """Let a host go on where it stopped. What came due meanwhile runs now, in its order."""
        self._ready.extend(self._paused.pop(host, ()))

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a moment; what is due at the same moment keeps its order."""
        if when is None:
            raise TypeError("when cannot be None")
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = SimTimer(when, callback, args, self, context)
        self._timers_made = number = self._timers_made + 1
        heappush(self._timers, (when, number, timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call in the next turn, after what is ready already."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after virtual seconds."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        when = self._now + delay
        timer = SimTimer(when, callback, args, self, context)
        self._timers_made = number = self._timers_made + 1
        heappush(self._timers, (when, number, timer))
        return timer

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _run_once(self) -> None:
        """Turn after turn until somebody stops it: move time if nothing is ready, run what is."""
        ready, paused = self._ready, self._paused
        while True:
            if ready or self._stopping:
                self._turns += 1
                if self._turns > _TURNS_MAX:
                    raise SimulationStuckError(f"{_TURNS_MAX} turns without any time passing")
            else:
                self._advance()
            timers = self._timers
            if timers and timers[0][0] <= self._now:
                self._take_due()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled or (paused and self._holds_back(handle)):
                    continue
                # What `handle._run` does, without the price of calling it.
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  # as in asyncio
                    self._report(handle, error)
            if self._stopping:
                return

    def _take_due(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timers_cancelled -= 1
            else:
                self._ready.append(timer)

    def _holds_back(self, handle: asyncio.Handle) -> bool:
        host = handle._context.get(HERE, LOCALHOST)  # type: ignore[attr-defined]
        held = self._paused.get(host)
        if held is None:
            return False
        held.append(handle)
        return True

    def _report(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    def _advance(self) -> None:
        timers = self._timers
        if len(timers) > _TIMERS_MIN and self._timers_cancelled * 2 > len(timers):
            self._timers = timers = [entry for entry in timers if not entry[2].cancelled()]
            heapify(timers)
            self._timers_cancelled = 0
        while timers and timers[0][2]._cancelled:
            heappop(timers)[2]._scheduled = False  # type: ignore[attr-defined]
            self._timers_cancelled -= 1
        if not timers:
            raise SimulationStuckError(
                "everything waits and nothing is to come: " + _list_tasks(self._pending())
            )
        self._turns = 0
        self._now = max(self._now, timers[0][0])
        if self._now > self._end:
            raise SimulationStuckError(
                f"not over after {self._now - START_S:.0f} virtual seconds: "
                + _list_tasks(self._pending())
            )

    # --- network ------------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        start_serving: bool = True,
        **_options: object,
    ) -> SimServer:
        """Listen on a port of the caller's host."""
        _refuse_unknown(ssl, sock)
        server = self.network.listen(protocol_factory, host, port)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_options: object,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Dial a host and port of the simulated network."""
        _refuse_unknown(ssl, sock)
        if host is None or port is None:
            raise ValueError("host and port must be said")
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | None, port: int | str | None, **_options: object
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Every name is its own address."""
        address = (host or "127.0.0.1", int(port or 0))
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    # --- threads and signals --------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a call inline, at a moment drawn from the seed.

        Raises:
            RuntimeError: the executor is shut down.
        """
        if getattr(executor, "_shutdown", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        threads = self._threads.get(executor)
        if threads is None:
            threads = Threads(self, executor, self._threads_rng, self.dials)
            self._threads[executor] = threads
        return threads.submit(func, *args)

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector here, so nobody has to be woken."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """No signal ever comes."""

    def remove_signal_handler(self, _sig: int) -> bool:
        """No signal ever comes."""
        return False

    # --- the end of a run -----------------------------------------------------------------------

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember an exception that nobody took; the run has failed."""
        error = context.get("exception")
        self.unhandled.append(f"{context.get('message')}: {error!r}")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, then see that nothing of it is left.

        Raises:
            WorldFailedError: a task is still pending, an exception or a coroutine was dropped.
            SimulationStuckError: it can never end.
        """
        with _unawaited(self.unhandled):
            is_clean = False
            try:
                result = self.run_until_complete(main)
                is_clean = True
            finally:
                pending = self._pending()
                left = _list_tasks(pending)
                self._sweep(pending)
                if is_clean and pending:
                    raise WorldFailedError(f"tasks left behind: {left}")
        for reference in self._tasks:
            task = reference()
            if task is not None and task._log_traceback:
                self.unhandled.append(f"nobody took the exception of {task!r}")
                task.exception()
        if self.unhandled:
            raise WorldFailedError("; ".join(self.unhandled))
        return result

    def _pending(self) -> list[asyncio.Task[Any]]:
        tasks = (reference() for reference in self._tasks)
        return [task for task in tasks if task is not None and not task.done()]

    def _sweep(self, pending: list[asyncio.Task[Any]]) -> None:
        for task in pending:
            task.cancel()
        self._end = self._now + HORIZON_S
        if pending:
            self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int | str = 0,
    dials: Dials = CALM,
    note: Note = forget,
    horizon_s: float = HORIZON_S,
) -> T:
    """Run a coroutine on a fresh loop: ``asyncio.run``, as a function of a seed.

    Raises:
        WorldFailedError: it left something behind.
        SimulationStuckError: it can never end.
    """
    loop = SimLoop(seed, dials=dials, note=note, horizon_s=horizon_s)
    try:
        return loop.run(main)
    finally:
        loop.close()


def sim_loop() -> SimLoop:
    """The simulated loop the caller runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def _make_task(loop: SimLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> SimTask:
    loop._tasks_made += 1
    task = SimTask(coro, number=loop._tasks_made, loop=loop, **options)
    loop._tasks.append(weakref.ref(task))
    return task


def _list_tasks(tasks: list[asyncio.Task[Any]]) -> str:
    return ", ".join(f"{task.get_name()} {task.get_coro()!r}" for task in tasks) or "no task"


def _refuse_unknown(ssl: object, sock: object) -> None:
    if ssl or sock:
        raise NotImplementedError("the simulated network knows neither TLS nor ready-made sockets")


@contextmanager
def _unawaited(found: list[str]) -> Iterator[None]:
    """Collect what only a finaliser can report: coroutines that were never awaited."""

    def collect(unraisable: sys.UnraisableHookArgs) -> None:
        found.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")

    before = sys.unraisablehook
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "coroutine .* was never awaited", RuntimeWarning)
        sys.unraisablehook = collect
        try:
            yield
        finally:
            sys.unraisablehook = before


__all__ = [
    "SimLoop",
    "SimulationStuckError",
    "WorldFailedError",
    "on_host",
    "run",
    "sim_loop",
    "this_host",
]
