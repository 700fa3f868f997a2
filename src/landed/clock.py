"""What time it is: wall time for stamps, monotonic time for lifetimes and deadlines.

Floor 0. Nothing below the engines asks a clock; it is handed in, so that the simulator can hand in
its own.
"""

from __future__ import annotations

import threading
import time
from typing import Final, NewType, Protocol

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970, by some host's idea of the time. Only fit to be stored and shown."""

MonotonicMs = NewType("MonotonicMs", float)
"""Milliseconds on a clock that never goes back. Only fit to be compared within one process."""


class Clock(Protocol):
    """Tell the time. Two numbers of different types, so that nobody subtracts one from the other."""

    def wall_ms(self) -> WallMs: ...

    def monotonic_ms(self) -> MonotonicMs: ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def wall_ms(self) -> WallMs:
        return WallMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(time.monotonic_ns() / 1_000_000)


class ServerTime:
    """Stamp accepted records: the wall clock at start, moved on by the monotonic clock.

    A step of the wall clock while the server runs is thus never seen, and a stamp is never below
    the last one given or the last one stored (design decision 10). Stamps still do not define
    order: versions do.
    """

    __slots__ = ("_clock", "_last", "_start_monotonic", "_start_wall")

    def __init__(self, clock: Clock, *, not_below: WallMs) -> None:
        self._clock = clock
        self._start_wall = clock.wall_ms()
        self._start_monotonic = clock.monotonic_ms()
        self._last = not_below

    def stamp(self) -> WallMs:
        """Return milliseconds since 1970, at or above every stamp given before."""
        now = int(self._start_wall + (self._clock.monotonic_ms() - self._start_monotonic))
        if now > self._last:
            self._last = WallMs(now)
        return self._last


STEP_US: Final = 1_000_000
"""A wall clock that lost more than this against the monotonic one was put back; less is drift."""


class LedgerTime:
    """The wall clock, except that it never goes back: then it goes on by the monotonic clock (SQ-18).

    It must go on, or what is due a second later would wait until the wall clock has caught up. Threads
    may share it.
    """

    __slots__ = ("_anchor_ms", "_anchor_us", "_clock", "_last_us", "_lock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last_us = self._anchor_us = int(clock.wall_ms()) * 1000
        self._anchor_ms = clock.monotonic_ms()

    def now_us(self) -> int:
        """Microseconds since 1970, at or above whatever it said before."""
        with self._lock:
            wall_us = int(self._clock.wall_ms()) * 1000
            passed_ms = self._clock.monotonic_ms() - self._anchor_ms
            own_us = self._anchor_us + int(passed_ms * 1000)
            if wall_us >= own_us - STEP_US:
                self._last_us = max(self._last_us, wall_us)
                self._anchor_us, self._anchor_ms = self._last_us, self._clock.monotonic_ms()
            else:
                self._last_us = max(self._last_us, own_us)
            return self._last_us

    def not_below(self, stored_us: int) -> int:
        """Go on from a time that was stored before; returns how far the wall clock is behind it."""
        behind_us = stored_us - self.now_us()
        if behind_us > 0:
            with self._lock:
                self._last_us = self._anchor_us = max(stored_us, self._last_us)
                self._anchor_ms = self._clock.monotonic_ms()
        return max(0, behind_us)
