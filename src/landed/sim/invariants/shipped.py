"""Does every event of an unguarded writer land once, in its own order?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.sim.history import History
from landed.sim.stranger import CLIENT


def an_unguarded_writer_lands_once(history: History) -> Iterator[str]:
    """Numbers that a writer keeps are enough to make it safe to retry (rules SW-98 to SW-105)."""
    for key, batches in history.truth.batches.items():
        landed = [
            (event.client_seq, event.event_id)
            for batch in batches
            if batch.client_id == CLIENT
            for event in batch.events
        ]
        numbers = [number for number, _ in landed]
        if numbers != sorted(set(numbers)):
            yield f"the stranger's numbers on {history.names[key]} are {numbers}"
        for shipped in history.shipped:
            if shipped.key == key and (shipped.client_seq, shipped.event_id) not in landed:
                yield f"the stranger's event {shipped.client_seq} is not on {history.names[key]}"
