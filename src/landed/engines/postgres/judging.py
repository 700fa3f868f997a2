"""A group of changes is judged inside its transaction, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple, cast

from landed.clock import ServerTime
from landed.engines.arrivals import Arrival
from landed.engines.group import Group
from landed.engines.port import Stored
from landed.engines.tail import AcceptedTail
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    AggregateClosed,
    AggregateMissing,
    Answer,
    Deleted,
    Landed,
    Mutation,
    Refusal,
    Trim,
    TrimBeyondEnd,
    Trimmed,
    Write,
)
from landed.log.judge import Admitted, judge_delete, judge_trim, judge_write

_MAY_BE_WITHDRAWN: Final = (AggregateClosed, AggregateMissing, TrimBeyondEnd)
"""Refusals that become untrue if the change they rest on is rolled back (log rule W19)."""

Pairs = list[tuple[AggregateKey, ClientId]]


class Fate(Enum):
    """When an answer may be given, and what becomes of it if the commit fails."""

    REFUSED = "at once"
    ADMITTED = "after the commit; if it fails, it is not true"
    LEANING = "after the commit; if it fails, the change is judged again"


class Verdict(NamedTuple):
    """What the law says of one change."""

    arrival: Arrival
    answer: Answer
    fate: Fate


class Judged(NamedTuple):
    """A group whose keys are locked, judged on what the database holds."""

    verdicts: list[Verdict]
    tail: AcceptedTail
    """With everything admitted ahead."""
    group: Group
    """What is to be written; empty if nothing was admitted."""


def keys_of(change: Mutation) -> list[AggregateKey]:
    """The aggregates that a change names."""
    return [change.key] if isinstance(change, Trim) else [leg.key for leg in change.legs]


def pairs_of(changes: Iterable[Mutation]) -> Pairs:
    """The pairs whose marks a group needs: of all its writes, since each may raise its mark."""
    pairs = {
        (leg.key, change.client_id): None
        for change in changes
        if isinstance(change, Write)
        for leg in change.legs
    }
    return list(pairs)


def judge(
    arrivals: Sequence[Arrival],
    keys: Sequence[AggregateKey],
    pairs: Pairs,
    stored: Stored,
    *,
    time: ServerTime,
    limits: Limits,
    position: int,
) -> Judged:
    """Judge changes one after the other, each on top of those admitted before it.

    Args:
        arrivals: in order; the keys of all of them are locked.
        keys: all that they name.
        pairs: all that write.
        stored: what the database holds of them, read under the locks.
        time: of this process. A stamp is never below the last one of its aggregates either, which
            another process may have given (design decision 10).
        limits: of this process.
        position: in the feed, after which the group's own begin.
    """
    tail = AcceptedTail(heads_max=len(keys), marks_max=len(pairs))
    tail.expect()
    tail.learn(keys, pairs, stored)
    group = Group()
    verdicts: list[Verdict] = []
    stamp = time.stamp()
    for arrival in arrivals:
        change = arrival.change
        now_ms = max([stamp, *[tail.head(key).last_ms for key in keys_of(change)]])
        result: Admitted | Refusal
        if isinstance(change, Write):
            result = judge_write(
                change, tail, now_ms=now_ms, seq_jump_max=limits.client_seq_jump_max
            )
        elif isinstance(change, Trim):
            result = judge_trim(change, tail, now_ms=now_ms)
        else:
            result = judge_delete(change, tail, now_ms=now_ms)
        if type(result) is not tuple:
            leans = isinstance(result, _MAY_BE_WITHDRAWN) and _is_ahead(change, tail)
            fate = Fate.LEANING if leans else Fate.REFUSED
            verdicts.append(Verdict(arrival, cast("Refusal", result), fate))
            continue
        steps = cast("Admitted", result)
        if not steps:
            # A trim without effect: its floor may be that of a trim of this very group (C5, T3).
            fate = Fate.LEANING if _is_ahead(change, tail) else Fate.REFUSED
            verdicts.append(Verdict(arrival, Trimmed(), fate))
            continue
        answer: Answer
        if isinstance(change, Write):
            standings = tail.accept(steps, change.client_id, group)
            position = group.add_write(change, steps, standings, now_ms, position)
            answer = Landed(tuple([step.head.version for step in steps]))
        else:
            standings = tail.accept(steps, None, group)
            position = group.add_other(change, steps, standings, position)
            answer = Trimmed() if isinstance(change, Trim) else Deleted()
        verdicts.append(Verdict(arrival, answer, Fate.ADMITTED))
    return Judged(verdicts, tail, group)


def _is_ahead(change: Mutation, tail: AcceptedTail) -> bool:
    return any(tail.is_ahead(key) for key in keys_of(change))
