"""Receipts: the durable record that one event was accepted, with its evidence.

One function takes a whole group, so that requests that wait together share one transaction; the
statements do not grow with the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, case, insert, null, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from landed.deliveries.classify import (
    AcceptedEvent,
    Disposition,
    IgnoredEvent,
    QuarantinedEvent,
)
from landed.deliveries.event import Event, Verified
from landed.fingerprint import Fingerprint
from landed.records import outbox, reviews
from landed.records.ingest import ingest_mark
from landed.records.prepared import BYTES, FLAG, ID, NUMBER, TEXT, Each, Shape, Values
from landed.records.session import Books, is_postgres
from landed.records.tables import payloads, quarantine, receipt_conflicts, receipts

RECEIPT = "receipt"
HANDLE_LANE = "handle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One verified, classified event on its way into the records."""

    event: Event
    verified: Verified
    disposition: Disposition
    fingerprint: Fingerprint
    fingerprint_under: Callable[[str], Fingerprint | None]
    """Fingerprint the payload under a stored form's name; None if that form is not known."""
    handlers: tuple[str, ...]
    """Names of the handlers of its type; one outbox row each (rule RC-1)."""
    owner: str
    keeps_payload: bool = True
    headers: str = "{}"
    """Allow-listed headers as JSON; never signatures or tokens (rule RC-11)."""
    transport: str = "http"
    transport_ref: str | None = None
    origin: str = "live"
    serial_key: str | None = None
    """Handled one at a time per key and handler, in receipt order (OG-3)."""
    serial_keys: Mapping[str, str] = field(default_factory=dict)
    """By handler, where handlers have keys of their own."""

    def serial_of(self, handler: str) -> str | None:
        return self.serial_keys.get(handler, self.serial_key)


class Kept(NamedTuple):
    """The event is durably held once the caller has committed. It says nothing of later effects."""

    receipt_id: UUID
    disposition: str


class Seen(NamedTuple):
    """The same event with the same payload was kept before; no row was written (RC-9)."""

    receipt_id: UUID
    disposition: str


class Conflicting(NamedTuple):
    """The same event identity with another payload; the first receipt stands (RC-7)."""

    receipt_id: UUID
    is_new: bool


Taken = Kept | Seen | Conflicting


def keep(conn: Connection, books: Books, arrivals: Sequence[Arrival]) -> list[Taken]:
    """Take a group of events, each at most once, in the order given.

    Transaction: every receipt with its payload and its outbox rows, or its quarantine, review and
    alert; or nothing (TX-RECV, TX-CONFLICT).

    Source: rules RC-1, RC-2, RC-6 to RC-9, QU-1. The insert comes first and the look-up second, so
    that two deliveries of one event can never both be first.
    """
    if not arrivals:
        return []
    digests = [
        books.identity_digest(a.verified.namespace, a.event.source, a.event.id) for a in arrivals
    ]
    ids = [books.new_id() for _ in arrivals]
    inserted = _insert_receipts(conn, books, arrivals, digests, ids)
    fresh = [i for i, receipt_id in enumerate(ids) if receipt_id in inserted]
    known = _known(conn, [digests[i] for i in range(len(ids)) if ids[i] not in inserted])
    _keep_payloads(conn, books, [(ids[i], arrivals[i]) for i in fresh])
    _quarantine(conn, books, [(ids[i], arrivals[i]) for i in fresh])
    _hand_on(conn, books, [(ids[i], arrivals[i]) for i in fresh])
    taken: list[Taken] = []
    for index, arrival in enumerate(arrivals):
        if ids[index] in inserted:
            taken.append(Kept(ids[index], _word(arrival.disposition)))
        else:
            taken.append(_repeat(conn, books, arrival, known[digests[index]]))
    return taken


class _Known(NamedTuple):
    receipt_id: UUID
    disposition: str
    form: str
    digest: bytes


def _insert_receipts(
    conn: Connection,
    books: Books,
    arrivals: Sequence[Arrival],
    digests: Sequence[bytes],
    ids: Sequence[UUID],
) -> set[UUID]:
    rows = [
        {
            "receipt_id": receipt_id,
            "namespace": a.verified.namespace,
            "identity_digest": digest,
            "source": a.event.source,
            "event_id": a.event.id,
            "identity_rule": a.event.identity_rule.value,
            "type": a.event.type,
            "schema_version": a.event.schema_version,
            "subject": a.event.subject,
            "occurred_at": a.event.occurred_us,
            "signed_at": a.verified.signed_us,
            "fingerprint_form": a.fingerprint.form,
            "fingerprint": a.fingerprint.digest,
            "size_bytes": len(a.event.data),
            "content_type": a.event.content_type,
            "auth_method": a.verified.method,
            "auth_key_id": a.verified.key_id,
            "auth_result": a.verified.result,
            "transport": a.transport,
            "transport_ref": a.transport_ref,
            "disposition": _word(a.disposition),
            "disposition_reason": _reason(a.disposition),
            "origin": a.origin,
            "sequence": a.event.sequence,
            "is_over": isinstance(a.disposition, IgnoredEvent),
        }
        for a, digest, receipt_id in zip(arrivals, digests, ids, strict=True)
    ]
    # In one order everywhere, or two groups that share two events could wait for each other.
    rows.sort(key=lambda row: str(row["identity_digest"]))
    return {row.receipt_id for row in _RECEIVE.returned(conn, books, rows)}


def _receiving(each: Shape) -> ReturningInsert[Any]:
    is_over = each["is_over"]
    return (
        each.insert(
            receipts,
            received_at=each.at,
            settled_at=case((is_over, each.at), else_=null()),
            settled_mark=case((is_over, ingest_mark()), else_=null()),
        )
        .on_conflict_do_nothing(index_elements=["identity_digest"])
        .returning(receipts.c.receipt_id)
    )


_RECEIVE: Final = Each(
    _receiving,
    receipt_id=ID,
    namespace=TEXT,
    identity_digest=BYTES,
    source=TEXT,
    event_id=TEXT,
    identity_rule=TEXT,
    type=TEXT,
    schema_version=TEXT,
    subject=TEXT,
    occurred_at=NUMBER,
    signed_at=NUMBER,
    fingerprint_form=TEXT,
    fingerprint=BYTES,
    size_bytes=NUMBER,
    content_type=TEXT,
    auth_method=TEXT,
    auth_key_id=TEXT,
    auth_result=TEXT,
    transport=TEXT,
    transport_ref=TEXT,
    disposition=TEXT,
    disposition_reason=TEXT,
    origin=TEXT,
    sequence=TEXT,
    is_over=FLAG,
)
_KEEP_PAYLOAD: Final = Each(
    lambda each: each.insert(payloads), receipt_id=ID, body=BYTES, headers=TEXT
)


def _known(conn: Connection, digests: Sequence[bytes]) -> dict[bytes, _Known]:
    if not digests:
        return {}
    rows = conn.execute(
        select(
            receipts.c.identity_digest,
            receipts.c.receipt_id,
            receipts.c.disposition,
            receipts.c.fingerprint_form,
            receipts.c.fingerprint,
        ).where(receipts.c.identity_digest.in_(set(digests)))
    )
    return {
        row.identity_digest: _Known(
            row.receipt_id, row.disposition, row.fingerprint_form, row.fingerprint
        )
        for row in rows
    }


def _keep_payloads(conn: Connection, books: Books, fresh: Sequence[tuple[UUID, Arrival]]) -> None:
    rows: list[Values] = []
    for receipt_id, a in fresh:
        match a.disposition:
            case AcceptedEvent() if a.keeps_payload:
                rows.append({"receipt_id": receipt_id, "body": a.event.data, "headers": a.headers})
            case QuarantinedEvent():
                # The body is with the quarantine until the decision (rule QU-4).
                rows.append({"receipt_id": receipt_id, "body": None, "headers": a.headers})
            case _:
                pass
    _KEEP_PAYLOAD.run(conn, books, rows)


def _quarantine(conn: Connection, books: Books, fresh: Sequence[tuple[UUID, Arrival]]) -> None:
    at = books.at(conn)
    set_aside = [
        (receipt_id, a, a.disposition)
        for receipt_id, a in fresh
        if isinstance(a.disposition, QuarantinedEvent)
    ]
    if not set_aside:
        return
    conn.execute(
        insert(quarantine).values(
            [
                {
                    "receipt_id": receipt_id,
                    "reason": disposition.reason.value,
                    "detail": disposition.detail,
                    "owner": a.owner,
                    "opened_at": at,
                    "payload": a.event.data,
                }
                for receipt_id, a, disposition in set_aside
            ]
        )
    )
    for receipt_id, a, disposition in set_aside:
        reviews.open_review(
            conn,
            books,
            reviews.Review(
                kind=disposition.reason.value,
                subject_kind=RECEIPT,
                subject_id=str(receipt_id),
                severity="warning",
                owner=a.owner,
                note=f"{a.verified.namespace} sent {a.event.type[:200]}: {disposition.detail}",
            ),
        )


def _hand_on(conn: Connection, books: Books, fresh: Sequence[tuple[UUID, Arrival]]) -> None:
    due = [
        (receipt_id, a, handler)
        for receipt_id, a in fresh
        if isinstance(a.disposition, AcceptedEvent)
        for handler in a.handlers
    ]
    outbox.add(
        conn,
        books,
        handlings(
            conn,
            [
                Handling(receipt_id, handler, a.event.type, a.origin, a.serial_of(handler))
                for receipt_id, a, handler in due
            ],
        ),
    )


class Handling(NamedTuple):
    """One receipt to be handed to one handler."""

    receipt_id: UUID
    handler: str
    event_type: str
    origin: str
    serial_key: str | None = None


def handlings(conn: Connection, due: Sequence[Handling]) -> list[outbox.Message]:
    """Outbox rows for handlings, in receipt order; those with a serial key take numbers (OG-3)."""
    wanted = Counter(
        (f"serial:{item.handler}", item.serial_key) for item in due if item.serial_key is not None
    )
    numbers = outbox.next_seqs(conn, wanted)
    messages = []
    for item in due:
        message = handling(
            item.receipt_id, item.handler, event_type=item.event_type, origin=item.origin
        )
        if item.serial_key is not None:
            place = (f"serial:{item.handler}", item.serial_key)
            message = replace(
                message, order_domain=place[0], order_key=place[1], order_seq=numbers[place]
            )
            numbers[place] += 1
        messages.append(message)
    return messages


def handling(receipt_id: UUID, handler: str, *, event_type: str, origin: str) -> outbox.Message:
    """The outbox row that hands one receipt to one handler (rules RC-1, HN-3)."""
    return outbox.Message(
        kind="handle",
        destination=f"handler:{handler}",
        message_id=f"{receipt_id}:{handler}",
        cause_kind=RECEIPT,
        cause_id=receipt_id,
        type=event_type,
        body=None,
        lane=HANDLE_LANE,
        origin=origin,
    )


def _repeat(conn: Connection, books: Books, arrival: Arrival, known: _Known) -> Taken:
    """Compare a repeat with the first, under the form that was stored with the first (RC-8)."""
    again = (
        arrival.fingerprint
        if arrival.fingerprint.form == known.form
        else arrival.fingerprint_under(known.form)
    )
    if again is not None and again.digest == known.digest:
        return Seen(known.receipt_id, known.disposition)
    differing = arrival.fingerprint if again is None else again
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    recorded = conn.execute(
        dialect.insert(receipt_conflicts)
        .values(
            conflict_id=books.new_id(),
            receipt_id=known.receipt_id,
            fingerprint_form=differing.form,
            fingerprint=differing.digest,
            body=arrival.event.data if arrival.keeps_payload else None,
            auth_key_id=arrival.verified.key_id,
            received_at=books.at(conn),
        )
        .on_conflict_do_nothing(index_elements=["receipt_id", "fingerprint"])
        .returning(receipt_conflicts.c.conflict_id)
    ).first()
    if recorded is not None:
        reviews.open_review(
            conn,
            books,
            reviews.Review(
                kind="receipt_conflict",
                subject_kind=RECEIPT,
                subject_id=str(known.receipt_id),
                severity="critical",
                owner=arrival.owner,
                note="the same event arrived with another payload; the first one stands",
            ),
        )
    return Conflicting(known.receipt_id, is_new=recorded is not None)


def _word(disposition: Disposition) -> str:
    match disposition:
        case AcceptedEvent():
            return "accepted"
        case IgnoredEvent():
            return "ignored"
        case QuarantinedEvent():
            return "quarantined"


def _reason(disposition: Disposition) -> str | None:
    match disposition:
        case AcceptedEvent():
            return None
        case IgnoredEvent(reason=reason):
            return reason
        case QuarantinedEvent(reason=reason):
            return reason.value
