"""Attempts: opened durably before the first byte may leave, closed once, answered late at worst.

Several are opened or closed in one transaction, by the same statements as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    Connection,
    Row,
    Update,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    update,
)

from landed.effects.answer import (
    Abandoned,
    Accepted,
    AttemptAnswer,
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
from landed.effects.order import OrderPolicy
from landed.effects.state import TERMINAL, Certainty, Reason, State
from landed.effects.transitions import Happening, Kind, LateMove, Standing, decide, late_target
from landed.records import settle
from landed.records.answers import evidence_of, outcome_of
from landed.records.effects import EffectView, is_unsettled, view, views
from landed.records.ingest import ingest_mark
from landed.records.late import end_late
from landed.records.prepared import BYTES, FLAG, ID, NUMBER, TEXT, Each, Shape, Values
from landed.records.session import Books
from landed.records.tables import attempts, effects

_BEGUN: Final = decide(Happening.BEGIN, Standing(state=State.PENDING, is_in_doubt=False)).to
"""Where the table has every effect go whose attempt begins."""
GRACE_US: Final = 5_000_000
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
    return begin_all(conn, books, [(effect, contract)], worker=worker)[0]


def begin_all(
    conn: Connection,
    books: Books,
    asked: Sequence[tuple[EffectView, Contract]],
    *,
    worker: str,
) -> list[Begun | NotBegun]:
    """Open the next attempt of several effects, each under its own guard (rule AT-1).

    One that cannot be begun hinders no other. Returns what became of each, in the order given.
    """
    # Whether the contract allows a resend does not change while state and attempt stand still; only
    # its time runs out, and that is compared by the database below.
    tried = {
        effect.effect_id: (effect, contract)
        for effect, contract in asked
        if decide(Happening.BEGIN, standing(effect.doubt, contract, now_us=0)).kind is Kind.MOVE
    }
    rows = [
        {
            "effect_id": effect_id,
            "state": effect.state.value,
            "attempt_no": effect.attempt_no,
            "begin_before": _begin_before(effect, contract),
            "timeout_us": int(contract.timeout_s * 1_000_000),
        }
        for effect_id, (effect, contract) in tried.items()
    ]
    opened = {row.effect_id: row for row in _open(conn, books, rows)}
    _RECORD.run(
        conn,
        books,
        [
            {
                "effect_id": effect_id,
                "attempt_no": row.attempt_no,
                "begun_at": row.last_begun_at,
                "worker": worker,
            }
            for effect_id, row in opened.items()
        ],
    )
    missed = {found.effect_id: found for found in views(conn, list(tried.keys() - opened.keys()))}
    return [
        Begun(
            effect._replace(
                state=_BEGUN,
                attempt_no=row.attempt_no,
                reason=None,
                is_absence_final=False,
                first_begun_at=row.first_begun_at,
                last_begun_at=row.last_begun_at,
                first_sight_at=row.first_sight_at,
                send_deadline=row.send_deadline,
            ),
            row.attempt_no,
            row.send_deadline,
        )
        if (row := opened.get(effect.effect_id)) is not None
        else NotBegun(missed.get(effect.effect_id) if effect.effect_id in tried else effect)
        for effect, _ in asked
    ]


def _open(conn: Connection, books: Books, rows: Sequence[Values]) -> Sequence[Row[Any]]:
    """Move effects to ``sending``; those whose guard no longer holds are left alone."""
    # In one order everywhere, or two workers that meet could wait for each other.
    return _OPEN.returned(conn, books, sorted(rows, key=lambda row: str(row["effect_id"])))


def _opening(each: Shape) -> Update:
    older = effects.alias("older")
    waits_for_older = and_(
        effects.c.order_policy == OrderPolicy.STRICT.value,
        exists().where(
            older.c.order_domain == effects.c.order_domain,
            older.c.order_key == effects.c.order_key,
            older.c.version < effects.c.version,
            is_unsettled(older.c.state),
        ),
    )
    return (
        update(effects)
        .where(
            effects.c.effect_id == each["effect_id"],
            effects.c.state == each["state"],
            effects.c.attempt_no == each["attempt_no"],
            effects.c.held_by.is_(None),
            effects.c.is_cancel_requested.is_(False),
            or_(effects.c.not_after.is_(None), effects.c.not_after > each.at),
            or_(each["begin_before"].is_(None), each["begin_before"] > each.at),
            ~func.coalesce(waits_for_older, False),
        )
        .values(
            state=_BEGUN.value,
            attempt_no=effects.c.attempt_no + 1,
            reason=None,
            is_absence_final=False,
            first_begun_at=func.coalesce(effects.c.first_begun_at, each.at),
            last_begun_at=each.at,
            first_sight_at=func.coalesce(effects.c.first_sight_at, each.at),
            send_deadline=each.at + each["timeout_us"],
        )
        .returning(
            effects.c.effect_id,
            effects.c.attempt_no,
            effects.c.first_begun_at,
            effects.c.last_begun_at,
            effects.c.first_sight_at,
            effects.c.send_deadline,
        )
    )


_OPEN: Final = Each(
    _opening, effect_id=ID, state=TEXT, attempt_no=NUMBER, begin_before=NUMBER, timeout_us=NUMBER
)
_RECORD: Final = Each(
    lambda each: each.insert(attempts),
    effect_id=ID,
    attempt_no=NUMBER,
    begun_at=NUMBER,
    worker=TEXT,
)


def _begin_before(effect: EffectView, contract: Contract) -> int | None:
    """The last moment of a resend in doubt; None where there is no doubt, or no end (CT-6)."""
    if effect.doubt_from is None or effect.is_absence_final:
        return None
    return resend_limit_us(effect.doubt, contract)


class Answered(NamedTuple):
    """An attempt and what came back, by the contract's meaning."""

    effect: EffectView
    """As ``begin`` returned it, or as read since."""
    contract: Contract
    answer: AttemptAnswer
    delays: settle.Delays
    """When to come again."""
    attempt_no: int

    @property
    def is_newest(self) -> bool:
        return self.effect.state is State.SENDING and self.attempt_no == self.effect.attempt_no


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
    return end_all(conn, books, [Answered(effect, contract, answer, delays, number)])[0]


def end_all(conn: Connection, books: Books, answered: Sequence[Answered]) -> list[Ended]:
    """Close several attempts, each by its own answer and under its own guard (AT-6).

    Transaction: attempt, effect, result, doubt, schedule, settlement, review, or nothing (TX-END).
    Returns what each answer made of its effect, in the order given.
    """
    closed = _close(conn, books, answered)
    in_time = [
        one.is_newest and (one.effect.effect_id, one.attempt_no) in closed for one in answered
    ]
    moved = _move(
        conn, books, [one for one, is_open in zip(answered, in_time, strict=True) if is_open]
    )
    ended = []
    for one, is_open in zip(answered, in_time, strict=True):
        to = moved.get(one.effect.effect_id) if is_open else None
        if is_open and to is None:
            to = _move_again(conn, books, one)
        ended.append(_late(conn, books, one) if to is None else Ended(to, was_late=False))
    return ended


def _move_again(conn: Connection, books: Books, one: Answered) -> State | None:
    """A late success of an earlier attempt was noted since ``begin``: look at it, once."""
    fresh = view(conn, one.effect.effect_id)
    if fresh is None or fresh.has_late_success == one.effect.has_late_success:
        return None
    return _move(conn, books, [one._replace(effect=fresh)]).get(fresh.effect_id)


def _late(conn: Connection, books: Books, one: Answered) -> Ended:
    stands = end_late(
        conn,
        books,
        one.effect.effect_id,
        one.contract,
        one.answer,
        attempt_no=one.attempt_no,
        delays=one.delays,
    )
    return Ended(stands, was_late=True)


def reap(
    conn: Connection, books: Books, effect: EffectView, contract: Contract, *, delays: settle.Delays
) -> bool:
    """Close an attempt that nobody closed in time: the effect is unknown, never sendable (CL-4).

    Transaction: attempt, effect, schedule, or nothing (TX-REAP). Returns False if it was closed
    meanwhile. The caller has checked the deadline by the database's clock.
    """
    if effect.state is not State.SENDING:
        return False
    one = Answered(effect, contract, Abandoned(), delays, effect.attempt_no)
    if not _close(conn, books, [one]):
        return False
    return effect.effect_id in _move(conn, books, [one])


def overdue(conn: Connection, books: Books, *, limit: int) -> list[UUID]:
    """Effects whose open attempt is past its deadline and grace, oldest first."""
    rows = conn.execute(
        select(effects.c.effect_id)
        .where(effects.c.state == "sending", effects.c.send_deadline + GRACE_US < books.at(conn))
        .order_by(effects.c.send_deadline)
        .limit(limit)
    )
    return list(rows.scalars())


def _close(conn: Connection, books: Books, answered: Sequence[Answered]) -> set[tuple[UUID, int]]:
    """Write answers to open attempts; returns which were open."""
    rows = [
        {
            "effect_id": one.effect.effect_id,
            "attempt_no": one.attempt_no,
            "outcome": outcome_of(one.answer),
            **evidence_of(one.answer),
        }
        for one in answered
    ]
    return {(row.effect_id, row.attempt_no) for row in _CLOSE.returned(conn, books, rows)}


def _closing(each: Shape) -> Update:
    return (
        update(attempts)
        .where(
            attempts.c.effect_id == each["effect_id"],
            attempts.c.attempt_no == each["attempt_no"],
            attempts.c.ended_at.is_(None),
        )
        .values(
            ended_at=each.at,
            outcome=each["outcome"],
            answer_code=each["answer_code"],
            answer_digest=each["answer_digest"],
            error=each["error"],
        )
        .returning(attempts.c.effect_id, attempts.c.attempt_no)
    )


_CLOSE: Final = Each(
    _closing,
    effect_id=ID,
    attempt_no=NUMBER,
    outcome=TEXT,
    answer_code=TEXT,
    answer_digest=BYTES,
    error=TEXT,
)


class _Target(NamedTuple):
    """Where the table sends an effect, and what stands in its row then."""

    to: State
    doubt_from: int | None
    reason: str | None
    forgets_sight: bool
    """Proven unsent: the recipient cannot have seen the key in this attempt."""
    recipient_ref: str | None
    certainty: Certainty | None
    """Of a terminal state."""
    result: bytes | None


def _target(one: Answered) -> _Target:
    """What the table makes of an answer to the open attempt."""
    effect, contract, answer = one.effect, one.contract, one.answer
    doubt_from = doubt_after(effect.doubt, contract, answer, one.attempt_no)
    verdict = decide(
        happening_of(answer), standing(effect.doubt, contract, attempt_no=one.attempt_no)
    )
    assert verdict.kind is Kind.MOVE, "every answer moves an open attempt"
    to = verdict.to
    if effect.has_late_success and to not in TERMINAL:
        # An earlier attempt's success came in while this one was open (rule SM-2).
        to, doubt_from = late_target(LateMove.CONFIRM, to), None
    is_settled = to in TERMINAL
    return _Target(
        to=to,
        doubt_from=None if is_settled else doubt_from,
        reason=_reason(answer, to, doubt_from),
        forgets_sight=doubt_from is None and isinstance(answer, NotSent | NotExecuted),
        recipient_ref=answer.recipient_ref if isinstance(answer, Success | Accepted) else None,
        certainty=_certainty(effect, answer) if is_settled else None,
        result=answer.result if is_settled and isinstance(answer, Success | Refused) else None,
    )


def _move(conn: Connection, books: Books, answered: Sequence[Answered]) -> dict[UUID, State]:
    """Write what the table says of answers to open attempts; left out: what has moved meanwhile."""
    targets = {one.effect.effect_id: _target(one) for one in answered}
    rows = [
        {
            "effect_id": one.effect.effect_id,
            "attempt_no": one.attempt_no,
            "has_late_success": one.effect.has_late_success,
            "to": target.to.value,
            "doubt_from": target.doubt_from,
            "reason": target.reason,
            "forgets_sight": target.forgets_sight,
            "recipient_ref": target.recipient_ref,
            "certainty": None if target.certainty is None else target.certainty.value,
            "result": target.result,
            "result_digest": None if target.result is None else settle.digest_of(target.result),
        }
        for one, target in ((one, targets[one.effect.effect_id]) for one in answered)
    ]
    written = {row.effect_id for row in _MOVE.returned(conn, books, rows)}
    moved = {effect_id: targets[effect_id].to for effect_id in targets if effect_id in written}
    settle.after_moves(
        conn,
        books,
        [
            settle.Moved(
                one.effect, one.contract, moved[one.effect.effect_id], one.delays, one.answer
            )
            for one in answered
            if one.effect.effect_id in moved
        ],
    )
    return moved


def _moving(each: Shape) -> Update:
    is_settled = each["certainty"].is_not(None)
    return (
        update(effects)
        .where(
            effects.c.effect_id == each["effect_id"],
            effects.c.state == State.SENDING.value,
            effects.c.attempt_no == each["attempt_no"],
            effects.c.has_late_success == each["has_late_success"],
        )
        .values(
            state=each["to"],
            doubt_from=each["doubt_from"],
            reason=each["reason"],
            first_sight_at=case((each["forgets_sight"], None), else_=effects.c.first_sight_at),
            recipient_ref=func.coalesce(each["recipient_ref"], effects.c.recipient_ref),
            certainty=func.coalesce(each["certainty"], effects.c.certainty),
            result=func.coalesce(each["result"], effects.c.result),
            result_digest=func.coalesce(each["result_digest"], effects.c.result_digest),
            settled_at=case((is_settled, each.at), else_=effects.c.settled_at),
            settled_mark=case((is_settled, ingest_mark()), else_=effects.c.settled_mark),
        )
        .returning(effects.c.effect_id)
    )


_MOVE: Final = Each(
    _moving,
    effect_id=ID,
    attempt_no=NUMBER,
    has_late_success=FLAG,
    to=TEXT,
    doubt_from=NUMBER,
    reason=TEXT,
    forgets_sight=FLAG,
    recipient_ref=TEXT,
    certainty=TEXT,
    result=BYTES,
    result_digest=BYTES,
)


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
