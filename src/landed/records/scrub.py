"""Readable data removed in place: tier 1 payloads, tier 2 identities; digests and outcomes stay."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, or_, select, update

from landed.effects.state import TERMINAL
from landed.records.session import Books
from landed.records.tables import (
    attempts,
    effects,
    outbox,
    payloads,
    quarantine,
    receipt_conflicts,
    receipts,
    reconciliations,
    reviews,
)

DIGEST_PREFIX: Final = "sha256:"
_STANDING: Final = (
    effects.c.state.in_([state.value for state in TERMINAL]),
    effects.c.is_contradicted.is_(False),
    effects.c.held_by.is_(None),
)
"""The guard of the reading, once more in the update: a sweep never overwrites news (SQ-2)."""


def receipt_payloads(conn: Connection, books: Books, ids: Sequence[UUID]) -> None:
    """Tier 1 of receipts: bodies, headers, recovery payloads, evidence, and what was passed on."""
    if not ids:
        return
    conn.execute(
        update(payloads)
        .where(payloads.c.receipt_id.in_(ids))
        .values(body=None, headers="{}", erased_at=books.at(conn))
    )
    conn.execute(
        update(receipt_conflicts).where(receipt_conflicts.c.receipt_id.in_(ids)).values(body=None)
    )
    conn.execute(
        update(quarantine)
        .where(quarantine.c.receipt_id.in_(ids), quarantine.c.decision != "open")
        .values(payload=None, detail="")
    )
    _passed_on(conn, ids)
    conn.execute(
        update(receipts)
        .where(receipts.c.receipt_id.in_(ids), receipts.c.scrub_tier < 1)
        .values(scrub_tier=1)
    )


def receipt_identities(conn: Connection, ids: Sequence[UUID]) -> None:
    """Tier 2 of receipts: the readable identity. The keyed digest goes on recognising repeats."""
    if not ids:
        return
    conn.execute(
        update(receipts)
        .where(receipts.c.receipt_id.in_(ids))
        .values(
            source=None,
            event_id=None,
            subject=None,
            sequence=None,
            transport_ref=None,
            scrub_tier=2,
        )
    )


def effect_payloads(conn: Connection, ids: Sequence[UUID]) -> None:
    """Tier 1 of effects: what was sent and what came back; their digests stay."""
    if not ids:
        return
    conn.execute(
        update(effects)
        .where(effects.c.effect_id.in_(ids), effects.c.scrub_tier < 1, *_STANDING)
        .values(payload=None, result=None, scrub_tier=1)
    )
    conn.execute(update(attempts).where(attempts.c.effect_id.in_(ids)).values(error=None))
    conn.execute(
        update(reconciliations).where(reconciliations.c.effect_id.in_(ids)).values(evidence=None)
    )
    _passed_on(conn, ids)


def effect_identities(conn: Connection, ids: Sequence[UUID]) -> None:
    """Tier 2 of effects: key, correlation and the recipient's reference, which leaves its digest."""
    if not ids:
        return
    refs = conn.execute(
        select(effects.c.effect_id, effects.c.recipient_ref).where(
            effects.c.effect_id.in_(ids), effects.c.recipient_ref.is_not(None)
        )
    ).all()
    conn.execute(
        update(effects)
        .where(effects.c.effect_id.in_(ids), *_STANDING)
        .values(
            effect_key=None, correlation="{}", held_reason=None, recipient_ref=None, scrub_tier=2
        )
    )
    for effect_id, reference in refs:
        conn.execute(
            update(effects)
            .where(effects.c.effect_id == effect_id)
            .values(recipient_ref=reference_digest(reference))
        )


def reference_digest(reference: str) -> str:
    """What stays of a recipient's reference, so that a late answer can still be compared."""
    if reference.startswith(DIGEST_PREFIX):
        return reference
    return DIGEST_PREFIX + hashlib.sha256(reference.encode()).hexdigest()


def notes(conn: Connection, ids: Sequence[UUID]) -> None:
    """What people and checks wrote about these subjects, where a review is closed."""
    if not ids:
        return
    conn.execute(
        update(reviews)
        .where(reviews.c.subject_id.in_([str(id) for id in ids]), reviews.c.state == "closed")
        .values(note="", closing_note="")
    )


def _passed_on(conn: Connection, cause_ids: Sequence[UUID]) -> None:
    """Bodies of outbox rows that went out; one that is still open keeps what it will send."""
    conn.execute(
        update(outbox)
        .where(
            outbox.c.cause_id.in_(cause_ids),
            or_(outbox.c.state == "done", outbox.c.state == "cancelled"),
        )
        .values(body=None, headers="{}", last_error=None)
    )
