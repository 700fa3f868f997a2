"""Does a transfer land on both accounts or on neither?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.accounts.domain import Transfer, decode
from landed.sim.history import History


def a_transfer_lands_whole(history: History) -> Iterator[str]:
    """A write of two legs is all or nothing (log rule M1; rule SW-83)."""
    for request in history.requests:
        if not isinstance(request.order, Transfer):
            continue
        legs = [
            sum(
                decode(event).other == other
                for batch in history.landed(key, request.event_id)
                for event in batch.events
            )
            for key, other in zip(
                request.targets, (request.order.target, request.order.source), strict=True
            )
        ]
        if legs[0] != legs[1]:
            yield f"request {request.number} landed {legs[0]} times out and {legs[1]} times in"
