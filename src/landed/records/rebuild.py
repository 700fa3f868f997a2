"""The schedule made anew from what remembers: outbox and effects (rule CL-8, invariant I-9)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from landed.effects.order import OrderPolicy
from landed.effects.state import State
from landed.records import outbox, schedule
from landed.records.effects import EFFECT, effect_lane, reconcile_lane
from landed.records.session import Books
from landed.records.tables import effects
from landed.records.tables import outbox as outbox_rows

_LANES = {
    State.PENDING.value: effect_lane,
    State.RETRY.value: effect_lane,
    State.ACCEPTED.value: reconcile_lane,
    State.UNKNOWN.value: reconcile_lane,
}
"""Where an open effect waits. One that is being sent waits for its answer, or for the reaper."""


def rebuild_schedule(conn: Connection, books: Books) -> schedule.Rebuilt:
    """Make the schedule agree with outbox and effects. Idempotent; loses only delays and claims.

    Transaction: the schedule and nothing else. Claims wait until it commits.
    """
    schedule.stop_claims(conn)
    return schedule.replace_all(conn, books, [*outbox_work(conn), *effect_work(conn)])


def outbox_work(conn: Connection) -> list[schedule.Work]:
    """What the outbox says is to be done; a parked row of a group blocks it in place (OB-8)."""
    rows = conn.execute(
        select(
            outbox_rows.c.outbox_id,
            outbox_rows.c.kind,
            outbox_rows.c.destination,
            outbox_rows.c.order_domain,
            outbox_rows.c.order_key,
            outbox_rows.c.order_seq,
            outbox_rows.c.state,
        ).where(outbox_rows.c.state.in_(["queued", "parked"]))
    )
    works = []
    for row in rows:
        is_grouped = row.order_key is not None
        if row.state == "parked" and not is_grouped:
            continue
        works.append(
            schedule.Work(
                outbox.lane_of(row.kind, row.destination),
                outbox.OUTBOX,
                row.outbox_id,
                group_key=outbox.group_key(row.destination, row.order_domain, row.order_key),
                group_seq=row.order_seq if is_grouped else None,
                delay_us=None if row.state == "parked" else 0,
            )
        )
    return works


def effect_work(conn: Connection) -> list[schedule.Work]:
    """What the effects say is to be done."""
    rows = conn.execute(
        select(
            effects.c.effect_id,
            effects.c.recipient,
            effects.c.state,
            effects.c.order_domain,
            effects.c.order_key,
            effects.c.order_policy,
            effects.c.version,
        ).where(effects.c.state.in_(list(_LANES)))
    )
    works = []
    for row in rows:
        is_strict = row.order_policy == OrderPolicy.STRICT.value
        works.append(
            schedule.Work(
                _LANES[row.state](row.recipient),
                EFFECT,
                row.effect_id,
                group_key=f"{row.order_domain}/{row.order_key}" if is_strict else None,
                group_seq=row.version if is_strict else None,
            )
        )
    return works
