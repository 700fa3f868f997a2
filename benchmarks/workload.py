"""Aggregates to write to, and what the next write to each of them must say."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from landed.ids import AggregateKey
from landed.log import Event, Write

PAYLOAD: Final = b"p" * 160
"""With its numbers an event has some 200 bytes."""
CLIENT: Final = UUID("00000000-0000-4000-8000-00000000c11e")
ORG: Final = UUID("00000000-0000-4000-8000-0000000000b0")
TYPE: Final = UUID(int=1)


def random_id(rng: random.Random) -> UUID:
    """An identity as real ones are: in no order."""
    return UUID(int=rng.getrandbits(128))


class Aggregates:
    """So many aggregates with one writer, each with its version and sequence."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self._rng = random.Random(seed)  # the same keys in every run
        self.keys = [AggregateKey(ORG, TYPE, random_id(self._rng)) for _ in range(count)]
        self.versions = [0] * count

    def write(self, at: int) -> Write:
        """The next write to an aggregate, with every check there is: version and sequence."""
        version = self.versions[at]
        self.versions[at] = version + 1
        event = Event.new(1, PAYLOAD, client_seq=version + 1, event_id=random_id(self._rng))
        return Write.to(self.keys[at], [event], client_id=CLIENT, expected_version=version)

    def some(self, count: int) -> list[Write]:
        """Writes to so many different aggregates, picked at random."""
        return [self.write(at) for at in self._rng.sample(range(len(self.keys)), count)]


@contextmanager
def calm_collector() -> Iterator[None]:
    """Collect as seldom as ``landed serve`` does, for both sides of a ratio alike."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
