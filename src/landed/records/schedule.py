"""Who works on what next: the only hot table, and disposable.

A claim lives here and nowhere else, and says only who works next; it never says whether an effect
may act or has acted (invariants I-8, I-9). Losing every row costs a rebuild and no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Update,
    and_,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from landed.records.prepared import ID, NUMBER, TEXT, Each, Prepared, Shape
from landed.records.session import Books, is_postgres
from landed.records.tables import schedule

_PAGE: Final = 500
LEASE_US: Final = 30_000_000
"""Default length of a claim, microseconds; longer than a handler should take."""


class Work(NamedTuple):
    """A row to be put on the schedule. ``delay_us`` None parks it in place."""

    lane: str
    kind: str
    subject_id: UUID
    group_key: str | None = None
    group_seq: int | None = None
    delay_us: int | None = 0


class Claim(NamedTuple):
    """One claimed row. Scheduling only."""

    work_id: UUID
    lane: str
    kind: str
    subject_id: UUID
    claims: int
    token: UUID


def put(conn: Connection, books: Books, works: Sequence[Work]) -> None:
    """Put work on the schedule; work that is there already is left as it is."""
    if not works:
        return
    _PUT.run(
        conn,
        books,
        [
            {
                "work_id": books.new_id(),
                "lane": work.lane,
                "kind": work.kind,
                "subject_id": work.subject_id,
                "group_key": work.group_key,
                "group_seq": work.group_seq,
                "after_us": work.delay_us,
            }
            for work in works
        ],
    )


def claim(
    conn: Connection,
    books: Books,
    *,
    lane: str,
    owner: str,
    limit: int,
    lease_us: int = LEASE_US,
) -> list[Claim]:
    """Claim due work of a lane, oldest first, one row of a group at a time.

    A row is due if its time has come and nobody holds it; of a group only the head is (rule OB-7).
    Transaction: TX-CLAIM, lease fields and nothing else.
    """
    token = books.new_id()
    claimed = _CLAIM.execute(
        conn, books, lane=lane, owner=owner, token=token, limit=limit, lease_us=lease_us
    )
    rows: Sequence[Row[tuple[UUID, str, str, UUID, int, int]]] = claimed.all()
    return [
        Claim(row.work_id, row.lane, row.kind, row.subject_id, row.claims, token)
        for row in sorted(rows, key=lambda row: row.ready_at)
    ]


def _claiming(shape: Shape) -> Update:
    other = schedule.alias("other")
    is_head = or_(
        schedule.c.group_key.is_(None),
        ~exists().where(
            other.c.lane == schedule.c.lane,
            other.c.group_key == schedule.c.group_key,
            other.c.group_seq < schedule.c.group_seq,
        ),
    )
    due = (
        select(schedule.c.work_id)
        .where(
            schedule.c.lane == shape["lane"],
            schedule.c.ready_at <= shape.at,
            or_(schedule.c.lease_until.is_(None), schedule.c.lease_until < shape.at),
            is_head,
        )
        .order_by(schedule.c.ready_at)
        .limit(shape["limit"])
    )
    chosen: ColumnElement[bool]
    if shape.is_postgres:
        # Materialised, or the planner may run the inner select again and claim past the limit.
        locked = (
            due.with_for_update(skip_locked=True, of=schedule)
            .cte("due")
            .prefix_with("MATERIALIZED", dialect="postgresql")
        )
        chosen = schedule.c.work_id.in_(select(locked.c.work_id))
    else:
        chosen = schedule.c.work_id.in_(due)
    return (
        update(schedule)
        .where(chosen)
        .values(
            lease_owner=shape["owner"],
            lease_token=shape["token"],
            lease_until=shape.at + shape["lease_us"],
            claims=schedule.c.claims + 1,
        )
        .returning(
            schedule.c.work_id,
            schedule.c.lane,
            schedule.c.kind,
            schedule.c.subject_id,
            schedule.c.claims,
            schedule.c.ready_at,
        )
    )


def finish(conn: Connection, claims: Sequence[Claim]) -> int:
    """Take finished work off the schedule, by token; what another holds meanwhile is left alone.

    Returns how many rows were still ours (rule CL-2).
    """
    if not claims:
        return 0
    return _FINISH.execute(conn, **_ours(claims)).rowcount


def _ours(claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "works": [claim.work_id for claim in claims],
        "tokens": list({claim.token for claim in claims}),
    }


def _are_ours(shape: Shape) -> ColumnElement[bool]:
    return and_(
        shape.among(schedule.c.work_id, "works"), shape.among(schedule.c.lease_token, "tokens")
    )


_PUT: Final = Each(
    lambda each: each.insert(
        schedule, ready_at=each.at + each["after_us"]
    ).on_conflict_do_nothing(),
    work_id=ID,
    lane=TEXT,
    kind=TEXT,
    subject_id=ID,
    group_key=TEXT,
    group_seq=NUMBER,
    after_us=NUMBER,
)
_CLAIM: Final = Prepared(_claiming, lane=TEXT, owner=TEXT, token=ID, limit=NUMBER, lease_us=NUMBER)
_FINISH: Final = Prepared(lambda shape: delete(schedule).where(_are_ours(shape)))
_RENEW: Final = Prepared(
    lambda shape: (
        update(schedule).where(_are_ours(shape)).values(lease_until=shape.at + shape["lease_us"])
    ),
    lease_us=NUMBER,
)
_DROP: Final = Prepared(
    lambda shape: delete(schedule).where(
        schedule.c.kind == shape["kind"], shape.among(schedule.c.subject_id, "subjects")
    ),
    kind=TEXT,
)


def rearm(
    conn: Connection, books: Books, claim: Claim, *, delay_us: int | None, lane: str | None = None
) -> bool:
    """Give claimed work back, due after a delay; None parks it in place. By token.

    Returns whether it was still ours.
    """
    at = books.at(conn)
    result = conn.execute(
        update(schedule)
        .where(schedule.c.work_id == claim.work_id, schedule.c.lease_token == claim.token)
        .values(
            lane=claim.lane if lane is None else lane,
            ready_at=None if delay_us is None else at + delay_us,
            lease_owner=None,
            lease_token=None,
            lease_until=None,
        )
    )
    return result.rowcount == 1


def renew(
    conn: Connection, books: Books, claims: Sequence[Claim], *, lease_us: int = LEASE_US
) -> int:
    """Hold on to claims for longer; returns how many are still ours (case BC-22, rule CL-5)."""
    if not claims:
        return 0
    return _RENEW.execute(conn, books, lease_us=lease_us, **_ours(claims)).rowcount


def move(
    conn: Connection,
    books: Books,
    *,
    kind: str,
    subject_id: UUID,
    lane: str,
    delay_us: int | None,
    group_key: str | None = None,
    group_seq: int | None = None,
) -> None:
    """Put a subject's work in a lane, due after a delay, whoever held it before.

    For transitions that decide what happens next; an old holder's finish no longer matches.
    """
    at = books.at(conn)
    values = {
        "lane": lane,
        "ready_at": None if delay_us is None else at + delay_us,
        "lease_owner": None,
        "lease_token": None,
        "lease_until": None,
    }
    updated = conn.execute(
        update(schedule)
        .where(schedule.c.kind == kind, schedule.c.subject_id == subject_id)
        .values(**values)
    )
    if updated.rowcount == 0:
        conn.execute(
            insert(schedule).values(
                work_id=books.new_id(),
                kind=kind,
                subject_id=subject_id,
                group_key=group_key,
                group_seq=group_seq,
                **values,
            )
        )


def drop(conn: Connection, *, kind: str, subject_id: UUID) -> None:
    """Nothing is left to do for a subject."""
    drop_all(conn, kind=kind, subject_ids=[subject_id])


def drop_all(conn: Connection, *, kind: str, subject_ids: Collection[UUID]) -> None:
    """Nothing is left to do for several subjects."""
    if subject_ids:
        _DROP.execute(conn, kind=kind, subjects=list(subject_ids))


class Rebuilt(NamedTuple):
    """What a rebuild found: rows it took away, rows it put, and rows there are now."""

    removed: int
    put: int
    total: int


def replace_all(conn: Connection, books: Books, works: Sequence[Work]) -> Rebuilt:
    """Make the schedule hold exactly this work (rule CL-8); nobody claims meanwhile.

    Rows that are right already keep their claims and due times.
    """
    stop_claims(conn)
    wanted = {(work.kind, work.subject_id): work for work in works}
    stale = []
    held: set[tuple[str, UUID]] = set()
    for row in conn.execute(
        select(schedule.c.work_id, schedule.c.kind, schedule.c.subject_id, schedule.c.lane)
    ):
        work = wanted.get((row.kind, row.subject_id))
        if work is None or work.lane != row.lane:
            stale.append(row.work_id)
        else:
            held.add((row.kind, row.subject_id))
    for start in range(0, len(stale), _PAGE):
        conn.execute(delete(schedule).where(schedule.c.work_id.in_(stale[start : start + _PAGE])))
    missing = [work for key, work in wanted.items() if key not in held]
    for start in range(0, len(missing), _PAGE):
        put(conn, books, missing[start : start + _PAGE])
    return Rebuilt(len(stale), len(missing), len(wanted))


def stop_claims(conn: Connection) -> None:
    """Let nobody claim until this transaction ends; on SQLite it is the only writer anyway."""
    if is_postgres(conn.dialect):
        conn.exec_driver_sql(f"LOCK TABLE {schedule.name} IN EXCLUSIVE MODE")
