"""Attempts: opened durably before the first byte may leave, closed once, answered late at worst."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, and_, exists, insert, or_, select, update

from landed.effects.answer import (
    Abandoned,
    Accepted,
    AttemptAnswer,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    NotSent,
    Refused,
    Success,
)
from landed.effects.contract import Contract
from landed.effects.doubt import (
    doubt_after,
    happening_of,
    reason_of,
    resend_limit_us,
    standing,
    weakest,
)
from landed.effects.state import TERMINAL, Certainty, Reason, State
from landed.effects.transitions import Happening, Kind, LateMove, decide, late, late_target
from landed.records import settle
from landed.records.effects import EffectView, moved, view
from landed.records.session import Books
from landed.records.tables import attempts, effects

GRACE_US = 5_000_000
"""After the send deadline, before the reaper calls an attempt abandoned."""


class Begun(NamedTuple):
    """The attempt is durable once the caller has committed; only then may a byte leave."""

    effect: EffectView
    attempt_no: int
    send_deadline_us: int


class NotBegun(NamedTuple):
    """Somebody else has it, it is held, waits for an older one, or may not be sent. Drop it."""

    effect: EffectView | None


def begin(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    *,
    worker: str,
) -> Begun | NotBegun:
    """Open the next attempt of an effect that was read a moment ago (rule AT-1).

    Transaction: effect to ``sending`` and its attempt row, or nothing (TX-BEGIN).
    """
    # Whether the contract allows a resend does not change while state and attempt stand still; only
    # its time runs out, and that is compared by the database below.
    allowed = standing(effect.doubt, contract, now_us=0)
    verdict = decide(Happening.BEGIN, allowed)
    if verdict.kind is not Kind.MOVE:
        return NotBegun(effect)
    at = books.at(conn)
    attempt_no = effect.attempt_no + 1
    conditions = [
        effects.c.effect_id == effect.effect_id,
        effects.c.state == effect.state.value,
        effects.c.attempt_no == effect.attempt_no,
        effects.c.held_by.is_(None),
        effects.c.is_cancel_requested.is_(False),
        or_(effects.c.not_after.is_(None), effects.c.not_after > at),
    ]
    limit = resend_limit_us(effect.doubt, contract)
    if effect.doubt_from is not None and not effect.is_absence_final and limit is not None:
        conditions.append(at < limit)
    if effect.order_domain is not None and effect.order_policy == "strict":
        older = effects.alias("older")
        conditions.append(
            ~exists().where(
                and_(
                    older.c.order_domain == effect.order_domain,
                    older.c.order_key == effect.order_key,
                    older.c.version < effect.version,
                    older.c.state.not_in([state.value for state in TERMINAL]),
                )
            )
        )
    row = conn.execute(
        update(effects)
        .where(*conditions)
        .values(
            state=verdict.to.value,
            attempt_no=attempt_no,
            reason=None,
            is_absence_final=False,
            first_begun_at=at if effect.first_begun_at is None else effects.c.first_begun_at,
            last_begun_at=at,
            first_sight_at=at if effect.first_sight_at is None else effects.c.first_sight_at,
            send_deadline=at + int(contract.timeout_s * 1_000_000),
        )
        .returning(effects.c.last_begun_at, effects.c.send_deadline, effects.c.first_sight_at)
    ).first()
    if row is None:
        return NotBegun(view(conn, effect.effect_id))
    conn.execute(
        insert(attempts).values(
            effect_id=effect.effect_id,
            attempt_no=attempt_no,
            begun_at=row.last_begun_at,
            worker=worker,
        )
    )
    begun = replace(
        effect,
        state=verdict.to,
        attempt_no=attempt_no,
        reason=None,
        is_absence_final=False,
        first_begun_at=effect.first_begun_at or row.last_begun_at,
        last_begun_at=row.last_begun_at,
        first_sight_at=row.first_sight_at,
        send_deadline=row.send_deadline,
    )
    return Begun(begun, attempt_no, row.send_deadline)


class Ended(NamedTuple):
    """What the answer made of the effect."""

    state: State
    was_late: bool


def end(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    answer: AttemptAnswer,
    *,
    delays: settle.Delays,
    attempt_no: int | None = None,
) -> Ended:
    """Close an attempt with its answer and move the effect, or record the answer as late (AT-6).

    Transaction: attempt, effect, result, doubt, schedule, settlement, review, or nothing (TX-END).

    Args:
        conn: inside a transaction.
        books: the ledger's.
        effect: as ``begin`` returned it, or as read since.
        contract: the one it is bound to.
        answer: by the contract's meaning.
        delays: when to come again.
        attempt_no: which attempt is answered; the effect's newest by default.
    """
    number = effect.attempt_no if attempt_no is None else attempt_no
    at = books.at(conn)
    closed = conn.execute(
        update(attempts)
        .where(
            attempts.c.effect_id == effect.effect_id,
            attempts.c.attempt_no == number,
            attempts.c.ended_at.is_(None),
        )
        .values(ended_at=at, outcome=outcome_of(answer), **_evidence(answer))
    )
    is_open = closed.rowcount == 1 and effect.state is State.SENDING and number == effect.attempt_no
    if is_open:
        to = _move(conn, books, effect, contract, answer, delays=delays)
        if to is None:
            # A late success of an earlier attempt was noted since ``begin``: look at it, once.
            fresh = view(conn, effect.effect_id)
            if fresh is not None and fresh.has_late_success != effect.has_late_success:
                to = _move(conn, books, fresh, contract, answer, delays=delays)
        if to is not None:
            return Ended(to, was_late=False)
    return _end_late(conn, books, effect.effect_id, contract, answer, number=number, delays=delays)


def reap(
    conn: Connection, books: Books, effect: EffectView, contract: Contract, *, delays: settle.Delays
) -> bool:
    """Close an attempt that nobody closed in time: the effect is unknown, never sendable (CL-4).

    Transaction: attempt, effect, schedule, or nothing (TX-REAP). Returns False if it was closed
    meanwhile. The caller has checked the deadline by the database's clock.
    """
    if effect.state is not State.SENDING:
        return False
    closed = conn.execute(
        update(attempts)
        .where(
            attempts.c.effect_id == effect.effect_id,
            attempts.c.attempt_no == effect.attempt_no,
            attempts.c.ended_at.is_(None),
        )
        .values(ended_at=books.at(conn), outcome=outcome_of(Abandoned()))
    )
    if closed.rowcount != 1:
        return False
    return _move(conn, books, effect, contract, Abandoned(), delays=delays) is not None


def overdue(conn: Connection, books: Books, *, limit: int) -> list[UUID]:
    """Effects whose open attempt is past its deadline and grace, oldest first."""
    rows = conn.execute(
        select(effects.c.effect_id)
        .where(effects.c.state == "sending", effects.c.send_deadline + GRACE_US < books.at(conn))
        .order_by(effects.c.send_deadline)
        .limit(limit)
    )
    return list(rows.scalars())


def outcome_of(answer: AttemptAnswer) -> str:
    """The word under which an attempt records an answer."""
    match answer:
        case Success():
            return "success"
        case Accepted():
            return "accepted"
        case Refused():
            return "refused"
        case Fenced():
            return "fenced"
        case NotExecuted():
            return "not_executed"
        case NotSent():
            return "not_sent"
        case InFlight():
            return "in_flight"
        case KeyConflict():
            return "key_conflict"
        case Abandoned():
            return "abandoned"
        case _:
            return "ambiguous"


def _move(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    answer: AttemptAnswer,
    *,
    delays: settle.Delays,
) -> State | None:
    """Write what the table says of an answer to the open attempt; None if the effect has moved."""
    number = effect.attempt_no
    doubt_from = doubt_after(effect.doubt, contract, answer, number)
    verdict = decide(happening_of(answer), standing(effect.doubt, contract, attempt_no=number))
    assert verdict.kind is Kind.MOVE, "every answer moves an open attempt"
    to = verdict.to
    if effect.has_late_success and to not in TERMINAL:
        # An earlier attempt's success came in while this one was open (rule SM-2).
        to, doubt_from = late_target(LateMove.CONFIRM, to), None
    values: dict[str, object] = {
        "doubt_from": doubt_from,
        "reason": _reason(answer, to, doubt_from),
    }
    if doubt_from is None and isinstance(answer, NotSent | NotExecuted):
        # Proven unsent: the recipient cannot have seen the key in this attempt.
        values["first_sight_at"] = None
    if isinstance(answer, Success | Accepted) and answer.recipient_ref is not None:
        values["recipient_ref"] = answer.recipient_ref
    if to in TERMINAL:
        result = answer.result if isinstance(answer, Success | Refused) else None
        values |= settle.terminal_values(conn, books, result, _certainty(effect, answer))
    if not moved(conn, effect, to, values):
        return None
    settle.after_move(conn, books, effect, contract, to, answer=answer, delays=delays)
    return to


def _certainty(effect: EffectView, answer: AttemptAnswer) -> Certainty:
    """A success is proof in itself; a no rests on what allowed this attempt as well (AT-14)."""
    if isinstance(answer, Success) or effect.certainty is None:
        return Certainty.PROVEN
    return weakest(Certainty.PROVEN, Certainty(effect.certainty))


def _reason(answer: AttemptAnswer, to: State, doubt_from: int | None) -> str | None:
    if to is not State.UNKNOWN:
        return None
    reason = reason_of(answer)
    if reason is not None:
        return reason.value
    return Reason.NO_ANSWER.value if doubt_from is not None else None


def _end_late(
    conn: Connection,
    books: Books,
    effect_id: UUID,
    contract: Contract,
    answer: AttemptAnswer,
    *,
    number: int,
    delays: settle.Delays,
) -> Ended:
    """An answer to an attempt that is no longer open: recorded always, applied by rule SM-2."""
    conn.execute(
        update(attempts)
        .where(
            attempts.c.effect_id == effect_id,
            attempts.c.attempt_no == number,
            attempts.c.late_outcome.is_(None),
        )
        .values(late_outcome=outcome_of(answer), late_at=books.at(conn), **_evidence(answer))
    )
    effect = view(conn, effect_id)
    assert effect is not None, "effects are never deleted"
    result = answer.result if isinstance(answer, Success) else None
    is_same = (
        result is None
        or effect.result_digest is None
        or not contract.is_answer_final_for_all
        or hashlib.sha256(result).digest() == effect.result_digest
    )
    step = late(
        happening_of(answer),
        effect.state,
        is_newest=number == effect.attempt_no,
        is_same_result=is_same,
    )
    if step is LateMove.CONFIRM and effect.reason == Reason.ATTESTED_ABSENT.value:
        # A person said that it did not act, and it did: an incident, never a silent change (RN-9).
        step = LateMove.CONTRADICT
    match step:
        case LateMove.CONFIRM:
            values = {
                "doubt_from": None,
                "reason": None,
                **settle.terminal_values(conn, books, result, Certainty.PROVEN),
            }
            to = late_target(step, effect.state)
            if moved(conn, effect, to, values):
                settle.after_move(conn, books, effect, contract, to, answer=answer, delays=delays)
                return Ended(to, was_late=True)
        case LateMove.NOTE_SUCCESS:
            moved(conn, effect, effect.state, {"has_late_success": True})
        case LateMove.CONTRADICT:
            settle.contradict(conn, books, effect, f"attempt {number} answered late: it acted")
        case LateMove.RECORD:
            pass
    return Ended(effect.state, was_late=True)


def _evidence(answer: AttemptAnswer) -> dict[str, object]:
    values: dict[str, object] = {}
    code = getattr(answer, "code", "")
    detail = getattr(answer, "detail", "")
    result = getattr(answer, "result", None)
    if code:
        values["answer_code"] = code
    if detail:
        values["error"] = detail[:500]
    if result is not None:
        values["answer_digest"] = hashlib.sha256(result).digest()
    return values
