"""A clock that a test turns by hand."""

from __future__ import annotations

from landed.clock import MonotonicMs, SystemClock, WallMs


class Clock:
    """Stands still until it is turned; both of its times then move together.

    Hand it to ``Ledger(clock=...)``. A PostgreSQL database keeps to its own clock all the same.

    Args:
        wall_ms: where it starts, milliseconds since 1970; None: now.
    """

    def __init__(self, wall_ms: int | None = None) -> None:
        self._start_ms = int(SystemClock().wall_ms()) if wall_ms is None else wall_ms
        self._passed_ms = 0.0

    def wall_ms(self) -> WallMs:
        return WallMs(int(self._start_ms + self._passed_ms))

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self._passed_ms)

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._passed_ms += seconds * 1000
