"""A projection in the memory of one process: every replica folds the log itself.

Everything here runs without an ``await`` between looking at an aggregate and changing it, so the
event loop is the only lock (rule SW-60). N worker processes are N replicas (rule SW-59).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID

from landed.clock import Clock, SystemClock
from landed.ids import AggregateKey, EventId
from landed.projections.port import Advance, Domain, Entry, View
from landed.projections.window import Kept, merge

S = TypeVar("S")

AGGREGATES_MAX: Final = 100_000
"""Some 100 MB with small states; what is evicted is folded again when it is touched."""
_SWEEP_MIN: Final = 64
"""Answers below which expired ones are not worth looking for."""


class _Aggregate(Generic[S]):
    """One folded aggregate: its cursor and its answers, which live and go together."""

    __slots__ = (
        "answers",
        "client_seq",
        "client_seq_floor",
        "newest_ms",
        "state",
        "sweep_at",
        "version",
    )

    def __init__(self, state: S) -> None:
        self.state = state
        """Means nothing while the version is 0."""
        self.version = 0
        self.client_seq = 0
        self.client_seq_floor = 0
        self.newest_ms = 0
        self.answers: dict[int, Kept[S]] = {}
        """By the event id's number: a UUID hashes in Python, a number does not."""
        self.sweep_at = _SWEEP_MIN

    def keep(self, entries: Iterable[Entry[S]], now_ms: float) -> None:
        """Keep answers, and now and then drop the expired ones (rule SW-64).

        Now and then, so that an aggregate with a hundred thousand open windows is not walked for
        each write.
        """
        for event_id, answered, life_ms in entries:
            known = self.answers.get(event_id.int)
            kept = Kept(answered, now_ms + life_ms)
            self.answers[event_id.int] = kept if known is None else merge(known, kept)
        if len(self.answers) >= self.sweep_at:
            self.answers = {i: k for i, k in self.answers.items() if k.expires_at_ms > now_ms}
            self.sweep_at = max(_SWEEP_MIN, 2 * len(self.answers))

    def move(self, step: Advance[S]) -> None:
        self.state = step.state
        self.version = step.version
        self.client_seq = max(self.client_seq, step.client_seq)
        self.newest_ms = max(self.newest_ms, step.newest_ms)


class MemoryProjection(Generic[S]):
    """Hold at most ``aggregates_max`` aggregates, the least recently used going first.

    An aggregate is evicted whole, with its answers; when it is touched again it is folded from the
    start, which finds them again (rule SW-63). Implements ``Projection``.
    """

    def __init__(self, *, aggregates_max: int = AGGREGATES_MAX, clock: Clock | None = None) -> None:
        if aggregates_max < 1:
            raise ValueError("aggregates_max must be at least 1")
        self._aggregates_max = aggregates_max
        self._clock = clock or SystemClock()
        self._aggregates: OrderedDict[AggregateKey, _Aggregate[S]] = OrderedDict()
        self._log: tuple[UUID, int] | None = None

    def __len__(self) -> int:
        """How many aggregates are held now."""
        return len(self._aggregates)

    async def load(
        self, keys: Sequence[AggregateKey], event_id: EventId | None, domain: Domain[S], /
    ) -> tuple[View[S], ...]:
        """See ``Projection.load``."""
        return tuple([self._view(key, event_id, domain) for key in keys])

    async def advance(self, step: Advance[S], /) -> bool:
        """See ``Projection.advance``."""
        aggregate = self._aggregates.get(step.key)
        if aggregate is None:
            if step.base:
                return False
            aggregate = self._admit(step)
        elif aggregate.version < step.base:
            return False
        aggregate.keep(step.entries, self._clock.monotonic_ms())
        if step.version > aggregate.version:
            aggregate.move(step)
        return True

    async def record(self, steps: Sequence[Advance[S]], /) -> None:
        """See ``Projection.record``."""
        now_ms = self._clock.monotonic_ms()
        for step in steps:
            aggregate = self._aggregates.get(step.key)
            if aggregate is None:
                if step.base:
                    # Evicted meanwhile: the fold from the start will find this answer again.
                    continue
                aggregate = self._admit(step)
            aggregate.keep(step.entries, now_ms)
            if aggregate.version == step.base and step.version == step.base + 1:
                aggregate.move(step)

    async def raise_floor(self, key: AggregateKey, client_seq: int, /) -> None:
        """See ``Projection.raise_floor``."""
        aggregate = self._aggregates.get(key)
        if aggregate is not None:
            aggregate.client_seq_floor = max(aggregate.client_seq_floor, client_seq)

    async def meet(self, *, log_id: UUID, restore_epoch: int) -> None:
        """See ``Projection.meet``. Another log than before: forget everything and fold again."""
        if self._log is not None and self._log != (log_id, restore_epoch):
            self._aggregates.clear()
        self._log = (log_id, restore_epoch)

    def _view(self, key: AggregateKey, event_id: EventId | None, domain: Domain[S]) -> View[S]:
        aggregate = self._aggregates.get(key)
        if aggregate is None:
            return View(key, domain.initial(key), 0, 0, 0, 0, None)
        self._aggregates.move_to_end(key)
        kept = None if event_id is None else aggregate.answers.get(event_id.int)
        if kept is not None and kept.expires_at_ms <= self._clock.monotonic_ms():
            kept = None
        return View(
            key,
            aggregate.state if aggregate.version else domain.initial(key),
            aggregate.version,
            aggregate.client_seq,
            aggregate.client_seq_floor,
            aggregate.newest_ms,
            None if kept is None else kept.answered,
        )

    def _admit(self, step: Advance[S]) -> _Aggregate[S]:
        aggregate = self._aggregates[step.key] = _Aggregate(step.state)
        if len(self._aggregates) > self._aggregates_max:
            self._aggregates.popitem(last=False)
        return aggregate
