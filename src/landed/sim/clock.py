"""A host's clocks, driven by the loop's virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from landed.clock import MonotonicMs, WallMs

START_WALL_MS: Final = 1_700_000_000_000
"""What every wall clock says when a world begins: a plausible date, always the same."""


class HostClock:
    """The two clocks of one host. Its wall time can step; its monotonic time cannot."""

    __slots__ = ("_now", "_offset_ms")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._offset_ms = 0

    def wall_ms(self) -> WallMs:
        """Milliseconds since 1970, by this host's idea of it."""
        return WallMs(START_WALL_MS + int(self._now() * 1000) + self._offset_ms)

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds of virtual time."""
        return MonotonicMs(self._now() * 1000)

    def step_wall(self, by_ms: int) -> None:
        """Move the wall clock, forwards or back, as an operator or a time server would."""
        self._offset_ms += by_ms
