"""Is "taken" said only to writers whose guard held?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.ids import AggregateKey
from landed.sim.history import History


def taken_is_said_behind_the_guard(history: History) -> Iterator[str]:
    """The guard comes before the sequence (log rule W3; mission 1, "Why the ambiguous arm works").

    A guarded write that is told "taken" (2002) thus stood at exactly its expected version, so the
    number it carries was used by the fleet at or below that version. Told otherwise, a writer with
    a stale view learns of a duplicate where it should learn of a conflict.
    """
    for entry in history.entries:
        if entry.what != "log.wrote" or entry.fields["answer"] != "SequenceTaken":
            continue
        legs = entry.fields["legs"]
        assert isinstance(legs, tuple)
        if any(guard is None or key not in history.truth.batches for key, guard, _ in legs):
            continue
        if not any(seq <= _highest(history, key, guard) for key, guard, seq in legs):
            yield f"call {entry.fields['call']} was told 'taken' for {legs}, whose guard was stale"


def _highest(history: History, key: AggregateKey, version: int) -> int:
    """The fleet's highest sequence at or below a version."""
    return max(
        (
            event.client_seq
            for batch in history.truth.batches.get(key, ())[:version]
            if batch.client_id == history.service
            for event in batch.events
        ),
        default=0,
    )
