"""Is every answered success of a user's own command in the log, at the version it was told?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.commands import How
from landed.sim.history import History


def every_success_is_at_its_version(history: History) -> Iterator[str]:
    """A success speaks of events that carry its key, on each of its targets, at that version."""
    for call in history.calls:
        done = call.done
        if done is None:
            continue
        for key, version in zip(call.request.targets, done.versions, strict=True):
            landed = [batch.version for batch in history.landed(key, call.request.event_id)]
            told = f"call {call.number} told version {version} of {history.names[key]}"
            if not landed:
                yield f"{told}, but no event of request {call.request.number} is in the log"
            elif done.how is not How.REBUILT and version != landed[0]:
                yield f"{told}, but the event is at version {landed[0]}"


def a_command_lands_whole(history: History) -> Iterator[str]:
    """A command on several aggregates changes all of them or none (log rule M1; rule SW-83)."""
    for request in history.requests:
        counts = {len(history.landed(key, request.event_id)) for key in request.targets}
        if len(counts) > 1:
            yield f"request {request.number} landed on some of its targets and not on others"


def the_subject_is_sound(history: History) -> Iterator[str]:
    """What the user says must hold of the log at the end."""
    if history.subject is not None:
        yield from history.subject.check(history.truth.batches)
