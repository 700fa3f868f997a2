"""Rules of time and order, broken: memory that ends, look-ups that take time, seals, and evidence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import update

from landed.effects import doubt
from landed.effects.answer import Sealed
from landed.effects.state import Certainty, State
from landed.records import attempts, deadlines, effect_actions, settle, tables
from landed.records.answers import outcome_of
from landed.records.effects import moved
from landed.records.retention import Policy
from landed.sim.ablations.breaking import Ablation, Swap, Wing, ablation
from landed.sim.ablations.shop_ground import SHOP
from landed.workers import keeper, reconciler
from landed.workers.reconciler import Reconciler

_rule: Final = partial(ablation, Wing.HANDLING, ground=SHOP)
_ONCE: Final = "an_effect_acts_at_most_once"
_MINUTE_US: Final = 60_000_000


# --- how long a recipient remembers


@_rule(
    rule="A key's memory counts from its first sight at the recipient, not from the last",
    source="CT-6; retention period",
    patch="every attempt counts as the first sight of the key",
    caught_by=_ONCE,
)
def first_sight_renewed(swap: Swap) -> None:
    _after_begin(swap, lambda before: {"first_sight_at": tables.effects.c.last_begun_at})


@_rule(
    rule="In doubt nothing is sent again once the recipient may have forgotten the key",
    source="CT-6, AT-9, E22; retention period",
    patch="the end of the recipient's memory is not asked about",
    caught_by=_ONCE,
)
def resent_after_the_horizon(swap: Swap) -> None:
    for owner in (doubt, attempts):
        swap(owner, "resend_limit_us", lambda *args: None)


# --- what "not found" proves, and when


@_rule(
    rule="Absence is judged by when the question was asked, not by when it was answered",
    source="RN-5, RN-6; authoritative, final proof that no effect occurred",
    patch="the time of the answer counts",
    caught_by="what_is_called_absent_never_acts",
)
def absence_by_the_answers_time(swap: Swap) -> None:
    looked_up = Reconciler._looked_up

    async def later(self: Any, case: Any) -> Any:
        answer = await looked_up(self, case)
        object.__setattr__(case, "asked_us", self._desk.books.now_us())
        return answer

    swap(Reconciler, "_looked_up", later)


@_rule(
    rule="A look-up that is behind is believed only once its lag is over",
    source="RN-6, AS-64; authoritative, final proof that no effect occurred",
    patch="every look-up is taken for one that shows everything at once",
    caught_by="what_is_called_absent_never_acts",
)
def lag_not_waited(swap: Swap) -> None:
    final_absence = swap.sound(reconciler, "final_absence")

    def at_once(contract: Any, **rest: Any) -> Any:
        lookup = replace(contract.lookup, lag_s=0.0)
        return final_absence(replace(contract, lookup=lookup), **rest)

    swap(reconciler, "final_absence", at_once)


@_rule(
    rule="A final absence allows one attempt, and says nothing of that one",
    source="AT-9; Retry only after that check",
    patch="an absence once found final stays so for later attempts",
    caught_by=_ONCE,
)
def absence_outlives_its_attempt(swap: Swap) -> None:
    _after_begin(swap, lambda before: {"is_absence_final": before.is_absence_final})


# --- how doubt ends


@_rule(
    rule="Doubt ends by evidence, never by its age",
    source="I-7, AT-13; keep the record unknown and reconcile it",
    patch="what can no longer be sent again is written off",
    caught_by="doubt_ends_only_by_evidence",
)
def doubt_given_up(swap: Swap) -> None:
    def written_off(conn: Any, books: Any, effect: Any, contract: Any, *, delays: Any) -> bool:
        values = settle.terminal_values(conn, books, None, Certainty.PROVEN)
        return moved(conn, effect, State.CANCELLED, {"reason": "expired", **values})

    swap(deadlines, "pass_horizon", written_off)


@_rule(
    rule="An attempt is closed once: an answer that comes later stands beside the closing",
    source="SM-2, AT-6; outcomes",
    patch="a late answer is written over what closed the attempt",
    caught_by="what_is_written_stays",
)
def closing_overwritten(swap: Swap) -> None:
    late = attempts._late

    def over(conn: Any, books: Any, one: Any) -> Any:
        ended = late(conn, books, one)
        rows = tables.attempts
        is_it = (rows.c.effect_id == one.effect.effect_id, rows.c.attempt_no == one.attempt_no)
        conn.execute(update(rows).where(*is_it).values(outcome=outcome_of(one.answer)))
        return ended

    swap(attempts, "_late", over)


# --- order where the recipient compares no versions


@_rule(
    rule="An old decision that comes after a newer one is sealed where the recipient cannot refuse it",
    source="OG-5, OR-6; Prevent stale work from winning",
    patch="it is sent",
    caught_by="an_order_never_goes_back",
)
def old_decision_sent(swap: Swap) -> None:
    swap(deadlines, "is_overtaken", lambda *args: False)


@_rule(
    rule="A tombstone is the recipient's: nothing is sealed before it says so",
    source="OR-6, RP-5; a recipient-side tombstone",
    patch="the seal is noted here, and not asked for",
    caught_by="what_is_sealed_never_acts",
)
def seal_not_placed(swap: Swap) -> None:
    async def noted(self: Any, case: Any) -> Any:
        return Sealed()

    swap(Reconciler, "_sealed", noted)


# --- what is kept, and what people do


@_rule(
    rule="Nothing is scrubbed before the longest chain by which it may still come is over",
    source="RT-2, RT-6, I-10; Retain enough evidence to recover",
    patch="what is settled is scrubbed after a minute",
    caught_by="nothing_is_forgotten_before_its_horizon",
)
def scrubbed_early(swap: Swap) -> None:
    def at_once(registry: Any) -> Policy:
        return Policy(
            payload_us=_MINUTE_US,
            receipts_us=dict.fromkeys(registry.producers, _MINUTE_US),
            effects_us=dict.fromkeys(registry.recipients, _MINUTE_US),
        )

    swap(keeper, "policy_of", at_once)


@_rule(
    rule="A person's act that is repeated under its id is done once",
    source="OP-2, KP-29, AS-106",
    patch="every repeat is an act of its own",
    caught_by="an_act_is_done_once",
)
def act_done_again(swap: Swap) -> None:
    perform = swap.sound(effect_actions, "perform")

    def anew(conn: Any, books: Any, action: Any, *rest: Any) -> Any:
        return perform(conn, books, replace(action, action_id=books.new_id()), *rest)

    swap(effect_actions, "perform", anew)


def _after_begin(swap: Swap, values_of: Any) -> None:
    """Have an attempt's begin write something else about its effect."""
    begin_all = attempts.begin_all

    def begins(conn: Any, books: Any, asked: Any, **rest: Any) -> Any:
        begun = begin_all(conn, books, asked, **rest)
        for (before, _), one in zip(asked, begun, strict=True):
            if isinstance(one, attempts.Begun):
                rows = tables.effects
                change = update(rows).where(rows.c.effect_id == before.effect_id)
                conn.execute(change.values(**values_of(before)))
        return begun

    swap(attempts, "begin_all", begins)


HORIZONS: Final[tuple[Ablation, ...]] = (
    first_sight_renewed,
    resent_after_the_horizon,
    absence_by_the_answers_time,
    lag_not_waited,
    absence_outlives_its_attempt,
    doubt_given_up,
    closing_overwritten,
    old_decision_sent,
    seal_not_placed,
    scrubbed_early,
    act_done_again,
)
