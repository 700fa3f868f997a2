"""A projection that lies elsewhere, as one in a database does: every step takes time.

Others move it between two steps of one call. Perhaps it is shared by all replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from landed.ids import AggregateKey, EventId
from landed.projections.port import Advance, Domain, Projection, View

S = TypeVar("S")


class SlowProjection(Projection[S]):
    """Another projection, with a way to it and a way back."""

    def __init__(self, inner: Projection[S], rng: Random, *, way_s: float) -> None:
        """``way_s``: the longest way, one way."""
        self._inner = inner
        self._rng = rng
        self._way_s = way_s

    async def _go(self) -> None:
        await asyncio.sleep(self._way_s * self._rng.random())

    async def load(
        self, keys: Sequence[AggregateKey], event_id: EventId | None, domain: Domain[S], /
    ) -> tuple[View[S], ...]:
        """See ``Projection.load``."""
        await self._go()
        views = await self._inner.load(keys, event_id, domain)
        await self._go()
        return views

    async def advance(self, step: Advance[S], /) -> bool:
        """See ``Projection.advance``."""
        await self._go()
        is_taken = await self._inner.advance(step)
        await self._go()
        return is_taken

    async def record(self, steps: Sequence[Advance[S]], /) -> None:
        """See ``Projection.record``."""
        await self._go()
        await self._inner.record(steps)
        await self._go()

    async def raise_floor(self, key: AggregateKey, client_seq: int, /) -> None:
        """See ``Projection.raise_floor``."""
        await self._go()
        await self._inner.raise_floor(key, client_seq)

    async def meet(self, *, log_id: UUID, restore_epoch: int) -> None:
        """See ``Projection.meet``."""
        await self._inner.meet(log_id=log_id, restore_epoch=restore_epoch)
