"""The rows that remember. The same names on SQLite and PostgreSQL.

Times are integer microseconds since 1970; ids are UUIDs made by the library (version 7), so that a
duplicate consumes no sequence; digests are 32 bytes; payloads are bytes that no database re-encodes.
The prefix stands in for a schema: one name everywhere, and on PostgreSQL the search path still
decides where the tables live. Migrations create them (migrations/); this module is what queries
are written against, and a test holds the two together.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

PREFIX: Final = "landed_"
metadata: Final = MetaData()


def _only(where: str) -> dict[str, Any]:
    """The rows that a partial index holds, on both databases."""
    return {"sqlite_where": text(where), "postgresql_where": text(where)}


def _id(name: str, *, nullable: bool = False, primary_key: bool = False) -> Column[object]:
    return Column(name, Uuid, nullable=nullable, primary_key=primary_key)


def _text(name: str, *, nullable: bool = False, default: str | None = None) -> Column[object]:
    return Column(name, Text, nullable=nullable, server_default=default)


def _at(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, BigInteger, nullable=nullable)


def _number(name: str, *, nullable: bool = False, default: int | None = None) -> Column[object]:
    return Column(
        name,
        BigInteger,
        nullable=nullable,
        server_default=None if default is None else text(str(default)),
    )


def _bytes(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, LargeBinary, nullable=nullable)


def _flag(name: str) -> Column[object]:
    return Column(name, Boolean, nullable=False)


meta: Final = Table(
    PREFIX + "meta",
    metadata,
    Column("name", Text, primary_key=True),
    _text("value"),
)

migrations: Final = Table(
    PREFIX + "migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    _text("name"),
    _at("applied_at"),
)

receipts: Final = Table(
    PREFIX + "receipts",
    metadata,
    _id("receipt_id", primary_key=True),
    _text("namespace"),
    _bytes("identity_digest"),
    _text("source", nullable=True),
    _text("event_id", nullable=True),
    _text("identity_rule"),
    _text("type"),
    _text("schema_version", nullable=True),
    _text("subject", nullable=True),
    _at("occurred_at", nullable=True),
    _at("signed_at", nullable=True),
    _at("received_at"),
    _text("fingerprint_form"),
    _bytes("fingerprint"),
    _number("size_bytes"),
    _text("content_type", nullable=True),
    _text("auth_method"),
    _text("auth_key_id"),
    _text("auth_result"),
    _text("transport"),
    _text("transport_ref", nullable=True),
    _text("disposition"),
    _text("disposition_reason", nullable=True),
    _text("origin", default="live"),
    _text("sequence", nullable=True),
    _at("settled_at", nullable=True),
    _number("settled_mark", nullable=True),
    _number("scrub_tier", default=0),
    UniqueConstraint("identity_digest", name=PREFIX + "receipts_identity"),
    CheckConstraint(
        "disposition IN ('accepted','ignored','quarantined','released','rejected')",
        name=PREFIX + "receipts_disposition",
    ),
)
Index(
    PREFIX + "receipts_unsettled",
    receipts.c.received_at,
    **_only("settled_at IS NULL"),
)
Index(
    PREFIX + "receipts_to_scrub",
    receipts.c.namespace,
    receipts.c.scrub_tier,
    receipts.c.settled_at,
    **_only("settled_at IS NOT NULL AND scrub_tier < 2"),
)
# For events that prove what became of an effect: newest first, of one producer and type (RN-3).
Index(PREFIX + "receipts_evidence", receipts.c.namespace, receipts.c.type, receipts.c.received_at)

payloads: Final = Table(
    PREFIX + "payloads",
    metadata,
    _id("receipt_id", primary_key=True),
    _bytes("body", nullable=True),
    _text("headers", default="{}"),
    _at("erased_at", nullable=True),
)

receipt_conflicts: Final = Table(
    PREFIX + "receipt_conflicts",
    metadata,
    _id("conflict_id", primary_key=True),
    _id("receipt_id"),
    _text("fingerprint_form"),
    _bytes("fingerprint"),
    _bytes("body", nullable=True),
    _text("auth_key_id"),
    _at("received_at"),
    UniqueConstraint("receipt_id", "fingerprint", name=PREFIX + "conflicts_once"),
)

forms: Final = Table(
    PREFIX + "forms",
    metadata,
    Column("name", Text, primary_key=True),
    _text("declaration"),
)

rejections: Final = Table(
    PREFIX + "rejections",
    metadata,
    _text("namespace"),
    _text("reason"),
    _at("hour"),
    _number("count"),
    _text("sample"),
    _at("first_at"),
    _at("last_at"),
    PrimaryKeyConstraint("namespace", "reason", "hour"),
)

quarantine: Final = Table(
    PREFIX + "quarantine",
    metadata,
    _id("receipt_id", primary_key=True),
    _text("reason"),
    _text("detail"),
    _text("owner"),
    _at("opened_at"),
    _bytes("payload", nullable=True),
    _text("decision", default="open"),
    _text("decided_by", nullable=True),
    _at("decided_at", nullable=True),
    _text("decision_reason", nullable=True),
    _id("run_id", nullable=True),
    CheckConstraint(
        "decision IN ('open','released','rejected')", name=PREFIX + "quarantine_decision"
    ),
)
Index(
    PREFIX + "quarantine_open",
    quarantine.c.opened_at,
    **_only("decision = 'open'"),
)

outbox: Final = Table(
    PREFIX + "outbox",
    metadata,
    _id("outbox_id", primary_key=True),
    _text("kind"),
    _text("destination"),
    _text("message_id"),
    _text("cause_kind"),
    _id("cause_id", nullable=True),
    _text("type"),
    _text("order_domain", nullable=True),
    _text("order_key", nullable=True),
    _number("order_seq", nullable=True),
    _text("headers", default="{}"),
    _bytes("body", nullable=True),
    _at("created_at"),
    _text("origin", default="live"),
    _text("state", default="queued"),
    _number("tries", default=0),
    _text("last_error", nullable=True),
    _at("done_at", nullable=True),
    _text("proof", nullable=True),
    UniqueConstraint("destination", "message_id", name=PREFIX + "outbox_message"),
    CheckConstraint("kind IN ('handle','event','settled','alert')", name=PREFIX + "outbox_kind"),
    CheckConstraint(
        "state IN ('queued','done','parked','cancelled')", name=PREFIX + "outbox_state"
    ),
)
Index(
    PREFIX + "outbox_open",
    outbox.c.destination,
    outbox.c.order_key,
    outbox.c.order_seq,
    **_only("state IN ('queued','parked')"),
)
Index(PREFIX + "outbox_cause", outbox.c.cause_id)

effects: Final = Table(
    PREFIX + "effects",
    metadata,
    _id("effect_id", primary_key=True),
    _text("recipient"),
    _text("effect_type"),
    _text("effect_key", nullable=True),
    _bytes("key_digest"),
    _bytes("payload", nullable=True),
    _text("payload_form"),
    _bytes("fingerprint"),
    _id("idempotency_key"),
    _bytes("contract_digest"),
    _text("order_domain", nullable=True),
    _text("order_key", nullable=True),
    _number("version", nullable=True),
    _text("order_policy", nullable=True),
    _flag("is_behind_head"),
    _text("state"),
    _text("reason", nullable=True),
    _text("certainty", nullable=True),
    _number("attempt_no", default=0),
    _number("doubt_from", nullable=True),
    _at("first_begun_at", nullable=True),
    _at("last_begun_at", nullable=True),
    _at("first_sight_at", nullable=True),
    _at("send_deadline", nullable=True),
    _at("resend_until", nullable=True),
    _at("not_after", nullable=True),
    _flag("is_absence_final"),
    _flag("has_late_success"),
    _flag("is_contradicted"),
    _text("held_by", nullable=True),
    _text("held_reason", nullable=True),
    _flag("is_cancel_requested"),
    _bytes("result", nullable=True),
    _bytes("result_digest", nullable=True),
    _text("recipient_ref", nullable=True),
    _text("correlation", default="{}"),
    _number("questions", default=0),
    _number("budget_from", default=0),
    _id("supersedes", nullable=True),
    _id("superseded_by", nullable=True),
    _text("origin", default="live"),
    _at("created_at"),
    _at("settled_at", nullable=True),
    _number("settled_mark", nullable=True),
    _number("scrub_tier", default=0),
    UniqueConstraint("key_digest", name=PREFIX + "effects_key"),
    CheckConstraint(
        "state IN ('pending','sending','retry','accepted','unknown','parked',"
        "'confirmed','refused','fenced','cancelled')",
        name=PREFIX + "effects_state",
    ),
)
_OPEN_EFFECTS: Final = text("state NOT IN ('confirmed','refused','fenced','cancelled')")
Index(
    PREFIX + "effects_open_order",
    effects.c.order_domain,
    effects.c.order_key,
    effects.c.version,
    sqlite_where=_OPEN_EFFECTS,
    postgresql_where=_OPEN_EFFECTS,
)
Index(
    PREFIX + "effects_sending",
    effects.c.send_deadline,
    **_only("state = 'sending'"),
)
Index(
    PREFIX + "effects_unknown",
    effects.c.recipient,
    effects.c.first_sight_at,
    **_only("state IN ('unknown','accepted')"),
)

Index(
    PREFIX + "effects_deadline",
    effects.c.not_after,
    **_only("not_after IS NOT NULL AND state IN ('pending','retry','parked')"),
)
Index(
    PREFIX + "effects_to_scrub",
    effects.c.recipient,
    effects.c.scrub_tier,
    effects.c.settled_at,
    **_only("settled_at IS NOT NULL AND scrub_tier < 2"),
)

effect_causes: Final = Table(
    PREFIX + "effect_causes",
    metadata,
    _id("effect_id"),
    _text("cause_kind"),
    _text("cause_id"),
    _text("handler", nullable=True),
    _at("requested_at"),
    _text("origin", default="live"),
    PrimaryKeyConstraint("effect_id", "cause_kind", "cause_id"),
)

Index(PREFIX + "effect_causes_cause", effect_causes.c.cause_kind, effect_causes.c.cause_id)

attempts: Final = Table(
    PREFIX + "attempts",
    metadata,
    _id("effect_id"),
    _number("attempt_no"),
    _at("begun_at"),
    _at("ended_at", nullable=True),
    _text("worker"),
    _text("outcome", nullable=True),
    _text("answer_code", nullable=True),
    _bytes("answer_digest", nullable=True),
    _text("error", nullable=True),
    _text("late_outcome", nullable=True),
    _at("late_at", nullable=True),
    PrimaryKeyConstraint("effect_id", "attempt_no"),
)

reconciliations: Final = Table(
    PREFIX + "reconciliations",
    metadata,
    _id("reconciliation_id", primary_key=True),
    _id("effect_id"),
    _at("asked_at"),
    _text("method"),
    _text("answer"),
    _text("finality", default="none"),
    _bytes("evidence_digest", nullable=True),
    _text("evidence", nullable=True),
    _text("decision"),
    _number("repeats", default=1),
)
Index(PREFIX + "reconciliations_effect", reconciliations.c.effect_id, reconciliations.c.asked_at)

contracts: Final = Table(
    PREFIX + "contracts",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    _text("recipient"),
    _bytes("declaration"),
    _at("registered_at"),
)

order_heads: Final = Table(
    PREFIX + "order_heads",
    metadata,
    _text("order_domain"),
    _text("order_key"),
    _number("last_seq", default=0),
    _number("last_version", nullable=True),
    _id("last_effect_id", nullable=True),
    PrimaryKeyConstraint("order_domain", "order_key"),
)

order_versions: Final = Table(
    PREFIX + "order_versions",
    metadata,
    _text("order_domain"),
    _text("order_key"),
    _number("version"),
    _id("effect_id"),
    PrimaryKeyConstraint("order_domain", "order_key", "version"),
)

schedule: Final = Table(
    PREFIX + "schedule",
    metadata,
    _id("work_id", primary_key=True),
    _text("lane"),
    _text("kind"),
    _id("subject_id"),
    _text("group_key", nullable=True),
    _number("group_seq", nullable=True),
    _at("ready_at", nullable=True),
    _number("claims", default=0),
    _text("lease_owner", nullable=True),
    _id("lease_token", nullable=True),
    _at("lease_until", nullable=True),
    UniqueConstraint("kind", "subject_id", name=PREFIX + "schedule_subject"),
)
Index(PREFIX + "schedule_due", schedule.c.lane, schedule.c.ready_at)
Index(PREFIX + "schedule_group", schedule.c.lane, schedule.c.group_key, schedule.c.group_seq)

reviews: Final = Table(
    PREFIX + "reviews",
    metadata,
    _id("review_id", primary_key=True),
    _text("kind"),
    _text("subject_kind"),
    _text("subject_id"),
    _text("severity"),
    _text("owner"),
    _text("note"),
    _at("opened_at"),
    _text("state", default="open"),
    _text("closed_by", nullable=True),
    _at("closed_at", nullable=True),
    _text("closing_note", nullable=True),
)
Index(
    PREFIX + "reviews_open",
    reviews.c.kind,
    reviews.c.subject_id,
    unique=True,
    **_only("state = 'open'"),
)

alerts: Final = Table(
    PREFIX + "alerts",
    metadata,
    Column("dedupe_key", Text, primary_key=True),
    _text("severity"),
    _at("first_at"),
    _at("last_at"),
    _number("count"),
)

actions: Final = Table(
    PREFIX + "actions",
    metadata,
    _id("action_id", primary_key=True),
    _text("actor"),
    _text("verb"),
    _text("subject"),
    _text("reason"),
    _text("before"),
    _text("after"),
    _at("at"),
)

runs: Final = Table(
    PREFIX + "runs",
    metadata,
    _id("run_id", primary_key=True),
    _text("kind"),
    _text("label"),
    _text("namespace"),
    _text("source"),
    _text("requested_by"),
    _text("reason"),
    _text("approved_by", nullable=True),
    _text("plan"),
    _bytes("plan_digest"),
    _text("state"),
    _text("paused_because", nullable=True),
    _number("events_max", nullable=True),
    _number("receipts_max", nullable=True),
    _number("effects_max", nullable=True),
    _number("quarantines_max", nullable=True),
    _number("rate_millitokens", nullable=True),
    _number("cursor", default=0),
    _number("accepted", default=0),
    _number("duplicates", default=0),
    _number("ignored", default=0),
    _number("quarantined", default=0),
    _number("conflicts", default=0),
    _number("rejected", default=0),
    _number("new_effects", default=0),
    _number("bucket_millitokens", default=0),
    _at("bucket_at", nullable=True),
    _at("created_at"),
    _at("changed_at"),
    CheckConstraint(
        "state IN ('draft','approved','running','paused','completed','aborted')",
        name=PREFIX + "runs_state",
    ),
)

gap_reports: Final = Table(
    PREFIX + "gap_reports",
    metadata,
    _id("report_id", primary_key=True),
    _id("run_id", nullable=True),
    _text("namespace"),
    _at("made_at"),
    _text("phase"),
    _text("report"),
)

scrub_reports: Final = Table(
    PREFIX + "scrub_reports",
    metadata,
    _id("report_id", primary_key=True),
    _at("made_at"),
    _bytes("policy_digest"),
    _text("policy"),
    _text("counts"),
    _bytes("ids_digest"),
)

ingest_clock: Final = Table(
    PREFIX + "ingest_clock",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    _number("ticked_us", default=0),
    _at("beat_at"),
)
"""One row: how long the boundary has been able to receive, all told (rule RT-7)."""

cursors: Final = Table(
    PREFIX + "cursors",
    metadata,
    Column("name", Text, primary_key=True),
    _text("position"),
    _at("changed_at"),
)
"""How far a follower of some feed has come; moved in the transaction that keeps what it read."""

stopped_lanes: Final = Table(
    PREFIX + "stopped_lanes",
    metadata,
    Column("lane", Text, primary_key=True),
    _text("reason"),
    _text("stopped_by"),
    _at("stopped_at"),
)
"""Lanes that nobody works on until a person lets them go on (a retired webhook, say)."""
