"""What the page shows of our side: receipts and what came of them, doubts, and what is set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, func, select

from landed.demo.payments.billing import invoices
from landed.effects.state import State
from landed.records.explain import Story, explain
from landed.records.session import Books
from landed.records.tables import effects, quarantine, receipts

SHOWN: Final = 12
"""Newest receipts on the page, and doubts, and events set aside."""
_OPEN: Final = (State.SENDING, State.UNKNOWN, State.ACCEPTED, State.PARKED)
"""Begun, and not known how it ends; or waiting for a person."""


def overview(conn: Connection, books: Books) -> dict[str, Any]:
    """Everything but the timelines."""
    return {
        "counts": _counts(conn),
        "receipts": _receipts(conn),
        "doubts": _doubts(conn, books),
        "quarantine": _set_aside(conn),
    }


def stories(conn: Connection, books: Books, receipt_id: UUID) -> list[dict[str, Any]] | None:
    """The story of a receipt, and of every effect that came of it; None if there is none."""
    first = explain(conn, books, receipt_id)
    if first is None or first.kind != "receipt":
        return None
    invoice = conn.execute(
        select(invoices.c.id).where(invoices.c.receipt_id == receipt_id)
    ).scalar()
    found = [first]
    for row in () if invoice is None else _effects_of(conn, [invoice]):
        story = explain(conn, books, row.effect_id)
        if story is not None:
            found.append(story)
    return [_told(story) for story in found]


def _told(story: Story) -> dict[str, Any]:
    return {
        "kind": story.kind,
        "id": str(story.id),
        "state": story.state,
        "why": story.why,
        "waitsFor": story.waits_for,
        "wouldSettle": story.would_settle,
        "lines": [
            {
                "atMs": None if line.at_us is None else line.at_us / 1000,
                "what": line.what,
                "detail": line.detail,
            }
            for line in story.lines
        ],
    }


def _counts(conn: Connection) -> dict[str, int]:
    by_recipient = conn.execute(
        select(effects.c.recipient, func.count()).group_by(effects.c.recipient)
    )
    asked: dict[str, int] = dict(by_recipient.tuples().all())
    return {
        "receipts": conn.execute(select(func.count()).select_from(receipts)).scalar_one(),
        "charges": asked.get("bank", 0),
        "mails": asked.get("mail-house", 0),
        "unknown": conn.execute(
            select(func.count()).select_from(effects).where(effects.c.state == State.UNKNOWN)
        ).scalar_one(),
    }


def _receipts(conn: Connection) -> list[dict[str, Any]]:
    rows = conn.execute(
        select(
            receipts.c.receipt_id,
            receipts.c.event_id,
            receipts.c.type,
            receipts.c.disposition,
            receipts.c.received_at,
            invoices.c.id.label("invoice"),
            invoices.c.customer,
            invoices.c.cents,
            invoices.c.state,
        )
        .outerjoin(invoices, invoices.c.receipt_id == receipts.c.receipt_id)
        .where(receipts.c.disposition != "quarantined")
        .order_by(receipts.c.received_at.desc())
        .limit(SHOWN)
    ).all()
    asked: dict[str, list[dict[str, Any]]] = {}
    for row in _effects_of(conn, [row.invoice for row in rows if row.invoice is not None]):
        asked.setdefault(row.effect_key.split("/")[1], []).append(
            {
                "id": str(row.effect_id),
                "recipient": row.recipient,
                "type": row.effect_type,
                "key": row.effect_key,
                "state": row.state,
                "attempts": row.attempt_no,
                "questions": row.questions,
            }
        )
    return [
        {
            "id": str(row.receipt_id),
            "event": row.event_id,
            "type": row.type,
            "disposition": row.disposition,
            "atMs": row.received_at / 1000,
            "invoice": row.invoice,
            "customer": row.customer,
            "cents": row.cents,
            "state": row.state,
            "effects": asked.get(row.invoice, []),
        }
        for row in rows
    ]


def _effects_of(conn: Connection, ids: Sequence[str]) -> Sequence[Any]:
    keys = [f"invoice/{id}/{what}" for id in ids for what in ("collect", "mail")]
    return conn.execute(
        select(effects).where(effects.c.effect_key.in_(keys)).order_by(effects.c.created_at)
    ).all()


def _doubts(conn: Connection, books: Books) -> list[dict[str, Any]]:
    rows = conn.execute(
        select(effects.c.effect_id, effects.c.effect_key, effects.c.recipient)
        .where(effects.c.state.in_(_OPEN))
        .order_by(effects.c.created_at.desc())
        .limit(SHOWN)
    ).all()
    told = []
    for row in rows:
        story = explain(conn, books, row.effect_id)
        if story is not None:
            told.append({"key": row.effect_key, "recipient": row.recipient, **_told(story)})
    return told


def _set_aside(conn: Connection) -> list[dict[str, Any]]:
    rows = conn.execute(
        select(quarantine, receipts.c.type, receipts.c.event_id)
        .join(receipts, receipts.c.receipt_id == quarantine.c.receipt_id)
        .where(quarantine.c.decision == "open")
        .order_by(quarantine.c.opened_at.desc())
        .limit(SHOWN)
    ).all()
    return [
        {
            "id": str(row.receipt_id),
            "event": row.event_id,
            "type": row.type,
            "reason": row.reason,
            "detail": row.detail,
            "owner": row.owner,
            "atMs": row.opened_at / 1000,
        }
        for row in rows
    ]
