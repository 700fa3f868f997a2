"""What a test may do to a flush: hold it, slow it, make it fail. Inert in a real process.

A process is turned by its environment, and only if ``LANDED_TEST=1`` is set:
``LANDED_TEST_SLOW_FLUSH_MS`` is added to every flush, and while the file named by
``LANDED_TEST_FAIL_FLUSH_FILE`` exists the next flush fails and removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from landed.errors import StorageError


class FlushGate:
    """Stands before every flush of one lane."""

    __slots__ = ("_fail_file", "_held", "_is_held", "fails_next", "slow_s")

    def __init__(self, environment: Mapping[str, str]) -> None:
        is_test = environment.get("LANDED_TEST") == "1"
        file = environment.get("LANDED_TEST_FAIL_FLUSH_FILE") if is_test else None
        slow_ms = environment.get("LANDED_TEST_SLOW_FLUSH_MS", "0") if is_test else "0"
        self.slow_s = float(slow_ms or 0) / 1000
        """Added to every flush, in the loop's time: virtual in a simulation."""
        self.fails_next: StorageError | None = None
        """Raised by the next flush instead of committing, once."""
        self._fail_file = Path(file) if file else None
        self._is_held = False
        self._held: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing stands in the way of a flush, so that it need not be asked to begin."""
        return not (self._is_held or self.slow_s)

    def hold(self) -> None:
        """Let no flush begin until ``release``. What is accepted meanwhile stays in flight."""
        self._is_held = True

    def release(self) -> None:
        """Let flushes begin again."""
        self._is_held = False
        held, self._held = self._held, None
        if held is not None:
            held()

    def enter(self, loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> None:
        """Call ``flush`` when it may begin: at once unless a test holds or slows it."""
        if self._is_held:
            self._held = flush
        elif self.slow_s:
            loop.call_later(self.slow_s, flush)
        else:
            flush()

    def raise_if_failing(self) -> None:
        """Fail this flush if a test asked for it. Called where the commit is, on its thread.

        Raises:
            StorageError: nothing of the group was stored.
        """
        error, self.fails_next = self.fails_next, None
        if error is not None:
            raise error
        if self._fail_file is not None and self._fail_file.exists():
            self._fail_file.unlink(missing_ok=True)
            raise StorageError("the flush was made to fail by a test")
