"""What follows a move of an effect, in the same transaction: schedule, settlement, review, order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, select, update

from landed.effects.answer import AttemptAnswer, InFlight, KeyConflict, NotExecuted
from landed.effects.contract import Contract
from landed.effects.order import OrderPolicy
from landed.effects.state import TERMINAL, Certainty, Reason, State
from landed.records import outbox, reviews, schedule
from landed.records.effects import EFFECT, EffectView, effect_lane, reconcile_lane
from landed.records.session import Books
from landed.records.tables import attempts, effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """When to come again, microseconds; and who listens to settlements."""

    retry_us: int = 1_000_000
    question_us: int = 1_000_000
    settled_handlers: tuple[str, ...] = ()
    """Names of the handlers of this effect type's settlements; none: no settlement row."""
    owner: str = field(default="installation")


def terminal_values(
    conn: Connection, books: Books, result: bytes | None, certainty: Certainty
) -> dict[str, object]:
    """The columns that a terminal state brings with it."""
    values: dict[str, object] = {
        "settled_at": books.at(conn),
        "certainty": certainty.value,
        "doubt_from": None,
    }
    if result is not None:
        values["result"] = result
        values["result_digest"] = hashlib.sha256(result).digest()
    return values


def after_move(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    to: State,
    *,
    delays: Delays,
    answer: AttemptAnswer | None = None,
) -> None:
    """Write what a move brings with it. ``effect`` is the effect as it was before."""
    if to in TERMINAL:
        schedule.drop(conn, kind=EFFECT, subject_id=effect.effect_id)
        announce(conn, books, effect, to, delays.settled_handlers)
        if to is State.CONFIRMED and effect.order_policy == OrderPolicy.LATEST_WINS.value:
            _supersede_older(conn, books, effect)
        return
    if to is State.RETRY:
        wait = answer.retry_after_s if isinstance(answer, NotExecuted) else None
        delay = delays.retry_us if wait is None else max(delays.retry_us, int(wait * 1_000_000))
        if _non_acts(conn, effect.effect_id) >= contract.non_acts_max:
            _park(conn, books, effect, delays)
            return
        _come_again(conn, books, effect, effect_lane(effect.recipient), delay)
        return
    wait = answer.retry_after_s if isinstance(answer, InFlight) else None
    delay = delays.question_us if wait is None else max(delays.question_us, int(wait * 1_000_000))
    _come_again(conn, books, effect, reconcile_lane(effect.recipient), delay)
    if isinstance(answer, KeyConflict):
        reviews.open_review(
            conn,
            books,
            reviews.Review(
                kind=Reason.KEY_CONFLICT.value,
                subject_kind=EFFECT,
                subject_id=str(effect.effect_id),
                severity="critical",
                owner=delays.owner,
                note="the recipient knows this key with another payload; nothing is sent again",
            ),
        )


def announce(
    conn: Connection, books: Books, effect: EffectView, to: State, handlers: tuple[str, ...]
) -> None:
    """Tell the settlement handlers, through the outbox, in this very transaction (rule HN-7)."""
    if not handlers:
        return
    outbox.add(
        conn,
        books,
        [
            outbox.Message(
                kind="settled",
                destination=f"handler:{handler}",
                message_id=f"{effect.effect_id}:{handler}",
                cause_kind=EFFECT,
                cause_id=effect.effect_id,
                type=effect.effect_type,
                body=json.dumps({"effect_id": str(effect.effect_id), "state": to.value}).encode(),
                lane="handle",
            )
            for handler in handlers
        ],
    )


def contradict(conn: Connection, books: Books, effect: EffectView, what: str) -> None:
    """A proof that contradicts a terminal state: an incident, and the state stands (rule RN-9)."""
    conn.execute(
        update(effects).where(effects.c.effect_id == effect.effect_id).values(is_contradicted=True)
    )
    reviews.open_review(
        conn,
        books,
        reviews.Review(
            kind=Reason.CONTRADICTION.value,
            subject_kind=EFFECT,
            subject_id=str(effect.effect_id),
            severity="critical",
            owner="installation",
            note=f"{effect.state.value} on record, yet {what}",
        ),
    )


def _come_again(
    conn: Connection, books: Books, effect: EffectView, lane: str, delay_us: int
) -> None:
    schedule.move(
        conn, books, kind=EFFECT, subject_id=effect.effect_id, lane=lane, delay_us=delay_us
    )


def _non_acts(conn: Connection, effect_id: UUID) -> int:
    """How many attempts are proven not to have acted."""
    rows = conn.execute(
        select(attempts.c.attempt_no).where(
            attempts.c.effect_id == effect_id,
            attempts.c.outcome.in_(["not_sent", "not_executed"]),
        )
    )
    return len(rows.all())


def _park(conn: Connection, books: Books, effect: EffectView, delays: Delays) -> None:
    """The budget of proven non-acts is spent (E23): no doubt, but a person must look."""
    conn.execute(
        update(effects)
        .where(effects.c.effect_id == effect.effect_id, effects.c.state == State.RETRY.value)
        .values(state=State.PARKED.value, reason=Reason.BUDGET_SPENT.value)
    )
    schedule.drop(conn, kind=EFFECT, subject_id=effect.effect_id)
    reviews.open_review(
        conn,
        books,
        reviews.Review(
            kind=Reason.BUDGET_SPENT.value,
            subject_kind=EFFECT,
            subject_id=str(effect.effect_id),
            severity="warning",
            owner=delays.owner,
            note="every attempt was proven not to have acted; it needs a person",
        ),
    )


def _supersede_older(conn: Connection, books: Books, effect: EffectView) -> None:
    """A newer version is confirmed: older ones never begun are moot (E30)."""
    rows = conn.execute(
        update(effects)
        .where(
            effects.c.order_domain == effect.order_domain,
            effects.c.order_key == effect.order_key,
            effects.c.version < effect.version,
            effects.c.state.in_([State.PENDING.value, State.RETRY.value, State.PARKED.value]),
        )
        .values(
            state=State.CANCELLED.value,
            reason=Reason.SUPERSEDED.value,
            certainty=Certainty.PROVEN.value,
            settled_at=books.at(conn),
            superseded_by=effect.effect_id,
        )
        .returning(effects.c.effect_id)
    )
    for effect_id in rows.scalars().all():
        schedule.drop(conn, kind=EFFECT, subject_id=effect_id)
