"""Does every request get its answer once nothing goes wrong any more?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.sim.history import History


def every_request_ends_in_calm(history: History) -> Iterator[str]:
    """Asked for when nothing is late any more, a request is answered for good, and so is a new one.

    Safety alone is easy: a log that refuses everything has it.
    """
    for call in history.calls:
        if call.is_last and (call.outcome is None or call.outcome.is_retryable):
            yield (
                f"call {call.number} asked for request {call.request.number} when all was calm and "
                f"was told {call.outcome}"
            )
