"""Does the feed tell every change once, in an order that agrees with each account's?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.ids import AggregateKey
from landed.log import Batch
from landed.sim.history import History


def the_feed_agrees_with_the_log(history: History) -> Iterator[str]:
    """Positions rise, and the batches told of an account are its batches, in their order."""
    position = 0
    told: dict[AggregateKey, list[Batch | None]] = {key: [] for key in history.truth.batches}
    for entry in history.truth.feed:
        if entry.position <= position:
            yield f"feed position {entry.position} comes after {position}"
        position = entry.position
        if entry.key in told:  # beds are trimmed and deleted, and judged entry by entry
            told[entry.key].append(entry.batch)
    for key, batches in history.truth.batches.items():
        if told[key] != list(batches):
            yield f"the feed tells {len(told[key])} batches of {history.names[key]} otherwise"
