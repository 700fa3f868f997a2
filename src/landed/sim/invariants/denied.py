"""Is there no event where callers were told that nothing was applied?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from landed.commands import Applied
from landed.ids import AggregateKey, EventId
from landed.sim.history import Call, History

_Sent = tuple[Any, Any]
"""An event id, and what a write with it insists on: for each leg its key, guard and sequence."""


def what_is_not_applied_has_no_event(history: History) -> Iterator[str]:
    """If every call made under an event id ended "not applied", nothing of it is in the log.

    An outcome speaks of the attempts of its own call, so one call that was cut off, that succeeded
    or that nobody can speak for excuses the event (rules SW-32, SW-33). So does a pool that sends
    again by itself: a loop that only hears how the second copy was refused cannot know of the first.
    """
    for event_id in {request.event_id: None for request in history.requests}:
        calls = history.calls_of(event_id)
        if not all(_is_denied(call) for call in calls):
            continue
        for key in history.truth.batches:
            for batch in history.landed(key, event_id):
                yield (
                    f"all {len(calls)} calls of event id {event_id} were told 'not applied', but it "
                    f"is version {batch.version} of {history.names[key]}"
                )


def a_call_told_not_applied_did_not_land(history: History) -> Iterator[str]:
    """Of a call that ended "not applied" no write is in the log, whatever later calls are told.

    A write is known by its event id, guards and sequences. One that another call handed over as well,
    or that was sent again behind the caller's back, may be there on their account (SW-32, SW-33).
    """
    denied: dict[object, Call] = {call.number: call for call in history.calls if _is_denied(call)}
    senders: defaultdict[_Sent, set[object]] = defaultdict(set)
    for entry in history.entries:
        if entry.what in {"log.write", "log.again"}:
            sender = entry.fields["call"] if entry.what == "log.write" else None
            senders[entry.fields["event_id"], entry.fields["legs"]].add(sender)
    for (event_id, legs), calls in senders.items():
        call = denied.get(next(iter(calls)))
        if len(calls) > 1 or call is None:
            continue
        # Every leg: another attempt may have shared one of them and differ in the next.
        if all(_is_there(history, event_id, *leg) for leg in legs):
            at = ", ".join(
                f"of {history.names[key]} behind version {guard}" for key, guard, _ in legs
            )
            yield f"call {call.number} was told 'not applied', but its write is there: {at}"


def _is_there(
    history: History, event_id: EventId, key: AggregateKey, guard: int | None, client_seq: int
) -> bool:
    return any(
        guard in (None, batch.version - 1) and batch.events[0].client_seq == client_seq
        for batch in history.landed(key, event_id)
    )


def _is_denied(call: Call) -> bool:
    """Whether a call that nothing was done behind was told that it changed nothing."""
    outcome = call.outcome
    return not call.is_resent and outcome is not None and outcome.applied is Applied.NOT_APPLIED
