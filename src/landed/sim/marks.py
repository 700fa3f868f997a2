"""Which interesting states a world went through: coverage that a reader can judge.

A seed that finds nothing proves little if it never came near a fault. A mark that no seed reaches
is a hole in the explorer, and a test fails on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from landed.commands import Done, How
from landed.sim.history import Entry, History

_OF_ENTRIES: Final[dict[str, Callable[[Entry], bool]]] = {
    "unknown outcome": lambda e: e.what == "log.wrote" and e.fields["answer"] == "OutcomeUnknown",
    "conflict (2003)": lambda e: e.what == "log.wrote" and e.fields["answer"] == "VersionConflict",
    "taken (2002)": lambda e: e.what == "log.wrote" and e.fields["answer"] == "SequenceTaken",
    "in flight (2013)": lambda e: (
        e.what == "log.wrote" and e.fields["answer"] == "SequenceInFlight"
    ),
    "taken: ours": lambda e: e.what == "log.asked_owner" and e.fields["owner"] == "ours",
    "taken: a sibling's": lambda e: e.what == "log.asked_owner" and e.fields["owner"] == "sibling",
    "taken: unwritten": lambda e: e.what == "log.asked_owner" and e.fields["owner"] == "unwritten",
    "flush failed": lambda e: e.what == "lane.flush_failed",
    "group of several": lambda e: e.what == "lane.committed" and e.fields["changes"] > 1,  # type: ignore[operator]
    "lost before": lambda e: e.what == "net.lost_before",
    "lost after": lambda e: e.what == "net.lost_after",
    "reset": lambda e: e.what == "net.reset",
    "half closed": lambda e: e.what == "net.half_closed",
    "dial refused": lambda e: e.what == "net.refused",
    "dial unanswered": lambda e: e.what == "net.deaf",
    "wall clock stepped": lambda e: e.what == "disturb.wall_step",
    "connections reset": lambda e: e.what == "disturb.reset_host",
    "replica restarted": lambda e: e.what == "replica.killed",
    "answer unheard": lambda e: e.what == "caller.unheard",
}


def marks_of(history: History) -> Iterator[str]:
    """Every mark a world reached, each once."""
    yield from {
        mark: None
        for entry in history.entries
        for mark, is_reached in _OF_ENTRIES.items()
        if is_reached(entry)
    }
    yield from {_outcome_mark(call.outcome): None for call in history.calls}
    yield from _of_calls(history)
    yield from _of_evictions(history)


def _outcome_mark(outcome: object) -> str:
    if outcome is None:
        return "outcome: cut off"
    if isinstance(outcome, Done):
        return f"outcome: done, {outcome.how.value}"
    return f"outcome: {type(outcome).__name__}"


def _of_calls(history: History) -> Iterator[str]:
    is_original_elsewhere = is_twice = False
    for call in history.calls:
        others = [other for other in history.calls_of(call.request.event_id) if other is not call]
        if call.done is not None and call.done.how is How.ORIGINAL and not call.writes:
            is_original_elsewhere |= all(
                other.replica != call.replica for other in others if other.writes
            )
        is_twice |= any(
            other.began_at < (call.ended_at or 0.0) and call.began_at < (other.ended_at or 0.0)
            for other in others
        )
    if is_original_elsewhere:
        yield "original answer on the other replica"
    if is_twice:
        yield "two calls of one request at once"


def _of_evictions(history: History) -> Iterator[str]:
    """An account is folded from its beginning by a replica that had folded it before."""
    folded: dict[tuple[str, object], int] = {}
    for entry in history.entries:
        if entry.what == "replica.killed":
            folded = {at: since for at, since in folded.items() if at[0] != entry.host}
        elif entry.what == "log.read" and entry.fields.get("versions"):
            at = (entry.host, entry.fields["key"])
            since = entry.fields["since"]
            assert isinstance(since, int)
            if since == 1 and at in folded:
                yield "account evicted and folded again"
                return
            folded[at] = since


ALL_MARKS: Final[tuple[str, ...]] = (
    *_OF_ENTRIES,
    "outcome: cut off",
    "outcome: done, fresh",
    "outcome: done, original",
    "outcome: done, rebuilt",
    "outcome: Rejected",
    "outcome: KeyReused",
    "outcome: Conflicted",
    "outcome: Unresolved",
    "outcome: Unavailable",
    "original answer on the other replica",
    "two calls of one request at once",
    "account evicted and folded again",
)
"""Every mark there is, for a table that also shows what was not reached."""
