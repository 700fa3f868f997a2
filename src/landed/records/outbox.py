"""Committed intent to hand something onward; only inside the transaction that it announces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from landed.records import schedule
from landed.records.prepared import BYTES, ID, NUMBER, TEXT, Each, Prepared
from landed.records.session import Books, is_postgres
from landed.records.tables import order_heads, outbox
from landed.records.texts import storable

OUTBOX = "outbox"
"""The schedule's word for an outbox row as a subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row to be handed on. The same ``message_id``, bytes and headers on every try (OB-2)."""

    kind: str
    """``handle``, ``event``, ``settled`` or ``alert``."""
    destination: str
    message_id: str
    """Stable; unique with the destination."""
    cause_kind: str
    cause_id: UUID | None
    type: str
    body: bytes | None
    lane: str
    headers: str = "{}"
    order_domain: str | None = None
    order_key: str | None = None
    order_seq: int | None = None
    origin: str = "live"


class Row(NamedTuple):
    """One outbox row as it stands."""

    outbox_id: UUID
    kind: str
    destination: str
    message_id: str
    cause_kind: str
    cause_id: UUID | None
    type: str
    order_domain: str | None
    order_key: str | None
    order_seq: int | None
    headers: str
    body: bytes | None
    created_at: int
    origin: str
    state: str
    tries: int
    last_error: str | None
    proof: str | None


def add(conn: Connection, books: Books, messages: Sequence[Message]) -> list[UUID]:
    """Write rows and their schedule rows: two statements, however many rows.

    Returns the ids in the order given. A row whose destination and message id exist already is a
    programming error and raises.
    """
    if not messages:
        return []
    ids = [books.new_id() for _ in messages]
    _ADD.run(
        conn,
        books,
        [
            {
                "outbox_id": outbox_id,
                "kind": message.kind,
                "destination": message.destination,
                "message_id": message.message_id,
                "cause_kind": message.cause_kind,
                "cause_id": message.cause_id,
                "type": message.type,
                "order_domain": message.order_domain,
                "order_key": message.order_key,
                "order_seq": message.order_seq,
                "headers": message.headers,
                "body": message.body,
                "origin": message.origin,
            }
            for outbox_id, message in zip(ids, messages, strict=True)
        ],
    )
    schedule.put(
        conn,
        books,
        [
            schedule.Work(
                message.lane,
                OUTBOX,
                outbox_id,
                group_key=group_of(message),
                group_seq=message.order_seq,
            )
            for outbox_id, message in zip(ids, messages, strict=True)
        ],
    )
    return ids


def next_seq(conn: Connection, *, domain: str, key: str) -> int:
    """Take the next number of an order key; the head's lock is held to commit (SQ-9).

    Numbers are therefore gap-free and in commit order within the key; a rollback returns them.
    """
    return next_seqs(conn, {(domain, key): 1})[domain, key]


def next_seqs(
    conn: Connection, wanted: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    """Take the next numbers of several order keys, in key order, in one statement (SQ-9).

    Args:
        conn: inside a transaction.
        wanted: how many numbers by (domain, key), at least 1 each.

    Returns the first number taken by (domain, key); the others follow it.
    """
    if not wanted:
        return {}
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    statement = dialect.insert(order_heads).values(
        [
            {"order_domain": domain, "order_key": key, "last_seq": count}
            for (domain, key), count in sorted(wanted.items())
        ]
    )
    taken = conn.execute(
        statement.on_conflict_do_update(
            index_elements=["order_domain", "order_key"],
            set_={"last_seq": order_heads.c.last_seq + statement.excluded.last_seq},
        ).returning(order_heads.c.order_domain, order_heads.c.order_key, order_heads.c.last_seq)
    )
    return {
        (row.order_domain, row.order_key): row.last_seq
        - wanted[row.order_domain, row.order_key]
        + 1
        for row in taken
    }


def rows(conn: Connection, outbox_ids: Sequence[UUID]) -> list[Row]:
    """Read rows, in no particular order."""
    if not outbox_ids:
        return []
    return [Row._make(row) for row in _ROWS.execute(conn, ids=outbox_ids).all()]


_ADD: Final = Each(
    lambda each: each.insert(outbox, created_at=each.at),
    outbox_id=ID,
    kind=TEXT,
    destination=TEXT,
    message_id=TEXT,
    cause_kind=TEXT,
    cause_id=ID,
    type=TEXT,
    order_domain=TEXT,
    order_key=TEXT,
    order_seq=NUMBER,
    headers=TEXT,
    body=BYTES,
    origin=TEXT,
)
_ROWS: Final = Prepared(
    lambda shape: select(*(outbox.c[name] for name in Row._fields)).where(
        shape.among(outbox.c.outbox_id, "ids")
    )
)
_DONE: Final = Prepared(
    lambda shape: (
        update(outbox)
        .where(shape.among(outbox.c.outbox_id, "ids"), outbox.c.state == "queued")
        .values(state="done", done_at=shape.at, proof=shape["proof"], last_error=None)
        .returning(outbox.c.outbox_id)
    ),
    proof=TEXT,
)
_HANDED_ON: Final = Each(
    lambda each: (
        update(outbox)
        .where(outbox.c.outbox_id == each["outbox_id"], outbox.c.state == "queued")
        .values(state="done", done_at=each.at, proof=each["proof"], last_error=None)
    ),
    outbox_id=ID,
    proof=TEXT,
)


def mark_done(
    conn: Connection, books: Books, outbox_ids: Collection[UUID], *, proof: str | None = None
) -> set[UUID]:
    """Mark rows done, all with the same proof; returns those that were still queued.

    A row that was done before (an earlier commit whose answer was lost) is not among them: its work
    is not done again (rule HN-2).
    """
    if not outbox_ids:
        return set()
    return set(_DONE.execute(conn, books, ids=list(outbox_ids), proof=proof).scalars().all())


def mark_handed_on(conn: Connection, books: Books, proofs: Mapping[UUID, str]) -> int:
    """Mark rows done, each with the proof of its hand-off; returns how many were still queued."""
    return _HANDED_ON.run(
        conn,
        books,
        [{"outbox_id": row, "proof": proof} for row, proof in sorted(proofs.items())],
    )


def note_failure(conn: Connection, outbox_id: UUID, error: str, *, is_counted: bool = True) -> None:
    """Note why a row stays queued, and count the try unless nothing was tried."""
    conn.execute(
        update(outbox)
        .where(outbox.c.outbox_id == outbox_id, outbox.c.state == "queued")
        .values(tries=outbox.c.tries + int(is_counted), last_error=storable(error[:1000]))
    )


def park(
    conn: Connection, books: Books, outbox_id: UUID, *, error: str, is_skipping: bool = False
) -> bool:
    """Set a row aside that cannot be handed on; the caller opens its review (TX-PARK, QU-8).

    In an ordered group it blocks what comes behind it, unless ``is_skipping``: then it is given up
    for good, so that it never goes out later under its old number (rule OB-8).

    Returns whether it was still queued.
    """
    if not _set_state(conn, outbox_id, frm="queued", to="parked", error=error):
        return False
    if is_skipping:
        return skip(conn, outbox_id, why=f"skipped: {error}")
    row = rows(conn, [outbox_id])[0]
    if group_of(row) is None:
        schedule.drop(conn, kind=OUTBOX, subject_id=outbox_id)
    else:
        _reschedule(conn, books, row, delay_us=None)
    return True


def retry(conn: Connection, books: Books, outbox_id: UUID) -> bool:
    """Queue a parked row again, with a fresh budget of tries. Returns whether it was parked."""
    if not _set_state(conn, outbox_id, frm="parked", to="queued", tries=0):
        return False
    _reschedule(conn, books, rows(conn, [outbox_id])[0], delay_us=0)
    return True


def skip(conn: Connection, outbox_id: UUID, *, why: str) -> bool:
    """Give up a parked row, so that its group goes on without it. Returns whether it was parked."""
    if not _set_state(conn, outbox_id, frm="parked", to="cancelled", error=why):
        return False
    schedule.drop(conn, kind=OUTBOX, subject_id=outbox_id)
    return True


def cancel(conn: Connection, outbox_id: UUID, *, why: str) -> bool:
    """Give up a row that was not handed on. Returns whether it was queued or parked."""
    if not _set_state(conn, outbox_id, frm="queued", to="cancelled", error=why):
        return skip(conn, outbox_id, why=why)
    schedule.drop(conn, kind=OUTBOX, subject_id=outbox_id)
    return True


def _set_state(
    conn: Connection,
    outbox_id: UUID,
    *,
    frm: str,
    to: str,
    error: str | None = None,
    tries: int | None = None,
) -> bool:
    """Compare and set. Nothing leaves ``done`` or ``cancelled``."""
    values: dict[str, object] = {"state": to}
    if error is not None:
        values["last_error"] = storable(error[:1000])
    if tries is not None:
        values["tries"] = tries
    result = conn.execute(
        update(outbox)
        .where(outbox.c.outbox_id == outbox_id, outbox.c.state == frm)
        .values(**values)
    )
    return result.rowcount == 1


def _reschedule(conn: Connection, books: Books, row: Row, *, delay_us: int | None) -> None:
    group = group_of(row)
    schedule.move(
        conn,
        books,
        kind=OUTBOX,
        subject_id=row.outbox_id,
        lane=lane_of(row.kind, row.destination),
        delay_us=delay_us,
        group_key=group,
        group_seq=None if group is None else row.order_seq,
    )


def lane_of(kind: str, destination: str) -> str:
    """The lane in which a row of this kind waits."""
    match kind:
        case "event":
            return f"relay:{destination}"
        case "alert":
            return "alert"
        case _:
            return "handle"


def group_of(message: Message | Row) -> str | None:
    """The group within which a row waits for its turn; None if it need not."""
    return group_key(message.destination, message.order_domain, message.order_key)


def group_key(destination: str, domain: str | None, key: str | None) -> str | None:
    """The schedule's word for a group: one destination, one order key."""
    return None if key is None else f"{destination}/{domain}/{key}"
