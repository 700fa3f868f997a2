"""The invariants as queries: what must hold at every commit, whatever crashed (effects rules I-n).

Two are not visible in rows: that an acknowledgement follows its commit (I-2), and that a lease
decides nothing but who works next (I-8); tests show those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, or_, select

from landed.effects.identity import idempotency_key
from landed.effects.state import TERMINAL, State
from landed.fingerprint import JCS
from landed.records.outbox import OUTBOX
from landed.records.rebuild import effect_work, outbox_work
from landed.records.session import Books, uuid_text
from landed.records.tables import (
    actions,
    attempts,
    effects,
    outbox,
    quarantine,
    receipts,
    reconciliations,
    reviews,
    runs,
    schedule,
)

SHOWN_MAX: Final = 20
"""Examples of one breach; the first says as much as the thousandth."""
PAYLOADS_READ: Final = 1000
"""Newest effects whose bytes are digested again."""

_TERMINAL = [state.value for state in TERMINAL]


class Broken(NamedTuple):
    """One breach. ``rule`` is I-n, ``subject`` an id or a count."""

    rule: str
    subject: str
    detail: str


def check(conn: Connection, books: Books) -> list[Broken]:
    """Check every invariant that rows can show; an empty list is good news. Reads only."""
    found: list[Broken] = []
    for rule, detail, query in _queries(conn):
        found += [
            Broken(rule, str(subject), detail)
            for subject in conn.execute(query.limit(SHOWN_MAX)).scalars()
        ]
    found += _same_bytes_and_key(conn, books)
    found += _schedule_agrees(conn)
    return found


_Query = tuple[str, str, "Select[tuple[object]]"]


def _queries(conn: Connection) -> Iterator[_Query]:
    yield from _of_receipts(conn)
    yield from _of_effects()
    yield from _of_retention()
    yield from _of_people(conn)


def _of_receipts(conn: Connection) -> Iterator[_Query]:
    yield (
        "I-1",
        "two receipts of one event identity",
        select(func.min(receipts.c.namespace))
        .group_by(receipts.c.identity_digest)
        .having(func.count() > 1),
    )
    # Sets, and no question a row: nothing finds an outbox row or a review by what it is about, and a
    # check that takes a minute for ten thousand rows is not run.
    handed_on = receipts.c.receipt_id.in_(
        select(outbox.c.cause_id).where(outbox.c.kind == "handle", outbox.c.cause_id.is_not(None))
    )
    yield (
        "I-3",
        "accepted, yet nothing hands it on",
        select(receipts.c.receipt_id).where(
            receipts.c.disposition.in_(["accepted", "released"]),
            receipts.c.disposition_reason.is_(None) | (receipts.c.disposition == "accepted"),
            ~handed_on,
            receipts.c.settled_at.is_(None),
        ),
    )
    set_aside = exists().where(
        quarantine.c.receipt_id == receipts.c.receipt_id,
        quarantine.c.decision == "open",
        quarantine.c.owner != "",
    )
    told = uuid_text(conn, receipts.c.receipt_id).in_(
        select(reviews.c.subject_id).where(reviews.c.subject_kind == "receipt")
    )
    yield (
        "I-3",
        "quarantined without an open decision, an owner and a review",
        select(receipts.c.receipt_id).where(
            receipts.c.disposition == "quarantined", or_(~set_aside, ~told)
        ),
    )


def _of_effects() -> Iterator[_Query]:
    yield (
        "I-4",
        "two effects of one key at one recipient",
        select(func.min(effects.c.recipient))
        .group_by(effects.c.key_digest)
        .having(func.count() > 1),
    )
    begun = (
        select(func.count())
        .where(attempts.c.effect_id == effects.c.effect_id)
        .correlate(effects)
        .scalar_subquery()
    )
    yield (
        "I-5",
        "its attempts are not those that it counts",
        select(effects.c.effect_id).where(effects.c.attempt_no != begun),
    )
    is_open = exists().where(
        attempts.c.effect_id == effects.c.effect_id,
        attempts.c.attempt_no == effects.c.attempt_no,
        attempts.c.ended_at.is_(None),
    )
    yield (
        "I-5",
        "it is being sent without an open attempt",
        select(effects.c.effect_id).where(effects.c.state == "sending", ~is_open),
    )
    yield (
        "I-7",
        "settled or sendable, yet in doubt",
        select(effects.c.effect_id).where(
            effects.c.doubt_from.is_not(None),
            effects.c.state.not_in([State.SENDING.value, State.UNKNOWN.value]),
        ),
    )
    yield (
        "I-7",
        "unknown, yet no attempt is in doubt",
        select(effects.c.effect_id).where(
            effects.c.state == "unknown", effects.c.doubt_from.is_(None)
        ),
    )
    yield (
        "I-7",
        "settled without evidence on record",
        select(effects.c.effect_id).where(_settled_without_evidence()),
    )


def _settled_without_evidence() -> ColumnElement[bool]:
    def answered(*words: str) -> ColumnElement[bool]:
        return exists().where(
            attempts.c.effect_id == effects.c.effect_id,
            or_(attempts.c.outcome.in_(words), attempts.c.late_outcome.in_(words)),
        )

    def found(*words: str) -> ColumnElement[bool]:
        return exists().where(
            reconciliations.c.effect_id == effects.c.effect_id,
            reconciliations.c.answer.in_(words),
        )

    evidence = {
        State.CONFIRMED: or_(answered("success"), found("present", "already_acted")),
        State.REFUSED: answered("refused"),
        State.FENCED: or_(answered("fenced"), found("absent", "sealed")),
        State.CANCELLED: effects.c.reason.is_not(None),
    }
    return or_(*(and_(effects.c.state == state.value, ~shown) for state, shown in evidence.items()))


def _of_retention() -> Iterator[_Query]:
    yield (
        "I-10",
        "scrubbed while something of it is open",
        select(receipts.c.receipt_id).where(
            receipts.c.scrub_tier > 0, receipts.c.settled_at.is_(None)
        ),
    )
    yield (
        "I-10",
        "scrubbed while it is open",
        select(effects.c.effect_id).where(
            effects.c.scrub_tier > 0, effects.c.state.not_in(_TERMINAL)
        ),
    )


def _of_people(conn: Connection) -> Iterator[_Query]:
    yield (
        "I-12",
        "decided by nobody",
        select(quarantine.c.receipt_id).where(
            quarantine.c.decision != "open",
            or_(quarantine.c.decided_by.is_(None), quarantine.c.decision_reason.is_(None)),
        ),
    )
    subject = "effect/" + uuid_text(conn, reconciliations.c.effect_id)
    yield (
        "I-12",
        "attested without an action on record",
        select(reconciliations.c.effect_id).where(
            reconciliations.c.method == "operator",
            subject.not_in(
                select(actions.c.subject).where(
                    actions.c.verb == "effect.attest", actions.c.subject.is_not(None)
                )
            ),
        ),
    )
    yield (
        "I-12",
        "approved by nobody, and yet it ran",
        select(runs.c.run_id).where(
            runs.c.state.in_(["running", "completed", "paused"]), runs.c.approved_by.is_(None)
        ),
    )


def _same_bytes_and_key(conn: Connection, books: Books) -> list[Broken]:
    """I-6, as far as one row shows it: the bytes are those fingerprinted, the key the derived one."""
    rows = conn.execute(
        select(
            effects.c.effect_id,
            effects.c.recipient,
            effects.c.effect_key,
            effects.c.idempotency_key,
            effects.c.payload,
            effects.c.payload_form,
            effects.c.fingerprint,
        )
        .order_by(effects.c.effect_id.desc())
        .limit(PAYLOADS_READ)
    )
    broken = []
    for row in rows:
        is_canonical = row.payload is not None and row.payload_form == JCS
        if is_canonical and hashlib.sha256(row.payload).digest() != row.fingerprint:
            broken.append(
                Broken("I-6", str(row.effect_id), "its payload is not what was asked for")
            )
        if row.effect_key is not None:
            key = idempotency_key(books.ledger, row.recipient, row.effect_key)
            if key != row.idempotency_key:
                broken.append(
                    Broken("I-6", str(row.effect_id), "its idempotency key is not the derived one")
                )
    return broken[:SHOWN_MAX]


def _schedule_agrees(conn: Connection) -> list[Broken]:
    """I-9: whatever is to be done is on the schedule, or a rebuild is due."""
    held = {
        (row.kind, row.subject_id)
        for row in conn.execute(select(schedule.c.kind, schedule.c.subject_id))
    }
    missing = [
        work
        for work in [*outbox_work(conn), *effect_work(conn)]
        if (work.kind, work.subject_id) not in held
    ]
    return [
        Broken(
            "I-9",
            str(work.subject_id),
            f"{'outbox row' if work.kind == OUTBOX else 'effect'} due in lane {work.lane} is not on "
            "the schedule: run 'landed schedule rebuild'",
        )
        for work in missing[:SHOWN_MAX]
    ]
