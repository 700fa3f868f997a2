"""What the latest commits say of the next one: is it worth a hand-over, and are more coming for it."""

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


class Company:
    """Whether those who shared the last flush are still arriving for the next one.

    Who was answered together asks again together, but over several turns of the loop: a group that
    began with the first of them would leave the others to a second flush. So it waits on while each
    turn brings somebody, until it is as large as the last one. After a lone write that is at once,
    and never longer than one turn without anybody (log rule C4).
    """

    __slots__ = ("_seen", "last_count")

    def __init__(self) -> None:
        self.last_count = 0
        """Changes in the last group."""
        self._seen = 0

    def begin(self) -> None:
        """A group forms."""
        self._seen = 0

    def is_arriving(self, count: int) -> bool:
        """Whether to wait one more turn, with so many changes in the group."""
        brings_more = count > self._seen
        self._seen = count
        return brings_more and count < self.last_count
