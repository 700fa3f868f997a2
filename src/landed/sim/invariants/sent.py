"""Does a write reach the engine at most as often as it was handed to a pool?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from landed.sim.history import History


def a_write_is_sent_at_most_once(history: History) -> Iterator[str]:
    """A pool never sends again what may have been received (pool rule CP-36).

    What is sent again behind the fleet's back is counted as a sending; the fleet asks its pools not
    to wait out a busy node. So every arrival has a sending of its own.
    """
    handed: Counter[object] = Counter()
    for entry in history.entries:
        # Busy is a definite no, after which a pool may ask again (CP-49).
        if entry.what in {"log.write", "log.again", "engine.busy"}:
            handed[entry.fields["legs"], entry.fields["event_id"]] += 1
        elif entry.what == "engine.took":
            write = (entry.fields["legs"], entry.fields["event_id"])
            handed[write] -= 1
            if handed[write] < 0:
                yield f"a write with event id {write[1]} reached the engine once too often"
