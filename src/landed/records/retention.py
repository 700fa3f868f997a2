"""What may be forgotten: terminal things only, in place, on two clocks, with a report.

Duplicate detection never depends on what is scrubbed here: digests and fingerprints stay where they
are, so there is no moment at which neither row nor marker exists (rules RT-6 to RT-9, RT-13).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    exists,
    insert,
    or_,
    select,
    update,
)

from landed.deliveries.producer import Producer
from landed.effects.state import TERMINAL
from landed.errors import ActionRefusedError
from landed.fingerprint import canonical_json, digest_parts, fingerprint_json
from landed.records import meta, scrub
from landed.records.ingest import ingest_mark
from landed.records.session import Books, uuid_text
from landed.records.tables import (
    effect_causes,
    effects,
    outbox,
    quarantine,
    receipts,
    reviews,
    scrub_reports,
)

DAY_US: Final = 24 * 3_600_000_000
BATCH: Final = 500

_TERMINAL = [state.value for state in TERMINAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Ages, microseconds since settlement, at which readable data go. None or absent: never.

    They come out of ``effects.horizon``; nobody types them in (rule RT-1).
    """

    payload_us: int | None = 14 * DAY_US
    """Tier 1, payloads and results: as long as a person may still need to look or release."""
    receipts_us: Mapping[str, int | None] = field(default_factory=dict)
    """Tier 2 by namespace: the horizon of its receipts."""
    effects_us: Mapping[str, int | None] = field(default_factory=dict)
    """Tier 2 by recipient: the horizon of its effects."""

    def declaration(self) -> bytes:
        """The policy as canonical bytes, kept with every report."""
        return canonical_json(
            {
                "payload_us": self.payload_us,
                "receipts_us": dict(self.receipts_us),
                "effects_us": dict(self.effects_us),
            }
        )


class Scrubbed(NamedTuple):
    """How many rows one batch took to which tier."""

    receipts_1: int
    receipts_2: int
    effects_1: int
    effects_2: int

    @property
    def total(self) -> int:
        return sum(self)


def settle_receipts(conn: Connection, books: Books, *, limit: int = BATCH) -> int:
    """Note which receipts have nothing open left; their age starts here (rules RT-6, RT-7).

    Settled: every handling is done or given up, and every effect that it caused is terminal.
    """
    due = (
        select(receipts.c.receipt_id)
        .where(
            receipts.c.settled_at.is_(None),
            receipts.c.disposition.in_(["accepted", "released"]),
            ~exists().where(
                outbox.c.cause_id == receipts.c.receipt_id,
                outbox.c.state.in_(["queued", "parked"]),
            ),
            ~exists(
                select(1)
                .select_from(
                    effect_causes.join(effects, effects.c.effect_id == effect_causes.c.effect_id)
                )
                .where(
                    effect_causes.c.cause_kind == "receipt",
                    effect_causes.c.cause_id == uuid_text(conn, receipts.c.receipt_id),
                    effects.c.state.not_in(_TERMINAL),
                )
            ),
        )
        .order_by(receipts.c.received_at)
        .limit(limit)
    )
    settled = conn.execute(
        update(receipts)
        .where(receipts.c.receipt_id.in_(due), receipts.c.settled_at.is_(None))
        .values(settled_at=books.at(conn), settled_mark=ingest_mark())
    )
    return settled.rowcount


def scrub_due(conn: Connection, books: Books, policy: Policy, *, limit: int = BATCH) -> Scrubbed:
    """Scrub one batch of whatever is old enough, with its report; call again until nothing is left.

    Transaction: rows scrubbed and the report, or nothing (TX-SCRUB). Guards are those of every
    other update: what became open meanwhile is left alone.
    """
    first = _due_receipts(conn, books, [(None, policy.payload_us)], tier=0, limit=limit)
    second = _due_receipts(conn, books, list(policy.receipts_us.items()), tier=1, limit=limit)
    third = _due_effects(conn, books, [(None, policy.payload_us)], tier=0, limit=limit)
    fourth = _due_effects(conn, books, list(policy.effects_us.items()), tier=1, limit=limit)
    scrub.receipt_payloads(conn, books, first)
    scrub.receipt_identities(conn, second)
    scrub.effect_payloads(conn, third)
    scrub.effect_identities(conn, fourth)
    scrubbed = Scrubbed(len(first), len(second), len(third), len(fourth))
    if scrubbed.total:
        report(conn, books, policy.declaration(), scrubbed, [*first, *second, *third, *fourth])
    return scrubbed


def erase(
    conn: Connection, books: Books, *, namespace: str, subject: str
) -> tuple[list[UUID], list[UUID]]:
    """Erase what is readable of a subject at once (rule RT-9); its repeats stay duplicates.

    Returns the receipts and the effects that were scrubbed.

    Raises:
        ActionRefusedError: something of it is still open; the message says what.
    """
    found = conn.execute(
        select(receipts.c.receipt_id, receipts.c.settled_at, receipts.c.disposition).where(
            receipts.c.namespace == namespace, receipts.c.subject == subject
        )
    ).all()
    waiting = [row.receipt_id for row in found if row.settled_at is None]
    if waiting:
        raise ActionRefusedError(
            f"{len(waiting)} events of it are not settled, the first is {waiting[0]}: finish or "
            "reject them, then erase"
        )
    ids = [row.receipt_id for row in found]
    caused = _effects_of(conn, ids)
    scrub.receipt_payloads(conn, books, ids)
    scrub.receipt_identities(conn, ids)
    scrub.effect_payloads(conn, caused)
    scrub.effect_identities(conn, caused)
    scrub.notes(conn, [*ids, *caused])
    done = Scrubbed(len(ids), len(ids), len(caused), len(caused))
    report(conn, books, canonical_json({"erasure": namespace}), done, [*ids, *caused])
    return ids, caused


def replay_floor(conn: Connection, namespace: str) -> int | None:
    """Events of a producer older than this are refused, microseconds since 1970; None: no floor."""
    value = meta.read(conn, f"replay_floor/{namespace}")
    return None if value is None else int(value)


def raise_floor(conn: Connection, producer: Producer, floor_us: int) -> None:
    """Raise a producer's replay floor, which alone allows digests to go (rule RT-10).

    Raises:
        ActionRefusedError: its events carry no signed time, or the floor would sink.
    """
    if not producer.has_signed_event_time:
        raise ActionRefusedError(
            f"{producer.namespace} signs no event time: old events could not be told from new ones, "
            "so their digests stay"
        )
    known = replay_floor(conn, producer.namespace)
    if known is not None and floor_us < known:
        raise ActionRefusedError(
            f"the replay floor of {producer.namespace} is {known} and never sinks"
        )
    meta.write(conn, f"replay_floor/{producer.namespace}", str(floor_us))


def report(
    conn: Connection, books: Books, policy: bytes, counts: Scrubbed, ids: Sequence[UUID]
) -> None:
    """Write down what was scrubbed under which policy (rule RT-13)."""
    conn.execute(
        insert(scrub_reports).values(
            report_id=books.new_id(),
            made_at=books.at(conn),
            policy_digest=fingerprint_json(json.loads(policy)).digest,
            policy=policy.decode(),
            counts=json.dumps(counts._asdict()),
            ids_digest=digest_parts(*(str(id).encode() for id in sorted(ids))),
        )
    )


_Ages = Sequence[tuple[str, int | None]] | Sequence[tuple[None, int | None]]
"""Ages by name; the one under None holds for every name."""
_Age = Callable[[int], ColumnElement[bool]]


def _old_enough(conn: Connection, books: Books, table: Table) -> _Age:
    """On both clocks at once: wall time, and the time in which we were able to receive (RT-7)."""
    at = books.at(conn)

    def holds(age_us: int) -> ColumnElement[bool]:
        return and_(
            table.c.settled_at <= at - age_us,
            ingest_mark() - table.c.settled_mark >= age_us,
        )

    return holds


def _ages(
    ages: _Ages,
    column: Column[str],
    old_enough: _Age,
) -> ColumnElement[bool] | None:
    """Whether a row is old enough by the age for its name; None if no age is known."""
    known = [
        old_enough(age) if name is None else and_(column == name, old_enough(age))
        for name, age in ages
        if age is not None
    ]
    return or_(*known) if known else None


def _due_receipts(
    conn: Connection,
    books: Books,
    ages: _Ages,
    *,
    tier: int,
    limit: int,
) -> list[UUID]:
    due = _ages(ages, receipts.c.namespace, _old_enough(conn, books, receipts))
    if due is None:
        return []
    return list(
        conn.execute(
            select(receipts.c.receipt_id)
            .where(
                receipts.c.settled_at.is_not(None),
                receipts.c.scrub_tier == tier,
                receipts.c.scrub_tier < 2,
                due,
                _nobody_looks(conn, receipts.c.receipt_id),
                ~exists().where(
                    quarantine.c.receipt_id == receipts.c.receipt_id,
                    quarantine.c.decision == "open",
                ),
            )
            .order_by(receipts.c.settled_at)
            .limit(limit)
        ).scalars()
    )


def _due_effects(
    conn: Connection,
    books: Books,
    ages: _Ages,
    *,
    tier: int,
    limit: int,
) -> list[UUID]:
    due = _ages(ages, effects.c.recipient, _old_enough(conn, books, effects))
    if due is None:
        return []
    return list(
        conn.execute(
            select(effects.c.effect_id)
            .where(
                effects.c.settled_at.is_not(None),
                effects.c.scrub_tier == tier,
                effects.c.scrub_tier < 2,
                due,
                effects.c.state.in_(_TERMINAL),
                effects.c.held_by.is_(None),
                effects.c.is_contradicted.is_(False),
                _nobody_looks(conn, effects.c.effect_id),
                ~exists().where(
                    outbox.c.cause_id == effects.c.effect_id,
                    outbox.c.state.in_(["queued", "parked"]),
                ),
            )
            .order_by(effects.c.settled_at)
            .limit(limit)
        ).scalars()
    )


def _nobody_looks(conn: Connection, column: Column[UUID]) -> ColumnElement[bool]:
    """No review of it is open (rule RT-6)."""
    return ~exists().where(
        reviews.c.state == "open", reviews.c.subject_id == uuid_text(conn, column)
    )


def _effects_of(conn: Connection, receipt_ids: Sequence[UUID]) -> list[UUID]:
    """Terminal effects that these receipts, and nothing else, asked for."""
    if not receipt_ids:
        return []
    causes = [str(receipt_id) for receipt_id in receipt_ids]
    other = effect_causes.alias("other")
    return list(
        conn.execute(
            select(effects.c.effect_id)
            .join(effect_causes, effect_causes.c.effect_id == effects.c.effect_id)
            .where(
                effect_causes.c.cause_kind == "receipt",
                effect_causes.c.cause_id.in_(causes),
                effects.c.state.in_(_TERMINAL),
                ~exists().where(
                    other.c.effect_id == effects.c.effect_id, other.c.cause_id.not_in(causes)
                ),
            )
            .distinct()
        ).scalars()
    )
