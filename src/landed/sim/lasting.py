"""A projection in memory that sees to it that no answer it keeps is given up earlier than was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from landed.clock import Clock
from landed.ids import AggregateKey
from landed.projections import MemoryProjection
from landed.projections.port import Advance
from landed.sim.history import History


class LastingProjection(MemoryProjection[int]):
    """Note it as a violation if the life of an answer is shortened (rule SW-53)."""

    def __init__(self, history: History, *, aggregates_max: int, clock: Clock) -> None:
        super().__init__(aggregates_max=aggregates_max, clock=clock)
        self._history = history

    async def advance(self, step: Advance[int], /) -> bool:
        """See ``Projection.advance``."""
        before = self._lives([step.key])
        is_taken = await super().advance(step)
        self._compare(before, [step.key])
        return is_taken

    async def record(self, steps: Sequence[Advance[int]], /) -> None:
        """See ``Projection.record``."""
        keys = [step.key for step in steps]
        before = self._lives(keys)
        await super().record(steps)
        self._compare(before, keys)

    def _lives(self, keys: Iterable[AggregateKey]) -> dict[tuple[AggregateKey, int], float]:
        return {
            (key, event_id): kept.expires_at_ms
            for key in keys
            if (aggregate := self._aggregates.get(key)) is not None
            for event_id, kept in aggregate.answers.items()
        }

    def _compare(
        self, before: dict[tuple[AggregateKey, int], float], keys: Iterable[AggregateKey]
    ) -> None:
        for name, until in self._lives(keys).items():
            if until < before.get(name, 0.0):
                lost_ms = before[name] - until
                self._history.broken.append(f"an answer of {name[0]} is kept {lost_ms:.0f} ms less")
