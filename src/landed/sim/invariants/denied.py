"""Is there no event where callers were told that nothing was applied?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.commands import Applied
from landed.sim.history import History


def what_is_not_applied_has_no_event(history: History) -> Iterator[str]:
    """If every call made under an event id ended "not applied", nothing of it is in the log.

    An outcome speaks of the attempts of its own call, so one call that was cut off, that succeeded
    or that nobody can speak for excuses the event (rules SW-32, SW-33). So does a pool that sends
    again by itself: a loop that only hears how the second copy was refused cannot know of the first.
    """
    for event_id in {request.event_id: None for request in history.requests}:
        calls = history.calls_of(event_id)
        if any(
            call.outcome is None
            or call.is_resent
            or call.outcome.applied is not Applied.NOT_APPLIED
            for call in calls
        ):
            continue
        for key in history.truth.batches:
            for batch in history.landed(key, event_id):
                yield (
                    f"all {len(calls)} calls of event id {event_id} were told 'not applied', but it "
                    f"is version {batch.version} of {history.names[key]}"
                )
