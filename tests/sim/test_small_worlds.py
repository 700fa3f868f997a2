"""Every order of everything in worlds that are small enough, on the product's own tables."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from landed.cli.proofs import search_small
from landed.commands import steps
from landed.commands.moves import MOVES, At, End, Rule, Saw, Sequence
from landed.log import ANY
from landed.log import judge as law
from landed.sim.ablations.breaking import Break, Swap
from landed.sim.ablations.index import fold_not_indexed, index_not_asked, write_not_indexed
from landed.sim.ablations.loops import (
    decided_only_once,
    doubt_not_told,
    sibling_is_ours,
    taken_is_believed,
    unknown_is_not_sent,
)
from landed.sim.small import state
from landed.sim.small.search import search, searching
from landed.sim.small.state import Size

SMALL = Size(calls=2, faults=1)
"""A first call and one retry of each of two requests, and one fault: seconds."""

STATES_MAX = 10_000
"""Nearest to the beginning, among which a broken rule must show."""


def test_every_promise_holds_in_every_state_of_the_small_size():
    searched = search(SMALL)
    assert searched.broken is None, [searched.sentence, *searched.way]
    # Fewer would mean that something cannot happen any more that could.
    assert searched.states > 8_000
    assert searched.steps > 20_000
    assert searched.ends > 0


@pytest.mark.long
def test_every_promise_holds_in_every_state_of_the_full_size():
    searched = search(Size())
    assert searched.broken is None, [searched.sentence, *searched.way]
    assert searched.states > 100_000


def test_a_search_shows_how_far_it_is():
    shown = [searched.states for searched in searching(Size(calls=1, faults=0), every=50)]
    assert len(shown) > 2


def test_without_faults_every_request_ends_in_the_log_or_gave_up():
    searched = search(Size(calls=1, faults=0))
    assert searched.broken is None
    assert searched.states < 500


def test_the_command_prints_the_count(monkeypatch, capsys):
    monkeypatch.setattr(state, "Size", lambda: Size(calls=1, faults=0))
    assert search_small(as_json=False) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("2 requests, 1 calls of each, 2 sendings of a call, 2 replicas")
    assert " states, " in second
    assert second.endswith(": clean")


def test_the_command_tells_the_way_to_a_broken_promise(monkeypatch, capsys):
    monkeypatch.setattr(state, "Size", lambda: SMALL)
    with ExitStack() as stack:
        conflict_is_done(Swap(stack))
        assert search_small(as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["broken"] == "a_success_tells_what_is_in_the_log"
    assert len(told["way"]) > 3


# --- and it notices


def guard_not_judged(swap: Swap) -> None:
    judge = law.judge_write

    def unguarded(write, tail, **rest):
        legs = tuple(leg._replace(expected_version=ANY) for leg in write.legs)
        return judge(write._replace(legs=legs), tail, **rest)

    swap(law, "judge_write", unguarded)


def sequence_not_judged(swap: Swap) -> None:
    judge = law.judge_write

    def unnumbered(write, tail, **rest):
        legs = tuple(leg._replace(enforce_sequence=False) for leg in write.legs)
        return judge(write._replace(legs=legs), tail, **rest)

    swap(law, "judge_write", unnumbered)


def neither_is_judged(swap: Swap) -> None:
    guard_not_judged(swap)
    sequence_not_judged(swap)


@pytest.mark.parametrize("breaks", [guard_not_judged, sequence_not_judged])
def test_guard_and_sequence_each_keep_one_service_whole_without_the_other(breaks: Break):
    """With one client id for all replicas they are two keys to one door (SW-7)."""
    with ExitStack() as stack:
        breaks(Swap(stack))
        assert search(SMALL, states_max=STATES_MAX).broken is None


def conflict_is_done(swap: Swap) -> None:
    swap.entry(MOVES, (At.SEND, Saw.CONFLICT), Rule(Sequence.KEEP, At.SETTLE))


def sibling_settles(swap: Swap) -> None:
    """Behind the guard a sequence is never contested: so both have to go for it to be seen."""
    guard_not_judged(swap)
    swap.entry(MOVES, (At.VERIFY, Saw.SIBLING), Rule(Sequence.KEEP, At.SETTLE))


def in_flight_is_landed(swap: Swap) -> None:
    """Behind the guard nothing is ever in flight: so both have to go for it to be seen."""
    guard_not_judged(swap)
    swap.entry(MOVES, (At.SEND, Saw.IN_FLIGHT), Rule(Sequence.KEEP, At.RECORD))


def unknown_is_decided_anew(swap: Swap) -> None:
    """Neither looked for nor weighed: a fresh sequence on fresh state."""
    recognise = steps._recognise

    def overlooking(call):
        return Saw.NO_HIT if call.last_sent is Saw.UNKNOWN else recognise(call)

    async def judge_nothing(call):
        call.unknown = ()
        return Saw.DEAD

    swap(steps, "_recognise", overlooking)
    swap.entry(steps.STEPS, At.JUDGE, judge_nothing)


def busy_gives_up(swap: Swap) -> None:
    swap.entry(MOVES, (At.SEND, Saw.UNKNOWN), Rule(Sequence.HOLD, End.CONFLICTED))


BROKEN = {
    "a_request_lands_at_most_once": [
        index_not_asked.breaks,
        write_not_indexed.breaks,
        fold_not_indexed.breaks,
        unknown_is_decided_anew,
        neither_is_judged,
    ],
    "a_success_tells_what_is_in_the_log": [
        taken_is_believed.breaks,
        decided_only_once.breaks,
        conflict_is_done,
        sibling_settles,
        in_flight_is_landed,
    ],
    "what_is_not_applied_never_lands": [
        unknown_is_not_sent.breaks,
        doubt_not_told.breaks,
        busy_gives_up,
    ],
    "nobody_needs_a_human": [
        sibling_is_ours.breaks,
    ],
}


@pytest.mark.parametrize(
    ("promise", "breaks"),
    [
        pytest.param(promise, breaks, id=breaks.__name__)
        for promise, rules in BROKEN.items()
        for breaks in rules
    ],
)
def test_a_broken_rule_breaks_a_promise(promise: str, breaks: Break):
    with ExitStack() as stack:
        breaks(Swap(stack))
        searched = search(SMALL, states_max=STATES_MAX)
    assert searched.broken == promise, searched.sentence
    assert searched.way
