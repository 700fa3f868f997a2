"""The story of a receipt or an effect in order: what is known, how, and what can happen next (OP-6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Table, select

from landed.effects.contract import Contract
from landed.effects.doubt import may_resend, resend_limit_us, standing
from landed.effects.state import TERMINAL, State
from landed.effects.transitions import Happening, Kind, decide
from landed.records import contracts
from landed.records.effects import EFFECT, EffectView, view
from landed.records.session import Books
from landed.records.tables import (
    actions,
    attempts,
    effect_causes,
    effects,
    outbox,
    quarantine,
    receipt_conflicts,
    receipts,
    reconciliations,
    reviews,
    schedule,
)


class Line(NamedTuple):
    """One thing that happened. ``at_us`` is microseconds since 1970, None if nobody noted when."""

    at_us: int | None
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is known of one receipt or effect. Holds no payload."""

    kind: str
    """``receipt`` or ``effect``."""
    id: UUID
    state: str
    why: str
    """One sentence: why it stands there, and on what evidence."""
    lines: tuple[Line, ...]
    waits_for: str = ""
    allowed: tuple[str, ...] = ()
    """Verbs that a person may use now."""
    would_settle: tuple[str, ...] = ()
    related: tuple[tuple[str, str], ...] = field(default=())
    """(kind, id) of what it comes from and what came of it."""


_VERBS = {
    Happening.REQUEUE: "effect.requeue",
    Happening.CANCEL: "effect.cancel",
    Happening.ATTEST_ACTED: "effect.attest acted",
    Happening.ATTEST_ABSENT: "effect.attest did-not-act",
}


def explain(conn: Connection, books: Books, id: UUID) -> Story | None:
    """Tell the story of a receipt, an effect, or what an outbox row or idempotency key belongs to.

    Returns None if nothing has this id.
    """
    effect = view(conn, id)
    if effect is None:
        by_key = conn.execute(
            select(effects.c.effect_id).where(effects.c.idempotency_key == id)
        ).scalar()
        effect = None if by_key is None else view(conn, by_key)
    if effect is not None:
        return _effect(conn, books, effect)
    receipt = _row(conn, receipts, "receipt_id", id)
    if receipt is not None:
        return _receipt(conn, receipt)
    row = _row(conn, outbox, "outbox_id", id)
    if row is not None and row["cause_id"] is not None:
        return explain(conn, books, row["cause_id"])
    return None


def _receipt(conn: Connection, receipt: RowMapping) -> Story:
    id: UUID = receipt["receipt_id"]
    lines = [
        Line(
            receipt["received_at"],
            "received",
            f"{receipt['type']} from {receipt['namespace']}, {receipt['auth_result']} by "
            f"{receipt['auth_method']} with key {receipt['auth_key_id']}",
        )
    ]
    aside = _row(conn, quarantine, "receipt_id", id)
    if aside is not None:
        lines.append(
            Line(aside["opened_at"], "quarantined", f"{aside['reason']}: {aside['detail']}")
        )
        if aside["decision"] != "open":
            lines.append(
                Line(
                    aside["decided_at"],
                    aside["decision"],
                    f"by {aside['decided_by']}: {aside['decision_reason']}",
                )
            )
    lines += [
        Line(row["received_at"], "conflict", "arrived again with another payload; the first stands")
        for row in _rows(conn, receipt_conflicts, "receipt_id", id)
    ]
    handed = _rows(conn, outbox, "cause_id", id)
    for row in handed:
        lines.append(Line(row["created_at"], f"{row['kind']} queued", row["destination"]))
        if row["state"] != "queued":
            lines.append(Line(row["done_at"], f"{row['kind']} {row['state']}", _outbox_detail(row)))
    caused = conn.execute(
        select(effect_causes.c.effect_id).where(
            effect_causes.c.cause_kind == "receipt", effect_causes.c.cause_id == str(id)
        )
    ).scalars()
    waiting = [row["destination"] for row in handed if row["state"] in ("queued", "parked")]
    decides = aside["owner"] if aside is not None and aside["decision"] == "open" else None
    return Story(
        kind="receipt",
        id=id,
        state=receipt["disposition"],
        why=_receipt_why(receipt, aside),
        lines=_in_order([*lines, *_people(conn, "receipt", id)]),
        waits_for=", ".join(waiting) if decides is None else f"a decision of {decides}",
        allowed=("quarantine.release", "quarantine.reject") if decides else (),
        related=tuple((EFFECT, str(effect_id)) for effect_id in caused),
    )


def _receipt_why(receipt: RowMapping, aside: RowMapping | None) -> str:
    match receipt["disposition"]:
        case "quarantined":
            assert aside is not None, "a quarantined receipt has its quarantine"
            return f"authentic, but it cannot be processed: {aside['reason']}"
        case "ignored":
            return f"durably noted and not handled: {receipt['disposition_reason']}"
        case "rejected":
            return f"a person decided that it is never handled: {receipt['disposition_reason']}"
        case _:
            return "durably held; its handlings are separate and listed here"


def _effect(conn: Connection, books: Books, effect: EffectView) -> Story:
    contract = contracts.load(conn, effect.contract_digest)
    id = effect.effect_id
    lines = [Line(effect.created_at, "requested", f"{effect.effect_type} at {effect.recipient}")]
    causes = list(_rows(conn, effect_causes, "effect_id", id))
    lines += [
        Line(row["requested_at"], "cause", f"{row['cause_kind']} {row['cause_id']}")
        for row in causes
    ]
    for row in _rows(conn, attempts, "effect_id", id):
        number = f"attempt {row['attempt_no']}"
        lines.append(Line(row["begun_at"], f"{number} begun", f"by {row['worker']}"))
        if row["ended_at"] is not None:
            said = " ".join(str(row[name]) for name in ("answer_code", "error") if row[name])
            lines.append(Line(row["ended_at"], f"{number} ended: {row['outcome']}", said))
        if row["late_outcome"] is not None:
            lines.append(Line(row["late_at"], f"{number} answered late: {row['late_outcome']}"))
    lines += [
        Line(
            row["asked_at"],
            f"{row['method']}: {row['answer']}",
            f"finality {row['finality']}; {row['decision']}"
            + (f"; asked {row['repeats']} times" if row["repeats"] > 1 else ""),
        )
        for row in _rows(conn, reconciliations, "effect_id", id)
    ]
    if effect.settled_at is not None:
        lines.append(Line(effect.settled_at, effect.state.value, f"certainty {effect.certainty}"))
    work = conn.execute(
        select(schedule.c.lane, schedule.c.ready_at, schedule.c.lease_owner).where(
            schedule.c.kind == EFFECT, schedule.c.subject_id == id
        )
    ).first()
    return Story(
        kind=EFFECT,
        id=id,
        state=effect.state.value,
        why=_effect_why(effect),
        lines=_in_order([*lines, *_people(conn, EFFECT, id)]),
        waits_for=_waits_for(effect, None if work is None else work.lane),
        allowed=_allowed(effect, contract),
        would_settle=_would_settle(effect, contract, books),
        related=tuple((row["cause_kind"], row["cause_id"]) for row in causes),
    )


def _effect_why(effect: EffectView) -> str:
    reason = f" ({effect.reason})" if effect.reason else ""
    match effect.state:
        case State.PENDING:
            return "recorded, and never begun: nothing has left"
        case State.SENDING:
            return f"attempt {effect.attempt_no} is open: it may have acted, its answer is not in"
        case State.RETRY:
            return "proven not to have acted; due again"
        case State.ACCEPTED:
            return "the recipient durably took it; its result is to come"
        case State.UNKNOWN:
            return f"in doubt{reason}: attempt {effect.doubt_from} may have acted, nobody knows yet"
        case State.PARKED:
            return f"no doubt, but it needs a person{reason}"
        case State.CONFIRMED:
            return f"it happened, {effect.certainty}"
        case State.REFUSED:
            return f"it did not happen and will not: its recipient refused it, {effect.certainty}"
        case State.FENCED:
            return f"it can never happen: its recipient lets it pass no more, {effect.certainty}"
        case State.CANCELLED:
            return f"it did not happen: cancelled{reason}"


def _waits_for(effect: EffectView, lane: str | None) -> str:
    if effect.state in TERMINAL:
        return ""
    if effect.held_by is not None:
        return f"{effect.held_by}, who holds it"
    if effect.state is State.SENDING:
        return "its answer, or the end of its send deadline"
    if effect.state is State.PARKED:
        return "a person"
    return "a worker of the lane " + lane if lane else "a rebuild of the schedule"


def _allowed(effect: EffectView, contract: Contract | None) -> tuple[str, ...]:
    if effect.state in TERMINAL:
        return ()
    doubt = standing(effect.doubt, contract or Contract())
    verbs = [
        verb for happening, verb in _VERBS.items() if decide(happening, doubt).kind is Kind.MOVE
    ]
    has_seal = contract is not None and contract.seal is not None
    if effect.state is State.SENDING or (effect.state is State.UNKNOWN and has_seal):
        verbs.append("effect.cancel")
    if effect.state in (State.UNKNOWN, State.ACCEPTED):
        verbs.append("effect.reconcile")
    verbs.append("effect.hold" if effect.held_by is None else "effect.release")
    return tuple(verbs)


def _would_settle(effect: EffectView, contract: Contract | None, books: Books) -> tuple[str, ...]:
    if effect.state not in (State.UNKNOWN, State.ACCEPTED, State.SENDING):
        return ()
    if contract is None:
        return ("a person: the contract that it is bound to is not known here",)
    ways = [f"an event {name} from {effect.recipient}" for name in contract.evidence_events]
    if contract.lookup is not None:
        ways.append(f"a look-up that finds it at {effect.recipient}")
    if may_resend(effect.doubt, contract, now_us=books.now_us()):
        until = resend_limit_us(effect.doubt, contract)
        ways.append(
            "sending it again under the same key"
            + ("" if until is None else f" before {_utc(until)}")
        )
    if contract.seal is not None:
        ways.append("a seal, if it is cancelled or stands in the way of a newer one")
    return (*ways, "a person who attests what became of it")


def _utc(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat(" ", "seconds")


def _people(conn: Connection, kind: str, id: UUID) -> list[Line]:
    lines = []
    told = conn.execute(
        select(reviews).where(reviews.c.subject_kind == kind, reviews.c.subject_id == str(id))
    )
    for row in told.mappings():
        lines.append(
            Line(row["opened_at"], f"review opened: {row['kind']}", f"owner {row['owner']}")
        )
        if row["closed_at"] is not None:
            lines.append(Line(row["closed_at"], "review closed", f"by {row['closed_by']}"))
    done = conn.execute(select(actions).where(actions.c.subject == f"{kind}/{id}"))
    lines += [
        Line(row["at"], row["verb"], f"by {row['actor']}: {row['reason']}")
        for row in done.mappings()
    ]
    return lines


def _outbox_detail(row: RowMapping) -> str:
    return " ".join(str(row[name]) for name in ("destination", "proof", "last_error") if row[name])


def _in_order(lines: list[Line]) -> tuple[Line, ...]:
    return tuple(sorted(lines, key=lambda line: (line.at_us is None, line.at_us or 0)))


def _rows(conn: Connection, table: Table, column: str, id: UUID) -> list[RowMapping]:
    return list(conn.execute(select(table).where(table.c[column] == id)).mappings())


def _row(conn: Connection, table: Table, column: str, id: UUID) -> RowMapping | None:
    return next(iter(_rows(conn, table, column, id)), None)
