"""Rules of the write loop, the pool and the ownership check, broken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from landed.client.pool import Pool
from landed.commands import catch_up as catching_up
from landed.commands import loop, setback, steps
from landed.commands.call import Call
from landed.commands.command import Reject
from landed.commands.identity import ServiceIdentity
from landed.commands.moves import At, End, Saw, when_giving_up
from landed.errors import OutcomeUnknownError
from landed.ids import ClientId, EventId
from landed.log import Read
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.fleet import BESIDE, FLEET
from landed.sim.loop import sim_loop

_rule: Final = partial(ablation, Wing.LOG, ground=FLEET)


@_rule(
    rule="The pool never sends a change again after it may have been received",
    source="CP-36; The write loop, 0.9.0",
    patch="the pool repeats a write whose outcome is unknown",
    caught_by="a_write_is_sent_at_most_once",
)
def pool_sends_again(swap: Swap) -> None:
    write_once = Pool.write

    async def twice(self: Pool, write: Any, *, timeout_s: float | None = None) -> Any:
        try:
            return await write_once(self, write, timeout_s=timeout_s)
        except OutcomeUnknownError:
            return await write_once(self, write, timeout_s=timeout_s)

    swap(Pool, "write", twice)


@_rule(
    rule="Sent and unanswered is unknown, never a no",
    source="SW-32, SW-34; Ambiguous",
    patch="an unknown outcome is taken for 'not sent'",
    caught_by="what_is_not_applied_has_no_event",
)
def unknown_is_not_sent(swap: Swap) -> None:
    after_write = swap.sound(setback, "after_write")

    def folded(error: Any) -> Saw:
        saw = after_write(error)
        return Saw.NOT_SENT if saw is Saw.UNKNOWN else saw

    swap(setback, "after_write", folded)


@_rule(
    rule="After unknown every retry looks first, and holds the sequence",
    source="SW-29, SW-31; Conflict means re-derive, ambiguous means hold",
    patch="a retry does not look for the request, and takes a fresh sequence",
    caught_by="a_request_lands_at_most_once",
)
def fresh_sequence_after_unknown(swap: Swap) -> None:
    recognise = steps._recognise

    def look_only_once(call: Any) -> Saw:
        return recognise(call) if call.attempts == 1 else Saw.NO_HIT

    async def judge_nothing(call: Any) -> Saw:
        return Saw.DEAD if call.unknown else Saw.CLEAR

    swap(steps, "_recognise", look_only_once)
    swap.entry(steps.STEPS, At.JUDGE, judge_nothing)


@_rule(
    rule="A 2002 is never taken at face value: the log says whose the sequence is",
    source="SW-40; Who owns the sequence",
    patch="'taken' is taken for our own success",
    caught_by="every_success_is_in_the_log",
)
def taken_is_believed(swap: Swap) -> None:
    async def believes(call: Any, attempt: Any, legs: Any) -> Saw:
        return Saw.OURS

    swap(steps, "_ask_owners", believes)


@_rule(
    rule="The event id decides who owns a sequence",
    source="SW-41; Who owns the sequence",
    patch="any event of the fleet at that sequence counts as ours",
    caught_by="key_reused_is_said_of_reused_keys",
)
def sibling_is_ours(swap: Swap) -> None:
    who_owns = swap.sound(steps, "who_owns")

    async def trusting(read_page: Any, key: Any, **rest: Any) -> Any:
        async def page(read: Any) -> Any:
            found = await read_page(read)
            mine = rest["event_id"]
            batches = tuple(
                batch._replace(
                    events=tuple(event._replace(event_id=mine) for event in batch.events)
                )
                for batch in found.batches
            )
            return found._replace(batches=batches)

        return await who_owns(page, key, **rest)

    swap(steps, "who_owns", trusting)


@_rule(
    rule="The ownership read is scoped to the service's own client id",
    source="SW-42; Who owns the sequence, 'Scope the read'",
    patch="events of every writer at that sequence are looked at",
    caught_by="key_reused_is_said_of_reused_keys",
    ground=BESIDE,
)
def ownership_of_anyone(swap: Swap) -> None:
    who_owns = swap.sound(steps, "who_owns")

    async def unscoped(read_page: Any, key: Any, **rest: Any) -> Any:
        async def page(read: Any) -> Any:
            everyone = read.filters._replace(include_client=None)
            found = await read_page(Read(read.key, everyone))
            batches = tuple(batch._replace(client_id=rest["client_id"]) for batch in found.batches)
            return found._replace(batches=batches)

        return await who_owns(page, key, **rest)

    swap(steps, "who_owns", unscoped)


@_rule(
    rule="Only the service's own batches answer its requests",
    source="SW-19, SW-20; Derive the sequence from your own events",
    patch="the fold takes every writer's batch for its own",
    caught_by="key_reused_is_said_of_reused_keys",
)
def answers_of_anyone(swap: Swap) -> None:
    fold_page = swap.sound(catching_up, "fold_page")

    def undiscerning(view: Any, batches: Any, *, ours: Any, **rest: Any) -> Any:
        taken = [batch._replace(client_id=ours.client_id) for batch in batches]
        return fold_page(view, taken, ours=ours, **rest)

    swap(catching_up, "fold_page", undiscerning)


@_rule(
    rule="A landed request is recognised before the business rules are asked",
    source="SW-29; The write loop, catch-up first",
    patch="an order that the present state would refuse is refused, landed or not",
    caught_by="a_retry_gets_the_original_answer",
)
def rules_before_recognition(swap: Swap) -> None:
    recognise = steps._recognise

    def ruled(call: Any) -> Saw:
        states = tuple(view.state for view in call.views)
        is_refused = isinstance(call.command.decide(states), Reject)
        return Saw.NO_HIT if is_refused else recognise(call)

    swap(steps, "_recognise", ruled)


@_rule(
    rule="A key that is used for another wish is refused",
    source="SW-80, SW-81",
    patch="fingerprints are not compared",
    caught_by="every_success_is_in_the_log",
)
def fingerprints_not_compared(swap: Swap) -> None:
    def same(answer: Any, asked: Any) -> bool:
        return False

    swap(steps, "is_other_wish", same)


@_rule(
    rule="Every write is guarded by the cursor of its own attempt's catch-up",
    source="SW-26; The write loop, expectedVersion",
    patch="writes carry no expected version",
    caught_by="every_success_is_in_the_log",
)
def writes_without_guard(swap: Swap) -> None:
    decide = steps.decide

    async def unguarded(call: Any) -> Saw:
        saw = await decide(call)
        if saw is Saw.ACCEPTED:
            legs = tuple(leg._replace(expected_version=None) for leg in call.write.legs)
            call.write = call.write._replace(legs=legs)
        return saw

    swap.entry(steps.STEPS, At.DECIDE, unguarded)


@_rule(
    rule="The business rules run on fresh state on every attempt",
    source="SW-28; The write loop, re-decide on fresh state",
    patch="what was decided on the first attempt is sent under the fresh guard",
    caught_by="balances_fold_from_the_log",
)
def decided_only_once(swap: Swap) -> None:
    decide = steps.decide

    async def once(call: Any) -> Saw:
        first = call.__dict__.setdefault("_first", tuple(view.state for view in call.views))
        views = call.views
        call.views = tuple(
            view._replace(state=state) for view, state in zip(views, first, strict=True)
        )
        try:
            return await decide(call)
        finally:
            call.views = views

    swap.entry(steps.STEPS, At.DECIDE, once)


@_rule(
    rule="Who gives up in doubt says so",
    source="SW-33; a false failure costs a retry",
    patch="a call that gives up says 'not applied', in doubt or not",
    caught_by="what_is_not_applied_has_no_event",
)
def doubt_not_told(swap: Swap) -> None:
    def sure(obstacle: Saw, *, is_in_doubt: bool) -> End:
        return when_giving_up(obstacle, is_in_doubt=False)

    swap(loop, "when_giving_up", sure)


@_rule(
    rule="One client id names the service, for all replicas and restarts",
    source="SW-7; Scaling out",
    patch="every loop that starts takes a client id of its own",
    caught_by="every_success_is_in_the_log",
)
def client_id_of_a_replica(swap: Swap) -> None:
    def own(_client_id: Any, **_rest: Any) -> ServiceIdentity:
        number = sim_loop().stream(f"identity/{sim_loop().time()}").getrandbits(127) | 1
        return ServiceIdentity(ClientId(UUID(int=number)))

    swap(ServiceIdentity, "from_config", own)


@_rule(
    rule="The event id is derived from the request, and the same on every retry",
    source="SW-8, SW-119; Two keys, two owners",
    patch="every call mints an event id of its own",
    caught_by="every_success_is_in_the_log",
)
def event_id_of_a_call(swap: Swap) -> None:
    init = Call.__init__

    def minting(self: Any, command: Any, *args: Any, **rest: Any) -> None:
        number = sim_loop().stream(f"minted/{sim_loop().time()}").getrandbits(127) | 1
        init(self, replace(command, event_id=EventId(UUID(int=number))), *args, **rest)

    swap(Call, "__init__", minting)


LOOPS: Final[tuple[Ablation, ...]] = (
    pool_sends_again,
    unknown_is_not_sent,
    fresh_sequence_after_unknown,
    taken_is_believed,
    sibling_is_ours,
    ownership_of_anyone,
    answers_of_anyone,
    rules_before_recognition,
    fingerprints_not_compared,
    writes_without_guard,
    decided_only_once,
    doubt_not_told,
    client_id_of_a_replica,
    event_id_of_a_call,
)
