"""Share both or share neither: a shared cursor with an index of one's own writes twice.

The broken shape cannot be configured; it exists only here, as a patch, to show that these stories
would see it.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from landed.commands import How
from landed.projections import MemoryProjection
from landed.projections.memory import _Aggregate
from tests.stories.fleet import Fleet, StoryProjection, X, done, fleet, key


class _Cursors(dict[Any, Any]):
    """States and cursors that all replicas share."""


class HalfShared(StoryProjection):
    """Folds into shared cursors, and keeps its answers to itself."""

    def __init__(self, shared: _Cursors, inner: MemoryProjection[Any]) -> None:
        super().__init__(inner)
        self._shared = shared

    async def load(self, keys: Any, event_id: Any, domain: Any, /) -> Any:
        for name in keys:
            if name in self._shared:
                mine = self.inner._aggregates.setdefault(name, _Aggregate(None))
                theirs = self._shared[name]
                for field in ("state", "version", "client_seq", "newest_ms"):
                    setattr(mine, field, getattr(theirs, field))
        return await super().load(keys, event_id, domain)

    async def record(self, steps: Any, /) -> None:
        await super().record(steps)
        self._share(steps)

    async def advance(self, step: Any, /) -> bool:
        is_taken = await super().advance(step)
        self._share([step])
        return is_taken

    def _share(self, steps: Any) -> None:
        for step in steps:
            self._shared[step.key] = self.inner._aggregates[step.key]


async def _retry_on_the_other_replica(it: Fleet) -> None:
    a, b = it.replicas
    await a.loop.look(a.key_of(X))
    await b.loop.look(b.key_of(X))
    done(await a.deposit(X, 50, key("K1")))
    it.last = await b.deposit(X, 50, key("K1"))


async def _story_on_half_shared_projections() -> None:
    async with fleet(2) as it:
        shared = _Cursors()
        for replica in it.replicas:
            inner: MemoryProjection[Any] = MemoryProjection(clock=replica.clock)
            replica.use(HalfShared(shared, inner))
        await _retry_on_the_other_replica(it)
        assert done(it.last).how is How.FRESH, "no error fires anywhere"
        assert await it.count(key("K1")) == 2


@pytest.mark.scenario("SWA-75")
async def test_a_half_shared_projection_deposits_twice_and_the_ledger_sees_it() -> None:
    with pytest.raises(AssertionError, match="is written twice"):
        await _story_on_half_shared_projections()


@pytest.mark.scenario("SWA-75")
async def test_a_projection_that_shares_nothing_passes_the_same_story() -> None:
    async with fleet(2) as it:
        await _retry_on_the_other_replica(it)
        assert done(it.last).how is How.ORIGINAL


@pytest.mark.scenario("SWA-75")
def test_no_constructor_takes_cursor_and_answers_apart() -> None:
    assert set(inspect.signature(MemoryProjection).parameters) == {"aggregates_max", "clock"}
