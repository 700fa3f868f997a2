"""Changes that were taken but not admitted yet, and how much is queued in all."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from landed.engines.group import Group, size_of_change
from landed.engines.port import Done
from landed.limits import Limits
from landed.log import Mutation


class Arrival(NamedTuple):
    """A change whose turn to be judged has not come."""

    change: Mutation
    done: Done
    is_again: bool
    """It was judged before, on something in flight that has settled since (log rule W19)."""


class Arrivals:
    """The order of arrival where it has to wait, and the bounds on everything that waits.

    Counted are changes that wait for a lookup, changes that wait for a flush to be judged again,
    and admitted changes that are not durable yet.
    """

    __slots__ = ("_bytes_max", "_count_max", "bytes", "count", "waiting")

    def __init__(self, limits: Limits) -> None:
        self._count_max = limits.queued_writes_max
        self._bytes_max = limits.queued_bytes_max
        self.count = 0
        self.bytes = 0
        self.waiting: deque[Arrival] = deque()
        """For a lookup, first come first."""

    def is_full(self) -> bool:
        """Whether the next change is answered with busy."""
        return self.count >= self._count_max or self.bytes >= self._bytes_max

    def wait(self, arrival: Arrival) -> None:
        """Queue a change behind everyone who waits."""
        self.waiting.append(arrival)
        self._count(arrival.change)

    def take(self) -> Arrival:
        """Take out whose turn it is."""
        arrival = self.waiting.popleft()
        self._uncount(arrival.change)
        return arrival

    def take_all(self) -> list[Arrival]:
        """Take out everyone, in order."""
        return [self.take() for _ in range(len(self.waiting))]

    def put_off(self, change: Mutation, done: Done, group: Group) -> None:
        """Have a change judged again when a group has settled."""
        group.judged_again.append((change, done))
        self._count(change)

    def bring_back(self, group: Group) -> list[Arrival]:
        """Take out what was put off until a group has settled."""
        for change, _ in group.judged_again:
            self._uncount(change)
        return [Arrival(change, done, True) for change, done in group.judged_again]

    def _count(self, change: Mutation) -> None:
        self.count += 1
        self.bytes += size_of_change(change)

    def _uncount(self, change: Mutation) -> None:
        self.count -= 1
        self.bytes -= size_of_change(change)
