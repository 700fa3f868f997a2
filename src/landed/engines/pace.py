"""How long commits have taken lately, and so whether the next one is worth a hand-over."""

from __future__ import annotations

from typing import Final

UNKNOWN_MS: Final = 100.0
"""What a commit is taken for before any was measured."""
FORGETS: Final = 0.8
"""Of a slow commit so much is remembered after the next one: after a second of stalling some thirty
fast ones have to follow."""


class Pace:
    """The longest of the latest commits, the older ones fading.

    Written by whoever commits, one at a time, and read by the loop.
    """

    __slots__ = ("_limit_ms", "recent_ms")

    def __init__(self, limit_ms: float) -> None:
        """``limit_ms``: below it a commit is fast; 0: none is."""
        self._limit_ms = limit_ms
        self.recent_ms = UNKNOWN_MS

    @property
    def is_fast(self) -> bool:
        """Whether a commit takes less time than it would keep others waiting."""
        return self.recent_ms < self._limit_ms

    def took(self, ms: float) -> None:
        """Take in how long a commit took."""
        self.recent_ms = max(ms, self.recent_ms * FORGETS)
