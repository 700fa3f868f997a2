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
    calls = [call for call in history.calls if call.request is request and call.outcome is not None]
    calls.sort(key=lambda call: call.ended_at or 0.0)
    original: Call | None = None
    succeeded: Call | None = None
    for call in calls:
        if call.done is not None:
            succeeded = succeeded or call
            if _is_excused(history, call):
                continue
            original = original or call
            assert original.done is not None
            if call.done.results != original.done.results:
                yield (
                    f"request {request.number}: call {original.number} was told "
                    f"{original.done.results}, call {call.number} {call.done.results}"
                )
        elif succeeded is not None and _is_final(call) and _is_after(call, succeeded):
            yield (
                f"request {request.number}: call {succeeded.number} succeeded, "
                f"but the later call {call.number} was told {call.outcome}"
            )


def _is_final(call: Call) -> bool:
    return call.outcome is not None and not call.outcome.is_retryable


def _is_after(call: Call, earlier: Call) -> bool:
    return earlier.ended_at is not None and call.began_at >= earlier.ended_at


def _is_excused(history: History, call: Call) -> bool:
    if call.done is None or call.done.how is not How.REBUILT or call.ended_at is None:
        return False
    return call.ended_at > call.request.began_at + history.window_s
