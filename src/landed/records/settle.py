"""What follows a move of an effect, in the same transaction: schedule, settlement, review, order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, func, select, update

from landed.effects.answer import AttemptAnswer, InFlight, KeyConflict, NotExecuted
from landed.effects.contract import Contract
from landed.effects.doubt import standing
from landed.effects.order import OrderPolicy
from landed.effects.state import TERMINAL, Certainty, Reason, State
from landed.effects.transitions import Happening, Kind, Standing, decide
from landed.records import outbox, reviews, schedule
from landed.records.effects import (
    EFFECT,
    EffectView,
    effect_lane,
    is_unsettled,
    moved,
    reconcile_lane,
    views,
)
from landed.records.ingest import ingest_mark
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
        "settled_mark": ingest_mark(),
        "certainty": certainty.value,
        "doubt_from": None,
    }
    if result is not None:
        values["result"] = result
        values["result_digest"] = digest_of(result)
    return values


def digest_of(result: bytes) -> bytes:
    """What is kept of a result when the result itself is scrubbed."""
    return hashlib.sha256(result).digest()


class Moved(NamedTuple):
    """One move that was written."""

    effect: EffectView
    """As it was before."""
    contract: Contract
    to: State
    delays: Delays
    answer: AttemptAnswer | None = None


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
    after_moves(conn, books, [Moved(effect, contract, to, delays, answer)])


def after_moves(conn: Connection, books: Books, moves: Sequence[Moved]) -> None:
    """Write what several moves bring with them; those that settle share their statements."""
    settled = [move for move in moves if move.to in TERMINAL]
    schedule.drop_all(conn, kind=EFFECT, subject_ids=[move.effect.effect_id for move in settled])
    outbox.add(conn, books, [message for move in settled for message in _announced(move)])
    for move in settled:
        if move.to is State.CONFIRMED and move.effect.order_policy == OrderPolicy.LATEST_WINS.value:
            _supersede_older(conn, books, move.effect, move.contract, move.delays)
    for move in moves:
        if move.to not in TERMINAL:
            _go_on(conn, books, move)


def _go_on(conn: Connection, books: Books, move: Moved) -> None:
    """Say when, and in which lane, an effect comes again that is not settled."""
    effect, contract, to, delays, answer = move
    if to is State.RETRY and _cancel_if_asked(conn, books, effect._replace(state=to), delays):
        return
    if to is State.RETRY:
        wait = answer.retry_after_s if isinstance(answer, NotExecuted) else None
        delay = delays.retry_us if wait is None else max(delays.retry_us, int(wait * 1_000_000))
        if _non_acts(conn, effect.effect_id) >= contract.non_acts_max:
            _park(conn, books, effect._replace(state=to), delays)
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


def _cancel_if_asked(conn: Connection, books: Books, effect: EffectView, delays: Delays) -> bool:
    """A cancel asked for while it was being sent takes place now that it did not act (E26)."""
    verdict = decide(Happening.CANCEL, Standing(state=effect.state, is_in_doubt=False))
    assert verdict.kind is Kind.MOVE, "what may be sent again may be cancelled"
    cancelled = conn.execute(
        update(effects)
        .where(
            effects.c.effect_id == effect.effect_id,
            effects.c.state == effect.state.value,
            effects.c.attempt_no == effect.attempt_no,
            effects.c.is_cancel_requested,
        )
        .values(
            state=verdict.to.value,
            reason=Reason.OPERATOR.value,
            **terminal_values(conn, books, None, Certainty.PROVEN),
        )
    )
    if cancelled.rowcount != 1:
        return False
    schedule.drop(conn, kind=EFFECT, subject_id=effect.effect_id)
    announce(conn, books, effect, verdict.to, delays.settled_handlers)
    return True


def announce(
    conn: Connection, books: Books, effect: EffectView, to: State, handlers: tuple[str, ...]
) -> None:
    """Tell the settlement handlers, through the outbox, in this very transaction (rule HN-7)."""
    outbox.add(conn, books, _messages(effect, to, handlers))


def _announced(move: Moved) -> list[outbox.Message]:
    return _messages(move.effect, move.to, move.delays.settled_handlers)


def _messages(effect: EffectView, to: State, handlers: tuple[str, ...]) -> list[outbox.Message]:
    return [
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
    ]


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
    """How many attempts are proven not to have acted, since a person last asked for another go."""
    return conn.execute(
        select(func.count())
        .select_from(attempts.join(effects, effects.c.effect_id == attempts.c.effect_id))
        .where(
            attempts.c.effect_id == effect_id,
            attempts.c.attempt_no > effects.c.budget_from,
            attempts.c.outcome.in_(["not_sent", "not_executed"]),
        )
    ).scalar_one()


def _park(conn: Connection, books: Books, effect: EffectView, delays: Delays) -> None:
    """The budget of proven non-acts is spent (E23): no doubt, but a person must look.

    ``effect`` stands in ``retry`` by now.
    """
    verdict = decide(Happening.NON_ACTS_SPENT, Standing(state=effect.state, is_in_doubt=False))
    if verdict.kind is not Kind.MOVE or not moved(
        conn, effect, verdict.to, {"reason": Reason.BUDGET_SPENT.value}
    ):
        return
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


def _supersede_older(
    conn: Connection, books: Books, newer: EffectView, contract: Contract, delays: Delays
) -> None:
    """A newer version is confirmed: older ones never begun are moot, others are asked about (E30)."""
    rows = conn.execute(
        select(effects.c.effect_id).where(
            effects.c.order_domain == newer.order_domain,
            effects.c.order_key == newer.order_key,
            effects.c.version < newer.version,
            effects.c.recipient == newer.recipient,  # another's order says nothing here (OG-7)
            is_unsettled(effects.c.state),
        )
    )
    for older in views(conn, list(rows.scalars())):
        verdict = decide(Happening.SUPERSEDED, standing(older.doubt, contract))
        if verdict.kind is Kind.MOVE:
            values = {
                "reason": Reason.SUPERSEDED.value,
                "superseded_by": newer.effect_id,
                **terminal_values(conn, books, None, Certainty.PROVEN),
            }
            if moved(conn, older, verdict.to, values):
                schedule.drop(conn, kind=EFFECT, subject_id=older.effect_id)
                announce(conn, books, older, verdict.to, delays.settled_handlers)
        elif older.state in (State.UNKNOWN, State.ACCEPTED):
            _come_again(conn, books, older, reconcile_lane(older.recipient), 0)
