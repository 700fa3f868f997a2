"""Committed intent to hand something onward; only inside the transaction that it announces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from landed.records import schedule
from landed.records.session import Books, is_postgres
from landed.records.tables import order_heads, outbox

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
    at = books.at(conn)
    ids = [books.new_id() for _ in messages]
    conn.execute(
        insert(outbox).values(
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
                    "created_at": at,
                    "origin": message.origin,
                }
                for outbox_id, message in zip(ids, messages, strict=True)
            ]
        )
    )
    schedule.put(
        conn,
        books,
        [
            schedule.Work(
                message.lane,
                OUTBOX,
                outbox_id,
                group_key=_group(message),
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
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    return int(
        conn.execute(
            dialect.insert(order_heads)
            .values(order_domain=domain, order_key=key, last_seq=1)
            .on_conflict_do_update(
                index_elements=["order_domain", "order_key"],
                set_={"last_seq": order_heads.c.last_seq + 1},
            )
            .returning(order_heads.c.last_seq)
        ).scalar_one()
    )


def rows(conn: Connection, outbox_ids: Sequence[UUID]) -> list[Row]:
    """Read rows, in no particular order."""
    if not outbox_ids:
        return []
    found = conn.execute(
        select(*(outbox.c[name] for name in Row._fields)).where(outbox.c.outbox_id.in_(outbox_ids))
    )
    return [Row(*row) for row in found]


def mark_done(
    conn: Connection, books: Books, outbox_ids: Sequence[UUID], *, proof: str | None = None
) -> int:
    """Mark rows done, with the proof of their hand-off; returns how many were still queued.

    A row that was done before (an earlier commit whose answer was lost) is not counted: the caller
    rolls its work back (rule HN-2).
    """
    if not outbox_ids:
        return 0
    result = conn.execute(
        update(outbox)
        .where(outbox.c.outbox_id.in_(outbox_ids), outbox.c.state == "queued")
        .values(state="done", done_at=books.at(conn), proof=proof, last_error=None)
    )
    return result.rowcount


def note_failure(conn: Connection, outbox_id: UUID, error: str) -> None:
    """Count a failed try of a row that stays queued."""
    conn.execute(
        update(outbox)
        .where(outbox.c.outbox_id == outbox_id, outbox.c.state == "queued")
        .values(tries=outbox.c.tries + 1, last_error=error[:1000])
    )


def set_state(
    conn: Connection, outbox_id: UUID, *, frm: str, to: str, error: str | None = None
) -> bool:
    """Move a row that is not done: ``queued`` to ``parked`` or ``cancelled``, and back to ``queued``.

    Compare-and-set; returns whether it was in the state named.
    """
    assert (frm, to) in {
        ("queued", "parked"),
        ("queued", "cancelled"),
        ("parked", "queued"),
        ("parked", "cancelled"),
    }
    values: dict[str, object] = {"state": to}
    if error is not None:
        values["last_error"] = error[:1000]
    result = conn.execute(
        update(outbox)
        .where(outbox.c.outbox_id == outbox_id, outbox.c.state == frm)
        .values(**values)
    )
    return result.rowcount == 1


def _group(message: Message) -> str | None:
    if message.order_key is None:
        return None
    return f"{message.destination}/{message.order_domain}/{message.order_key}"
