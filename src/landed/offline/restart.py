"""``assert_restart_stable``: kill a worker after every step, and see whether it renumbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from landed.client.embedded import EmbeddedLog
from landed.client.log import Log
from landed.clock import SystemClock
from landed.engines.memory import open_memory
from landed.limits import Limits
from landed.log import Event, FeedRead

Worker = Callable[[Log], Awaitable[None]]
"""One life of a worker: sends everything it still has to send, then returns."""

_STEPS_MAX: Final = 10_000
_FEED_LIMIT: Final = 1_000


class Killed(BaseException):
    """The process ends here: what a kill looks like from within."""


class _Doomed:
    """A log that ends its caller's life at a step: before a call leaves, or before its answer."""

    def __init__(self, log: Log, steps_left: int) -> None:
        self._log = log
        self._left = steps_left
        self.has_killed = False

    def _step(self) -> None:
        if self._left == 0:
            self.has_killed = True
            raise Killed
        self._left -= 1

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._log, name)
        if name not in {"write", "read", "details", "feed"}:
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            self._step()
            answer = await method(*arguments, **options)
            self._step()
            return answer

        return call


async def assert_restart_stable(
    make_world: Callable[[], Callable[[], Worker]],
    *,
    identify: Callable[[Event], object] | None = None,
) -> int:
    """Check that a worker gives each logical event one number, wherever it is killed.

    For every step of its talk with the log, a fresh world is made, the worker is killed there and
    started again, and the log is looked at. (What it does between two steps, it does again.)

    Args:
        make_world: makes fresh durable state with a few events in it, and returns a function that
            starts one life of the worker over that state; what it keeps in memory dies with it.
        identify: what makes two events the same one; the payload unless said otherwise.

    Returns:
        How many places it was killed at.

    Raises:
        AssertionError: an event has two numbers, or is there twice or not at all.

    Source: rule SW-114.
    """
    identify = identify or (lambda event: event.value)
    expected = await _life_and_audit(make_world, identify, None)
    assert expected is not None
    assert expected, "the worker sent nothing: there is nothing to check"
    for steps in range(_STEPS_MAX):
        found = await _life_and_audit(make_world, identify, steps)
        if found is None:
            return steps
        doubled = {name: numbers for name, numbers in found.items() if len(numbers) > 1}
        assert not doubled, f"killed after {steps} steps, events got several numbers: {doubled}"
        missing = expected.keys() - found.keys()
        assert not missing, f"killed after {steps} steps, events are missing: {missing}"
    raise AssertionError(f"the worker does not end within {_STEPS_MAX} steps")


async def _life_and_audit(
    make_world: Callable[[], Callable[[], Worker]],
    identify: Callable[[Event], object],
    steps: int | None,
) -> dict[object, list[int]] | None:
    """Numbers by event after a kill and a restart; None if the worker ended before the kill."""
    log = EmbeddedLog(await open_memory(limits=Limits(), clock=SystemClock()))
    async with log:
        start = make_world()
        if steps is not None:
            doomed: Any = _Doomed(log, steps)
            with suppress(Killed):
                await start()(doomed)
            if not doomed.has_killed:
                return None
        await start()(log)
        found: dict[object, list[int]] = defaultdict(list)
        after = 0
        while True:
            page = await log.feed(FeedRead(after, _FEED_LIMIT))
            for entry in page.entries:
                for event in entry.batch.events if entry.batch else ():
                    found[identify(event)].append(event.client_seq)
            if page.is_at_end:
                return dict(found)
            after = page.next_after
