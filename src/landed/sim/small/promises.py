"""What must hold after every move of a small world. Each yields a sentence for whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from landed.commands import Applied, Conflicted, Done, Unavailable, Unresolved
from landed.sim.small.moving import Move
from landed.sim.small.stepping import batches_of

Promise = Callable[[Move], Iterator[str]]


def a_request_lands_at_most_once(move: Move) -> Iterator[str]:
    """Whatever is delivered, lost, repeated and retried."""
    world = move.world
    landed = [landing.request for landing in world.visible]
    landed += [writing.request for writing in world.ahead]
    for request in set(landed):
        if landed.count(request) > 1:
            yield f"request {request} is in the log {landed.count(request)} times"


def no_sequence_is_used_twice(move: Move) -> Iterator[str]:
    """The sequences of the log rise with its versions."""
    seqs = [landing.client_seq for landing in move.world.visible]
    if seqs != sorted(set(seqs)):
        yield f"the sequences of versions 1 to {len(seqs)} are {seqs}"


def a_success_tells_what_is_in_the_log(move: Move) -> Iterator[str]:
    """Acknowledged is there, once; and every call of a request gets its one original answer."""
    if move.call is None or not isinstance(move.outcome, Done):
        return
    told = move.outcome.versions[0], move.outcome.results[0]
    there = None
    total = 0
    visible = move.world.visible
    for landing, batch in zip(visible, batches_of(visible), strict=True):
        total += batch.events[0].value[0]
        if landing.request == move.call.request and there is None:
            there = batch.version, total
    if there is None:
        yield f"request {move.call.request} was answered {told}, and is not in the log"
    elif told != there:
        yield f"request {move.call.request} was answered {told}, and the log says {there}"


def what_is_not_applied_never_lands(move: Move) -> Iterator[str]:
    """A call that says "not applied" has nothing in the log, and nothing of it arrives later.

    A conflict proves that only where a write arrives at most once, as the pool sends it. Where the
    network repeats it, the conflict of the second copy may be with the first, so what was repeated
    is not counted here; a retry finds it all the same, which the other promises show.
    """
    outcome = move.outcome
    if move.is_denied:
        yield "a write became durable whose call had said that it was not applied"
    if outcome is None or outcome.applied is not Applied.NOT_APPLIED:
        return
    if move.call is not None and move.call.has_landed:
        yield f"a call whose write is in the log was told {outcome}"


def nobody_needs_a_human(move: Move) -> Iterator[str]:
    """No fault, no foreign key, no contested sequence that nobody owns: none of that is here."""
    outcome = move.outcome
    if outcome is not None and not isinstance(
        outcome, Done | Conflicted | Unavailable | Unresolved
    ):
        yield f"a call ended with {outcome}"


PROMISES: Final[tuple[Promise, ...]] = (
    a_request_lands_at_most_once,
    a_success_tells_what_is_in_the_log,
    what_is_not_applied_never_lands,
    no_sequence_is_used_twice,
    nobody_needs_a_human,
)
