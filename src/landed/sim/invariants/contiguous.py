"""Do the log's own numbers go up without a gap?"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from landed.sim.history import History


def versions_have_no_gap(history: History) -> Iterator[str]:
    """Versions and event_seq count from 1; a client's enforced sequences rise; stamps never fall.

    Source: log rules W9 to W11, I3, C9.
    """
    for key, batches in history.truth.batches.items():
        name = history.names[key]
        event_seq = 0
        last_ms = 0
        highest: dict[UUID, int] = {}
        for expected, batch in enumerate(batches, start=1):
            if batch.version != expected:
                yield f"{name} has version {batch.version} in place of {expected}"
            if batch.server_ms < last_ms:
                yield f"{name} version {expected} is stamped before the one below it"
            last_ms = batch.server_ms
            lowest = min(event.client_seq for event in batch.events)
            if batch.client_id == history.service and lowest <= highest.get(batch.client_id, 0):
                yield f"{name} version {expected} has sequence {lowest} again"
            for event in batch.events:
                event_seq += 1
                if event.event_seq != event_seq:
                    yield f"{name} version {expected} has event_seq {event.event_seq}"
                known = highest.get(batch.client_id, 0)
                highest[batch.client_id] = max(known, event.client_seq)
