"""Does a request's event land at most once on each of its targets?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from landed.sim.history import History


def a_request_lands_at_most_once(history: History) -> Iterator[str]:
    """Within the window, one event id changes each account at most once (rule SW-6).

    Callers never call after the window they were promised, so no repetition is excused.
    """
    for key, batches in history.truth.batches.items():
        versions: Counter[object] = Counter()
        for batch in batches:
            if batch.client_id == history.service:
                for event in batch.events:
                    versions[event.event_id] += 1
        for event_id, count in versions.items():
            if count > 1:
                yield f"event id {event_id} landed {count} times on {history.names[key]}"
