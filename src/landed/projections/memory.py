"""A projection in the memory of one process: every replica folds the log itself."""

from __future__ import annotations

from typing import Generic, TypeVar

from landed.clock import Clock, SystemClock

S = TypeVar("S")


class MemoryProjection(Generic[S]):
    """At most ``aggregates_max`` aggregates, the least recently used evicted first."""

    def __init__(self, *, aggregates_max: int = 100_000, clock: Clock | None = None) -> None:
        self._aggregates_max = aggregates_max
        self._clock = clock or SystemClock()
