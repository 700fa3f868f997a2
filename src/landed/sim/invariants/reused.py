"""Is "this key is used for another request" said only of keys that were?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.commands import KeyReused
from landed.sim.history import History


def key_reused_is_said_of_reused_keys(history: History) -> Iterator[str]:
    """A caller that used its key for one wish only is never told otherwise (rules SW-80, SW-81)."""
    for call in history.calls:
        if not isinstance(call.outcome, KeyReused):
            continue
        event_id = call.request.event_id
        wishes = {other.request.order for other in history.calls_of(event_id)}
        if len(wishes) == 1:
            yield f"call {call.number} was told that its key is used, and nobody else used it"
