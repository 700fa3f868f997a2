"""Does a retried request get its original answer?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.commands import How
from landed.sim.history import Call, History, Request


def a_retry_gets_the_original_answer(history: History) -> Iterator[str]:
    """Within the window every completed call of one request says the same, on any replica (SW-6).

    Behind the window a scan may still recognise the request; the answer is then rebuilt from a
    later state, and says so (SW-75).

    Once a call was answered with a success, no later call may be told anything final but that
    success: a landed withdrawal is never answered "insufficient funds" (SW-29).
    """
    for request in history.requests:
        yield from _of_one(history, request)


def _of_one(history: History, request: Request) -> Iterator[str]:
    first = None
    for call in sorted(history.calls, key=lambda call: call.ended_at or 0.0):
        if call.request is not request or call.outcome is None or call.ended_at is None:
            continue
        done = call.done
        if done is not None and first is None:
            first = call
        elif done is not None and first is not None and first.done is not None:
            if done.results != first.done.results and not _is_excused(history, call):
                yield (
                    f"request {request.number}: call {first.number} was told "
                    f"{first.done.results}, call {call.number} {done.results}"
                )
        elif first is not None and first.ended_at is not None:
            is_later = call.began_at >= first.ended_at
            if is_later and not call.outcome.is_retryable:
                yield (
                    f"request {request.number}: call {first.number} succeeded, "
                    f"but the later call {call.number} was told {call.outcome}"
                )


def _is_excused(history: History, call: Call) -> bool:
    if call.done is None or call.done.how is not How.REBUILT or call.ended_at is None:
        return False
    return call.ended_at > call.request.began_at + history.window_s
