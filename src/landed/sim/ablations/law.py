"""Rules of the log and its engine, broken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from landed.engines import lane
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.engines.tail import AcceptedTail
from landed.log import ANY, SequenceInFlight, SequenceTaken, VersionConflict
from landed.sim.ablations.beds import BEDS
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.fleet import FLEET

_rule: Final = partial(ablation, Wing.LOG, ground=FLEET)


class _TailWithout:
    """An accepted tail that keeps something from the law."""

    def __init__(self, tail: Any, **hidden: Any) -> None:
        self._tail = tail
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return self._hidden.get(name) or getattr(self._tail, name)


@_rule(
    rule="The version guard is judged before the sequence",
    source="W3; Why the ambiguous arm works",
    patch="the judge looks at the sequence first",
    caught_by="taken_is_said_behind_the_guard",
)
def guard_after_sequence(swap: Swap) -> None:
    judge = swap.sound(lane, "judge_write")

    def swapped(write: Any, tail: Any, **rest: Any) -> Any:
        legs = tuple(leg._replace(expected_version=ANY) for leg in write.legs)
        result = judge(write._replace(legs=legs), tail, **rest)
        is_sequence = isinstance(result, SequenceTaken | SequenceInFlight)
        return result if is_sequence else judge(write, tail, **rest)

    swap(lane, "judge_write", swapped)


@_rule(
    rule="A write whose expected version is not the newest one is refused",
    source="W5; The write loop, 2003",
    patch="the judge passes every version guard",
    caught_by="every_success_is_in_the_log",
)
def guard_not_judged(swap: Swap) -> None:
    judge = swap.sound(lane, "judge_write")

    def unguarded(write: Any, tail: Any, **rest: Any) -> Any:
        legs = tuple(leg._replace(expected_version=ANY) for leg in write.legs)
        return judge(write._replace(legs=legs), tail, **rest)

    swap(lane, "judge_write", unguarded)


@_rule(
    rule="A sequence that has landed is refused for ever",
    source="I3, I4; Two keys, two owners",
    patch="the judge sees no marks",
    caught_by="an_unguarded_writer_lands_once",
)
def marks_not_judged(swap: Swap) -> None:
    judge = swap.sound(lane, "judge_write")

    def forgetful(write: Any, tail: Any, **rest: Any) -> Any:
        return judge(write, _TailWithout(tail, mark=lambda key, client_id: 0), **rest)

    swap(lane, "judge_write", forgetful)


@_rule(
    rule="A sequence that is accepted and not durable yet is neither free nor taken (2013)",
    source="I9; The write loop, 2013",
    patch="the judge sees nothing in flight",
    caught_by="an_unguarded_writer_lands_once",
)
def flight_not_judged(swap: Swap) -> None:
    judge = swap.sound(lane, "judge_write")

    def blind(write: Any, tail: Any, **rest: Any) -> Any:
        return judge(write, _TailWithout(tail, in_flight=lambda key, client_id: None), **rest)

    swap(lane, "judge_write", blind)


@_rule(
    rule="All legs of a write land, or none",
    source="M1, SW-83; Transfers",
    patch="the store keeps the first leg of a flush",
    caught_by="a_transfer_lands_whole",
)
def half_a_transfer(swap: Swap) -> None:
    commit = MemoryStore.commit

    def half(self: MemoryStore, group: Sequence[Any]) -> None:
        commit(self, group[:1])

    swap(MemoryStore, "commit", half)


@_rule(
    rule="Nothing is acknowledged before it is durable",
    source="C2; The write loop, 2013",
    patch="a failed flush is answered with success",
    caught_by="every_success_is_in_the_log",
)
def acknowledged_before_durable(swap: Swap) -> None:
    roll_back = Lane._roll_back

    def claims_success(self: Lane, error: Any) -> None:
        for group in list(self._groups):
            for done, answer in group.answers:
                done(answer)
            group.answers.clear()
        roll_back(self, error)

    swap(Lane, "_roll_back", claims_success)


@_rule(
    rule="A rolled-back change leaves no trace in the accepted tail",
    source="C6, W17",
    patch="a failed flush leaves its heads accepted",
    caught_by="the_world_ended_badly",
)
def nothing_rolled_back(swap: Swap) -> None:
    def nothing(self: AcceptedTail) -> None:
        self._flying.clear()

    swap(AcceptedTail, "roll_back", nothing)


@_rule(
    rule="A mark rises when its batch becomes visible",
    source="I4, I18",
    patch="publishing a group raises no mark",
    caught_by="an_unguarded_writer_lands_once",
)
def marks_not_raised(swap: Swap) -> None:
    publish = AcceptedTail.publish

    def lowered(self: AcceptedTail, group: Any) -> None:
        group.staged = [staged._replace(mark=0) for staged in group.staged]
        publish(self, group)

    swap(AcceptedTail, "publish", lowered)


@_rule(
    rule="A refused write consumes nothing: its sequence was never used",
    source="W17, I14; Why re-deriving on conflict is safe",
    patch="a conflict raises the mark of the sequence it refuses",
    caught_by="taken_is_said_behind_the_guard",
)
def conflict_consumes_its_sequence(swap: Swap) -> None:
    refuse = Lane._refuse

    def consuming(self: Lane, change: Any, refusal: Any, done: Any, *, is_again: bool) -> None:
        if isinstance(refusal, VersionConflict):
            for leg in change.legs:
                pair = (leg.key.packed, change.client_id.int)
                standing = self._tail._standings[leg.key.packed]
                known = standing.mark if standing.client == pair[1] else 0
                known = max(known, self._tail._marks.pop(pair, 0))
                highest = max(event.client_seq for event in leg.events)
                self._tail._seat(standing, leg.key, change.client_id, max(known, highest))
        refuse(self, change, refusal, done, is_again=is_again)

    swap(Lane, "_refuse", consuming)


@_rule(
    rule="The feed tells every change once, in an order that agrees with each aggregate's",
    source="F1, C9",
    patch="a page of the feed leaves out what is above the first entry of a flush",
    caught_by="the_feed_agrees_with_the_log",
)
def feed_steps_over_a_change(swap: Swap) -> None:
    commit = MemoryStore.commit

    def stepping(self: MemoryStore, group: Sequence[Any]) -> None:
        commit(self, group)
        if len(group) > 1:
            del self._entries[-1]

    swap(MemoryStore, "commit", stepping)


LAW: Final[tuple[Ablation, ...]] = (
    guard_after_sequence,
    guard_not_judged,
    marks_not_judged,
    flight_not_judged,
    half_a_transfer,
    acknowledged_before_durable,
    nothing_rolled_back,
    marks_not_raised,
    conflict_consumes_its_sequence,
    feed_steps_over_a_change,
    *BEDS,
)
