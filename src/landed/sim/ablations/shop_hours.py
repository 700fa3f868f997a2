"""The time of a shop: what its loop lets pass, what a deed lets pass at once, and a clock that errs."""

from __future__ import annotations

import asyncio
from typing import Final

from landed.clock import MonotonicMs, WallMs

BEGAN_MS: Final = 1_800_000_000_000
"""What an exact wall clock says when a world begins."""


class Hours:
    """True time since the world began, seconds, and the clock that the ledger reads.

    Requests, questions and transactions take the loop's own virtual time; a wait is added at once, so
    that nobody polls through it. On SQLite the clock of the ledger is its machine's, for every worker.
    """

    def __init__(self) -> None:
        self._began_s = asyncio.get_running_loop().time()
        self._turned_s = 0.0
        self._error_s = 0.0

    def now_s(self) -> float:
        """True seconds since the world began."""
        return asyncio.get_running_loop().time() - self._began_s + self._turned_s

    def turn(self, seconds: float) -> None:
        """Let time pass at once."""
        self._turned_s += seconds

    def step(self, error_s: float) -> None:
        """Put the ledger's wall clock ahead of the true time by so much; behind it if negative."""
        self._error_s = error_s

    @staticmethod
    def wall_ms_at(at_s: float) -> float:
        """What an exact clock says at a moment, milliseconds since 1970."""
        return BEGAN_MS + at_s * 1000

    def wall_ms(self) -> WallMs:
        """What the ledger's clock says."""
        return WallMs(int(self.wall_ms_at(self.now_s() + self._error_s)))

    def monotonic_ms(self) -> MonotonicMs:
        """True time: what counts how long something takes does not step."""
        return MonotonicMs(self.now_s() * 1000)


class StillClock:
    """Stands where every world begins."""

    def wall_ms(self) -> WallMs:
        """Milliseconds since 1970."""
        return WallMs(BEGAN_MS)

    def monotonic_ms(self) -> MonotonicMs:
        """Milliseconds."""
        return MonotonicMs(0)
