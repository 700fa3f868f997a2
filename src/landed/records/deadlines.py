"""What time alone may do to an effect: cancel what was never begun, and ask a person. No more.

Time never settles a doubt and never makes anything sendable (invariant I-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, update

from landed.effects.contract import Contract
from landed.effects.doubt import resend_limit_us, standing
from landed.effects.order import OrderPolicy
from landed.effects.state import Certainty, Reason, State
from landed.effects.transitions import Happening, Kind, decide
from landed.records import reviews, settle
from landed.records.effects import EFFECT, EffectView, moved
from landed.records.session import Books
from landed.records.tables import effects, order_heads, outbox, schedule

_EXPIRING = [State.PENDING.value, State.RETRY.value, State.PARKED.value]
_DOUBTFUL = [State.UNKNOWN.value, State.ACCEPTED.value]


def expired(conn: Connection, books: Books, *, limit: int) -> list[UUID]:
    """Effects without doubt whose business deadline has passed, oldest deadline first."""
    rows = conn.execute(
        select(effects.c.effect_id)
        .where(
            effects.c.not_after.is_not(None),
            effects.c.state.in_(_EXPIRING),
            effects.c.not_after <= books.at(conn),
        )
        .order_by(effects.c.not_after)
        .limit(limit)
    )
    return list(rows.scalars())


def expire(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    *,
    now_us: int,
    delays: settle.Delays,
) -> bool:
    """Cancel an effect without doubt whose business deadline has passed (EF-9, E29).

    Transaction: effect, schedule, settlement, or nothing. Returns whether it was cancelled.
    """
    if effect.not_after is None or effect.not_after > now_us:
        return False
    verdict = decide(Happening.EXPIRED, standing(effect.doubt, contract))
    if verdict.kind is not Kind.MOVE:
        return False
    values = {
        "reason": Reason.EXPIRED.value,
        **settle.terminal_values(conn, books, None, Certainty.PROVEN),
    }
    if not moved(conn, effect, verdict.to, values):
        return False
    settle.after_move(conn, books, effect, contract, verdict.to, delays=delays)
    return True


def doubtful(conn: Connection, *, limit: int, after: UUID | None = None) -> list[UUID]:
    """Effects that wait for an answer, in the order of their ids; ``after`` goes on from a page."""
    conditions: list[ColumnElement[bool]] = [effects.c.state.in_(_DOUBTFUL)]
    if after is not None:
        conditions.append(effects.c.effect_id > after)
    rows = conn.execute(
        select(effects.c.effect_id).where(*conditions).order_by(effects.c.effect_id).limit(limit)
    )
    return list(rows.scalars())


def is_horizon_passed(effect: EffectView, contract: Contract, *, now_us: int) -> bool:
    """A same key is safe there, but not any more for this effect: its memory may be over (CT-6)."""
    limit = resend_limit_us(effect.doubt, contract)
    return (
        effect.state is State.UNKNOWN
        and effect.doubt_from is not None
        and contract.is_same_key_safe
        and limit is not None
        and now_us >= limit
    )


def pass_horizon(
    conn: Connection,
    books: Books,
    effect: EffectView,
    contract: Contract,
    *,
    delays: settle.Delays,
) -> bool:
    """Say that no resend can settle this doubt any more, and ask a person (E22).

    Transaction: reason, review and alert, or nothing. Returns whether it was news.
    """
    if effect.reason in (Reason.HORIZON_PASSED.value, Reason.KEY_CONFLICT.value):
        return False
    verdict = decide(Happening.RESEND_OVER, standing(effect.doubt, contract))
    if verdict.kind is not Kind.STAY:
        return False
    if not moved(conn, effect, verdict.to, {"reason": Reason.HORIZON_PASSED.value}):
        return False
    reviews.open_review(
        conn,
        books,
        reviews.Review(
            kind=Reason.HORIZON_PASSED.value,
            subject_kind=EFFECT,
            subject_id=str(effect.effect_id),
            severity="critical",
            owner=delays.owner,
            note=f"{effect.recipient}: it may have acted, and the recipient may have forgotten the "
            "key; a look-up, a seal or a person may still settle it",
        ),
    )
    return True


def ask_person(
    conn: Connection, books: Books, effect: EffectView, *, why: str, delays: settle.Delays
) -> bool:
    """Open the review of a doubt that nothing settles by itself. Returns whether it was opened."""
    return reviews.open_review(
        conn,
        books,
        reviews.Review(
            kind="doubt",
            subject_kind=EFFECT,
            subject_id=str(effect.effect_id),
            severity="warning",
            owner=delays.owner,
            note=f"{effect.recipient}: {effect.state.value}, and {why}",
        ),
    )


def newer_confirmed_us(conn: Connection, effect: EffectView) -> int | None:
    """Since when a newer version of its order key is confirmed at the recipient (rule OR-8)."""
    if effect.order_domain is None:
        return None
    since: int | None = conn.execute(
        select(func.min(effects.c.settled_at)).where(
            effects.c.order_domain == effect.order_domain,
            effects.c.order_key == effect.order_key,
            effects.c.version > effect.version,
            effects.c.recipient == effect.recipient,  # another's order says nothing here (OG-7)
            effects.c.state == State.CONFIRMED.value,
        )
    ).scalar()
    return since


def is_overtaken(conn: Connection, effect: EffectView, contract: Contract) -> bool:
    """A newer version was begun where nothing but a seal keeps the order (rules OR-6, OG-5).

    An old decision that comes so late is sealed instead of sent: this recipient compares no versions,
    and would go back. Asked in the transaction that begins an attempt; whoever asks about the same order
    key at the same time waits for its end.
    """
    if (
        effect.order_policy != OrderPolicy.STRICT.value
        or contract.seal is None
        or contract.fence is not None
    ):
        return False
    conn.execute(
        select(order_heads.c.last_version)
        .where(
            order_heads.c.order_domain == effect.order_domain,
            order_heads.c.order_key == effect.order_key,
        )
        .with_for_update()
    )
    may_have_acted = or_(
        effects.c.state == State.CONFIRMED.value,
        and_(
            effects.c.first_sight_at.is_not(None),
            effects.c.state.in_([State.SENDING.value, State.UNKNOWN.value, State.ACCEPTED.value]),
        ),
    )
    return _any_newer(conn, effect, and_(effects.c.recipient == effect.recipient, may_have_acted))


def is_newer_waiting(conn: Connection, effect: EffectView) -> bool:
    """A newer version of its order key cannot begin before this one is settled (rule OR-6)."""
    if effect.order_domain is None:
        return False
    waiting = effects.c.state.in_([State.PENDING.value, State.RETRY.value])
    return _any_newer(conn, effect, waiting)


def wake_older(conn: Connection, books: Books, effect: EffectView) -> int:
    """Have older doubts of the same order key asked about that only waited for a person (OR-6).

    Now that a newer effect waits for them, a seal may settle them. Returns how many were woken.
    """
    if effect.order_domain is None:
        return 0
    older = select(effects.c.effect_id).where(
        effects.c.order_domain == effect.order_domain,
        effects.c.order_key == effect.order_key,
        effects.c.version < effect.version,
        effects.c.state == State.UNKNOWN.value,
    )
    woken = conn.execute(
        update(schedule)
        .where(
            schedule.c.kind == EFFECT,
            schedule.c.subject_id.in_(older),
            schedule.c.ready_at.is_(None),
        )
        .values(ready_at=books.at(conn))
    )
    return woken.rowcount


class DoubtAge(NamedTuple):
    """The oldest doubt of one recipient, and how many there are (rule RN-10)."""

    recipient: str
    age_us: int
    doubts: int


def doubt_ages(conn: Connection, books: Books) -> Sequence[DoubtAge]:
    """The oldest doubt per recipient, counted from the first sight of its key."""
    since = func.min(func.coalesce(effects.c.first_sight_at, effects.c.created_at))
    rows = conn.execute(
        select(effects.c.recipient, (books.at(conn) - since).label("age"), func.count().label("n"))
        .where(effects.c.state.in_(_DOUBTFUL))
        .group_by(effects.c.recipient)
    )
    return [DoubtAge(row.recipient, max(0, int(row.age)), row.n) for row in rows]


def alert_age_us(conn: Connection, books: Books) -> int:
    """How old the oldest alert is that nobody was told of yet; 0: none (rule AL-4)."""
    age = conn.execute(
        select(books.at(conn) - func.min(outbox.c.created_at)).where(
            outbox.c.kind == "alert", or_(outbox.c.state == "queued", outbox.c.state == "parked")
        )
    ).scalar()
    return 0 if age is None else max(0, int(age))


def _any_newer(conn: Connection, effect: EffectView, condition: ColumnElement[bool]) -> bool:
    return bool(
        conn.execute(
            select(
                exists().where(
                    effects.c.order_domain == effect.order_domain,
                    effects.c.order_key == effect.order_key,
                    effects.c.version > effect.version,
                    condition,
                )
            )
        ).scalar()
    )
