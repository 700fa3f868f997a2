"""Events that prove what became of an effect, among the receipts already held (rule RN-3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from landed.fingerprint import Json, parse_json
from landed.records.effects import EffectView
from landed.records.tables import payloads, receipts

LOOKED_AT: Final = 200
"""Newest events looked at for one question."""


class Proof(NamedTuple):
    """The event that proves that an effect acted."""

    body: bytes
    text: str
    digest: bytes


def proof_of(conn: Connection, effect: EffectView, types: tuple[str, ...]) -> Proof | None:
    """Find an accepted event of the recipient that proves that an effect acted.

    The recipient speaks as the producer of its own name. The event must be of a type that the
    contract names as evidence, received after the effect's first attempt, and its JSON must carry
    every correlation value recorded at the request, or the idempotency key.
    """
    if not types or effect.first_begun_at is None:
        return None
    rows = conn.execute(
        select(receipts.c.receipt_id, receipts.c.type, payloads.c.body)
        .join(payloads, payloads.c.receipt_id == receipts.c.receipt_id)
        .where(
            receipts.c.namespace == effect.recipient,
            receipts.c.type.in_(types),
            receipts.c.disposition.in_(["accepted", "released", "ignored"]),
            receipts.c.received_at >= effect.first_begun_at,
            payloads.c.body.is_not(None),
        )
        .order_by(receipts.c.received_at.desc())
        .limit(LOOKED_AT)
    )
    wanted: Mapping[str, str] = json.loads(effect.correlation or "{}")
    for row in rows:
        body = bytes(row.body)
        if _names(body, str(effect.idempotency_key), wanted):
            return Proof(body, f"{row.type} {row.receipt_id}", hashlib.sha256(body).digest())
    return None


def _names(body: bytes, key: str, wanted: Mapping[str, str]) -> bool:
    try:
        document = parse_json(body)
    except ValueError:
        return False
    texts: dict[str, set[str]] = {}
    _collect(document, "", texts)
    if any(key in found for found in texts.values()):
        return True
    return bool(wanted) and all(value in texts.get(name, set()) for name, value in wanted.items())


def _collect(value: Json, name: str, into: dict[str, set[str]]) -> None:
    """Text and number values by the name of their member, at any depth."""
    if isinstance(value, dict):
        for member, inner in value.items():
            _collect(inner, member, into)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, name, into)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        into.setdefault(name, set()).add(str(value))
