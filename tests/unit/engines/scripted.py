"""A store in memory that notes what the lane asks of it, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from landed.clock import SystemClock
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.engines.port import Staged, Stored
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import FeedPage, FeedRead, Head, Page, Read


class ScriptedStore(MemoryStore):
    """Calls in the order in which they came, and one error a kind of call to raise next."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits, log_id=UUID(int=1))
        self.loads: list[tuple[list[AggregateKey], list[tuple[AggregateKey, ClientId]]]] = []
        self.commits: list[list[Staged]] = []
        self.reads: list[Read] = []
        self.fail: dict[str, BaseException] = {}
        """What the next call of a name raises, instead of doing anything."""
        self.damaged: set[AggregateKey] = set()
        """What no lookup can read."""
        self.lose_answer: BaseException | None = None
        """What the next commit raises after it has stored everything."""

    def _maybe_fail(self, name: str) -> None:
        error = self.fail.pop(name, None)
        if error is not None:
            raise error

    def open(self) -> tuple[int, int]:
        self._maybe_fail("open")
        return super().open()

    def load(
        self, keys: Sequence[AggregateKey], pairs: Sequence[tuple[AggregateKey, ClientId]]
    ) -> Stored:
        self.loads.append((list(keys), list(pairs)))
        self._maybe_fail("load")
        for key in [*keys, *(key for key, _ in pairs)]:
            if key in self.damaged:
                raise StorageDamagedError(f"the head of {key} is damaged")
        return super().load(keys, pairs)

    def commit(self, group: Sequence[Staged]) -> None:
        self.commits.append(list(group))
        self._maybe_fail("commit")
        super().commit(group)
        error, self.lose_answer = self.lose_answer, None
        if error is not None:
            raise error

    def read(self, read: Read, head: Head, budget: int) -> Page:
        self.reads.append(read)
        self._maybe_fail("read")
        return super().read(read, head, budget)

    def feed(self, read: FeedRead, budget: int) -> FeedPage:
        self._maybe_fail("feed")
        return super().feed(read, budget)

    def reclaim(self) -> int:
        self._maybe_fail("reclaim")
        return super().reclaim()

    def close(self) -> None:
        self._maybe_fail("close")
        super().close()


class Facts:
    """A note that keeps the names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, fields: object) -> None:
        self.names.append(name)


async def open_scripted(
    limits: Limits | None = None, *, store: ScriptedStore | None = None, facts: Facts | None = None
) -> tuple[Lane, ScriptedStore]:
    limits = limits or Limits()
    store = store or ScriptedStore(limits)
    lane = Lane(store, limits=limits, clock=SystemClock(), note=facts or Facts())
    await lane.open()
    return lane, store
