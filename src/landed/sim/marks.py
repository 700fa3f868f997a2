"""Which interesting states a world went through: coverage that a reader can judge.

A seed that finds nothing proves little if it never came near a fault. A mark that no seed reaches
is a hole in the explorer, and a test fails on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from landed.commands import Done, How
from landed.log import FeedKind, Write
from landed.sim.history import History

_ALWAYS: Final = "any"

_OF_ENTRIES: Final[dict[str, tuple[str, dict[object, str]]]] = {
    "log.wrote": (
        "answer",
        {
            "OutcomeUnknown": "unknown outcome",
            "VersionConflict": "conflict (2003)",
            "SequenceTaken": "taken (2002)",
            "SequenceInFlight": "in flight (2013)",
        },
    ),
    "log.asked_owner": (
        "owner",
        {
            "ours": "taken: ours",
            "sibling": "taken: a sibling's",
            "unwritten": "taken: unwritten",
        },
    ),
    "lane.flush_failed": ("", {_ALWAYS: "flush failed"}),
    "net.lost_before": ("", {_ALWAYS: "lost before"}),
    "net.lost_after": ("", {_ALWAYS: "lost after"}),
    "net.reset": ("", {_ALWAYS: "reset at a byte"}),
    "net.half_closed": ("", {_ALWAYS: "half closed"}),
    "net.refused": ("", {_ALWAYS: "dial refused"}),
    "net.deaf": ("", {_ALWAYS: "dial unanswered"}),
    "disturb.wall_step": ("", {_ALWAYS: "wall clock stepped"}),
    "disturb.reset_host": ("", {_ALWAYS: "every connection of a host reset"}),
    "server.crashed": (
        "silent",
        {True: "server crashed, in silence", False: "server crashed, connections reset"},
    ),
    "server.started": ("", {_ALWAYS: "server lived again on the same disk"}),
    "lane.stopped": ("", {_ALWAYS: "engine stopped over a commit in doubt"}),
    "disk.full": ("", {_ALWAYS: "disk full"}),
    "disk.doubt_lost": ("", {_ALWAYS: "I/O error at COMMIT, not stored"}),
    "disk.doubt_kept": ("", {_ALWAYS: "I/O error at COMMIT, stored"}),
    "disk.crash_before": ("", {_ALWAYS: "crash before a flush"}),
    "disk.crash_torn": ("", {_ALWAYS: "crash within a flush"}),
    "disk.crash_after": ("", {_ALWAYS: "crash after a flush"}),
    "disturb.pause_host": ("", {_ALWAYS: "host stopped and continued"}),
    "log.again": (
        "why",
        {
            "an old pool": "sent again behind the caller's back",
            "delivered twice": "a write delivered twice",
        },
    ),
    "replica.killed": ("", {_ALWAYS: "replica restarted"}),
    "lane.reclaimed": ("", {_ALWAYS: "dead batches reclaimed"}),
    "engine.busy": ("", {_ALWAYS: "server busy"}),
    "engine.doubtful": ("", {_ALWAYS: "a write that landed told as unknown"}),
    "caller.unheard": ("", {_ALWAYS: "answer unheard"}),
}
"""Word of an entry to the field that says which mark it is, and the mark for each value."""


def marks_of(history: History) -> frozenset[str]:
    """Every mark a world reached."""
    marks = set()
    for entry in history.entries:
        rule = _OF_ENTRIES.get(entry.what)
        if rule is not None:
            field, by_value = rule
            mark = by_value.get(entry.fields[field] if field else _ALWAYS)
            if mark is not None:
                marks.add(mark)
        elif entry.what == "lane.committed" and entry.fields["changes"] != 1:
            marks.add("several changes in one flush")
        elif entry.what == "log.read" and entry.fields.get("is_cut"):
            marks.add("a history read in several pages")
    marks.update(_outcome_mark(call.outcome) for call in history.calls)
    marks.update(_of_calls(history))
    marks.update(_of_evictions(history))
    marks.update(_of_late_writes(history))
    marks.update(_of_beds(history))
    return frozenset(marks)


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


def _of_late_writes(history: History) -> Iterator[str]:
    """A write reaches the engine when whoever sent it has given it up."""
    given_up: set[object] = set()
    for entry in history.entries:
        if entry.what == "log.wrote" and entry.fields["answer"] == "OutcomeUnknown":
            given_up.add(entry.fields["legs"])
        elif entry.what == "engine.took" and entry.fields["legs"] in given_up:
            yield "write arrives after it was given up"
            return
        elif entry.what == "log.write":
            given_up.discard(entry.fields["legs"])


def _of_beds(history: History) -> Iterator[str]:
    """What the fleet never does to its accounts."""
    lives: dict[object, int] = {}
    for act in history.truth.acts:
        if act.kind is FeedKind.TRIMMED:
            yield "aggregate trimmed"
        elif act.batch is None:
            yield "aggregate deleted"
        else:
            if len(act.batch.events) > 1:
                yield "several events in one batch"
            if act.incarnation > lives.get(act.key, 1):
                yield "recreated, and goes on" if act.version > 1 else "recreated, and begins at 1"
            lives[act.key] = act.incarnation
    if any(
        isinstance(tended.request, Write) and len(tended.request.legs) > 2
        for tended in history.tended
    ):
        yield "a write of three legs"


ALL_MARKS: Final[tuple[str, ...]] = (
    *(
        mark
        for _, by_value in _OF_ENTRIES.values()
        for mark in by_value.values()
        if mark != "taken: unwritten"  # needs a trim or a delete of an account, which no world has
    ),
    "several changes in one flush",
    "a history read in several pages",
    "write arrives after it was given up",
    "two calls of one request at once",
    "original answer on the other replica",
    "account evicted and folded again",
    "aggregate trimmed",
    "aggregate deleted",
    "recreated, and goes on",
    "recreated, and begins at 1",
    "several events in one batch",
    "a write of three legs",
    "outcome: done, fresh",
    "outcome: done, original",
    "outcome: done, rebuilt",
    "outcome: Rejected",
    "outcome: KeyReused",
    "outcome: Conflicted",
    "outcome: Unresolved",
    "outcome: Unavailable",
    "outcome: cut off",
)
"""Every mark there is, for a table that also shows what was not reached."""
