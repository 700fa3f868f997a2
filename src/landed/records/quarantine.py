"""Events set aside: what they are, and the one decision that each gets (rules QU-1 to QU-9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, insert, select, update

from landed.deliveries.classify import (
    AcceptedEvent,
    IgnoredEvent,
    QuarantinedEvent,
    classify,
    is_beyond_floor,
)
from landed.deliveries.event import Event, IdentityRule
from landed.deliveries.producer import PayloadPolicy, Producer
from landed.errors import ActionRefusedError, BeyondHorizonError
from landed.fingerprint import digest_parts
from landed.records import outbox, reviews
from landed.records.ingest import ingest_mark
from landed.records.receipts import RECEIPT, Handling, handlings
from landed.records.retention import replay_floor
from landed.records.session import Books
from landed.records.tables import payloads, quarantine, receipts

BULK_MAX: Final = 1000
"""Events that one act releases at most: it is one transaction."""


class Route(NamedTuple):
    """Who handles an event: a handler's name, and the key within which it is handled in turn."""

    handler: str
    serial_key: str | None = None


Routes = Callable[[Event, object], tuple[Route, ...]]
"""(event, the handlers' data) -> who handles it, by the declarations of today."""


class Released(NamedTuple):
    """The event goes the way of every other: its handlings are queued. None if it is now ignored."""

    receipt_id: UUID
    handlings: tuple[UUID, ...]


def open_events(
    conn: Connection,
    *,
    namespace: str | None = None,
    reason: str | None = None,
    limit: int = 100,
) -> list[RowMapping]:
    """Events that wait for a decision, oldest first, without their payloads."""
    statement = (
        select(
            quarantine.c.receipt_id,
            quarantine.c.reason,
            quarantine.c.detail,
            quarantine.c.owner,
            quarantine.c.opened_at,
            receipts.c.namespace,
            receipts.c.type,
        )
        .join(receipts, receipts.c.receipt_id == quarantine.c.receipt_id)
        .where(quarantine.c.decision == "open")
        .order_by(quarantine.c.opened_at)
        .limit(limit)
    )
    if namespace is not None:
        statement = statement.where(receipts.c.namespace == namespace)
    if reason is not None:
        statement = statement.where(quarantine.c.reason == reason)
    return list(conn.execute(statement).mappings())


class Preview(NamedTuple):
    """An exact set of events that wait for a decision. ``digest`` names it (rule OP-3)."""

    receipt_ids: tuple[UUID, ...]
    digest: bytes


def preview(conn: Connection, namespace: str, *, reason: str | None = None) -> Preview:
    """The events of a producer that wait for a decision, oldest first, ``BULK_MAX`` at most."""
    rows = open_events(conn, namespace=namespace, reason=reason, limit=BULK_MAX)
    ids = tuple(row["receipt_id"] for row in rows)
    return Preview(ids, digest_parts(*(str(receipt_id).encode() for receipt_id in sorted(ids))))


def find(conn: Connection, receipt_id: UUID) -> RowMapping | None:
    """One quarantined event with its receipt, without its payload."""
    columns = [column for column in quarantine.c if column.name != "payload"]
    return (
        conn.execute(
            select(*columns, receipts.c.namespace, receipts.c.type, receipts.c.disposition)
            .join(receipts, receipts.c.receipt_id == quarantine.c.receipt_id)
            .where(quarantine.c.receipt_id == receipt_id)
        )
        .mappings()
        .first()
    )


def release(
    conn: Connection,
    books: Books,
    receipt_id: UUID,
    *,
    by: str,
    why: str,
    producer: Producer,
    routes: Routes,
    run_id: UUID | None = None,
) -> Released:
    """Let a quarantined event be handled, if the declarations of today accept it (rule QU-5).

    Transaction: decision, receipt, payload, outbox rows, schedule rows, closed review; or nothing
    (TX-RELEASE, with the caller's action row). Effects are not touched: a key that exists already
    is found, as always.

    Raises:
        ActionRefusedError: it is decided, unknown, erased, or still not acceptable.
        BeyondHorizonError: it is older than its producer's replay floor (AS-88).
    """
    event = stored_event(conn, receipt_id)
    if event is None:
        raise _not_open(conn, receipt_id, "release")
    if is_beyond_floor(event, producer, floor_us=replay_floor(conn, producer.namespace)):
        raise BeyondHorizonError(
            f"the event is older than the replay floor of {producer.namespace}: a repeat could not "
            "be told from a first"
        )
    disposition = classify(event, producer)
    if isinstance(disposition, QuarantinedEvent):
        raise ActionRefusedError(
            f"it is still not acceptable: {disposition.reason.value}: {disposition.detail}"
        )
    if not _decide(conn, books, receipt_id, to="released", by=by, why=why, run_id=run_id):
        raise _not_open(conn, receipt_id, "release")
    reviews.close_subject(
        conn, books, subject_kind=RECEIPT, subject_id=receipt_id, by=by, note=f"released: {why}"
    )
    if isinstance(disposition, IgnoredEvent):
        _settle(conn, books, receipt_id, disposition="released", reason=disposition.reason)
        return Released(receipt_id, ())
    assert isinstance(disposition, AcceptedEvent), "classify has three answers"
    origin = conn.execute(
        update(receipts)
        .where(receipts.c.receipt_id == receipt_id)
        .values(disposition="released")
        .returning(receipts.c.origin)
    ).scalar_one()
    if producer.payload is PayloadPolicy.KEEP:
        _keep_payload(conn, receipt_id, event.data)
    queued = outbox.add(
        conn,
        books,
        handlings(
            conn,
            [
                Handling(receipt_id, route.handler, event.type, origin, route.serial_key)
                for route in routes(event, disposition.data)
            ],
        ),
    )
    return Released(receipt_id, tuple(queued))


def reject(conn: Connection, books: Books, receipt_id: UUID, *, by: str, why: str) -> None:
    """Decide that an event is never handled. Its repeats stay duplicates (rule QU-7).

    Raises:
        ActionRefusedError: it is decided already, or was never set aside.
    """
    if not _decide(conn, books, receipt_id, to="rejected", by=by, why=why, run_id=None):
        raise _not_open(conn, receipt_id, "reject")
    reviews.close_subject(
        conn, books, subject_kind=RECEIPT, subject_id=receipt_id, by=by, note=f"rejected: {why}"
    )
    _settle(conn, books, receipt_id, disposition="rejected", reason=why[:200])


def stored_event(conn: Connection, receipt_id: UUID) -> Event | None:
    """The event of an open quarantine, as it arrived; None if there is none or it was erased."""
    row = conn.execute(
        select(receipts, quarantine.c.payload)
        .join(quarantine, quarantine.c.receipt_id == receipts.c.receipt_id)
        .where(receipts.c.receipt_id == receipt_id, quarantine.c.decision == "open")
    ).first()
    if row is None or row.payload is None or row.source is None or row.event_id is None:
        return None
    return Event(
        source=row.source,
        id=row.event_id,
        identity_rule=IdentityRule(row.identity_rule),
        type=row.type,
        schema_version=row.schema_version,
        subject=row.subject,
        occurred_us=row.occurred_at,
        sequence=row.sequence,
        content_type=row.content_type,
        data=row.payload,
    )


def _decide(
    conn: Connection,
    books: Books,
    receipt_id: UUID,
    *,
    to: str,
    by: str,
    why: str,
    run_id: UUID | None,
) -> bool:
    """One decision ever: compare-and-set on ``open`` (rule QU-6)."""
    decided = conn.execute(
        update(quarantine)
        .where(quarantine.c.receipt_id == receipt_id, quarantine.c.decision == "open")
        .values(
            decision=to,
            decided_by=by,
            decided_at=books.at(conn),
            decision_reason=why,
            run_id=run_id,
        )
    )
    return decided.rowcount == 1


def _settle(
    conn: Connection, books: Books, receipt_id: UUID, *, disposition: str, reason: str
) -> None:
    conn.execute(
        update(receipts)
        .where(receipts.c.receipt_id == receipt_id)
        .values(
            disposition=disposition,
            disposition_reason=reason,
            settled_at=books.at(conn),
            settled_mark=ingest_mark(),
        )
    )


def _keep_payload(conn: Connection, receipt_id: UUID, body: bytes) -> None:
    kept = conn.execute(
        update(payloads).where(payloads.c.receipt_id == receipt_id).values(body=body)
    )
    if kept.rowcount == 0:
        conn.execute(insert(payloads).values(receipt_id=receipt_id, body=body))


def _not_open(conn: Connection, receipt_id: UUID, verb: str) -> ActionRefusedError:
    found = find(conn, receipt_id)
    if found is None:
        return ActionRefusedError(f"cannot {verb}: no event {receipt_id} was set aside")
    if found["decision"] == "open":
        return ActionRefusedError(f"cannot {verb}: the payload of {receipt_id} was erased")
    return ActionRefusedError(
        f"cannot {verb}: it was {found['decision']} by {found['decided_by']}; a decision stands"
    )
