"""How long handlers take, and therefore which handlings may share a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from landed.workers.jobs import Job

GROUP_MAX: Final = 100
"""Handlings in one transaction: enough for its cost to be shared, few enough to do again one by one."""
GROUP_S: Final = 0.25
"""How long the handlers of one group may take: so long do its rows stay locked for others."""
_NEW_WEIGHT: Final = 0.3


class Costs:
    """What handlers took lately, in seconds, by their name."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._meets_known: set[str] = set()

    def add(self, job: Job, seconds: float) -> None:
        """A handler was run."""
        before = self._seconds.get(job.handler.name, seconds)
        self._seconds[job.handler.name] = before + (seconds - before) * _NEW_WEIGHT

    def forget(self, job: Job) -> None:
        """A handler failed: what it takes is unknown, so that its next handling is one by itself."""
        self._seconds.pop(job.handler.name, None)

    def asks_again(self, jobs: Sequence[Job]) -> None:
        """Some of these asked for effects that are known: from now on they are looked for at once."""
        self._meets_known |= {job.handler.name for job in jobs}

    def may_gather(self, jobs: Sequence[Job]) -> bool:
        """Whether what these ask for may be taken for new, until it is written."""
        return len(jobs) > 1 and all(job.handler.name not in self._meets_known for job in jobs)

    def fitting(self) -> int:
        """How many handlings of the slowest handler one group has room for; 0 if none is known."""
        slowest = max(self._seconds.values(), default=GROUP_S)
        return min(GROUP_MAX, int(GROUP_S / max(slowest, GROUP_S / GROUP_MAX)))

    def grouped(self, jobs: Sequence[Job]) -> list[Sequence[Job]]:
        """Put together what is quick, in the order given.

        Alone stays what was tried before, and whatever belongs to a handler of unknown cost.
        """
        groups: list[Sequence[Job]] = []
        open_: list[Job] = []
        left_s = GROUP_S
        for job in jobs:
            cost_s = self._seconds.get(job.handler.name)
            if cost_s is None or job.row.tries or job.claim.claims > 1:
                groups.append([job])
                continue
            if not open_ or cost_s > left_s or len(open_) >= GROUP_MAX:
                open_, left_s = [], GROUP_S
                groups.append(open_)
            open_.append(job)
            left_s -= cost_s
        return groups
