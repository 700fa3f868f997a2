"""What people do, each a row: who, when, what, why, and what it changed (rules OP-1 to OP-7).

Actions obey the table of an effect's life and the states of outbox and quarantine; there is no "set
state". The action id makes each idempotent: a repeat changes nothing and answers as the first did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select
from sqlalchemy.dialects import postgresql, sqlite

from landed.deliveries.producer import Producer
from landed.errors import ActionRefusedError, RetryTransactionError
from landed.records import lanes, outbox, quarantine, rebuild, reviews, runs
from landed.records.session import Books, is_postgres
from landed.records.tables import actions, payloads
from landed.records.tables import quarantine as quarantined

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Who acts and why. ``action_id`` is the caller's own key for this act."""

    action_id: UUID
    actor: str
    reason: str


class Done(NamedTuple):
    """What an action changed. ``is_repeat``: it was done before, and nothing happened now."""

    before: Facts
    after: Facts
    is_repeat: bool = False


def perform(
    conn: Connection,
    books: Books,
    action: Action,
    verb: str,
    subject: str,
    work: Callable[[], tuple[Facts, Facts]],
) -> Done:
    """Do something once, and write down that it was done; in one transaction (TX-OPER).

    Args:
        conn: inside a transaction.
        books: the ledger's.
        action: who and why.
        verb: of the closed list, ``effect.cancel`` for example.
        subject: what it is done to.
        work: does it, and says what was before and what is after.

    Raises:
        ActionRefusedError: nobody says who or why, the id belongs to another act, or ``work`` says
            which state it found and what would make it possible.
        RetryTransactionError: the same act ran at the same time; run the transaction again.
    """
    if not action.reason.strip() or not action.actor.strip():
        raise ActionRefusedError("say who and why: both are kept with every action")
    known = find(conn, action.action_id)
    if known is not None:
        if (known["verb"], known["subject"]) != (verb, subject):
            raise ActionRefusedError(
                f"action {action.action_id} was {known['verb']} of {known['subject']}; give this one "
                "an id of its own"
            )
        return Done(json.loads(known["before"]), json.loads(known["after"]), is_repeat=True)
    try:
        before, after = work()
    except ActionRefusedError:
        if find(conn, action.action_id) is not None:
            # The same act was committed while this one waited: run again, and find it done.
            raise _at_the_same_time(action) from None
        raise
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    written = conn.execute(
        dialect.insert(actions)
        .values(
            action_id=action.action_id,
            actor=action.actor,
            verb=verb,
            subject=subject,
            reason=action.reason,
            before=json.dumps(before),
            after=json.dumps(after),
            at=books.at(conn),
        )
        .on_conflict_do_nothing()
        .returning(actions.c.action_id)
    ).first()
    if written is None:
        raise _at_the_same_time(action)
    return Done(before, after)


def _at_the_same_time(action: Action) -> RetryTransactionError:
    return RetryTransactionError(f"action {action.action_id} was done at the same time")


def find(conn: Connection, action_id: UUID) -> RowMapping | None:
    """One action as it was written down."""
    return conn.execute(select(actions).where(actions.c.action_id == action_id)).mappings().first()


def release_quarantine(
    conn: Connection,
    books: Books,
    action: Action,
    receipt_id: UUID,
    *,
    producer: Producer,
    routes: quarantine.Routes,
) -> Done:
    """``quarantine.release``: see ``quarantine.release``."""

    def work() -> tuple[Facts, Facts]:
        released = quarantine.release(
            conn,
            books,
            receipt_id,
            by=action.actor,
            why=action.reason,
            producer=producer,
            routes=routes,
        )
        return {"decision": "open"}, {
            "decision": "released",
            "handlings": [str(handling) for handling in released.handlings],
        }

    return perform(conn, books, action, "quarantine.release", f"receipt/{receipt_id}", work)


def release_previewed(
    conn: Connection,
    books: Books,
    action: Action,
    *,
    producer: Producer,
    reason: str | None,
    digest: bytes,
    routes: quarantine.Routes,
) -> Done:
    """``quarantine.release_all``: release exactly the set that was looked at, or nothing (OP-3).

    Raises:
        ActionRefusedError: the set changed since its preview, or one of it is still not acceptable.
    """

    def work() -> tuple[Facts, Facts]:
        found = quarantine.preview(conn, producer.namespace, reason=reason)
        if found.digest != digest:
            raise ActionRefusedError(
                f"the set changed since it was looked at: it has {len(found.receipt_ids)} events now; "
                "look at it again"
            )
        for receipt_id in found.receipt_ids:
            quarantine.release(
                conn,
                books,
                receipt_id,
                by=action.actor,
                why=action.reason,
                producer=producer,
                routes=routes,
            )
        return {"open": len(found.receipt_ids)}, {"released": len(found.receipt_ids)}

    subject = f"quarantine/{producer.namespace}/{digest.hex()[:16]}"
    return perform(conn, books, action, "quarantine.release_all", subject, work)


def reject_quarantine(conn: Connection, books: Books, action: Action, receipt_id: UUID) -> Done:
    """``quarantine.reject``: the event is never handled."""

    def work() -> tuple[Facts, Facts]:
        quarantine.reject(conn, books, receipt_id, by=action.actor, why=action.reason)
        return {"decision": "open"}, {"decision": "rejected"}

    return perform(conn, books, action, "quarantine.reject", f"receipt/{receipt_id}", work)


def retry_outbox(conn: Connection, books: Books, action: Action, outbox_id: UUID) -> Done:
    """``outbox.retry``: a parked row is queued again, with a fresh budget."""

    def work() -> tuple[Facts, Facts]:
        if not outbox.retry(conn, books, outbox_id):
            raise _outbox_refused(conn, outbox_id, "retry", "a parked row can be tried again")
        _close_reviews(conn, books, action, outbox_id)
        return {"state": "parked"}, {"state": "queued"}

    return perform(conn, books, action, "outbox.retry", f"outbox/{outbox_id}", work)


def skip_outbox(conn: Connection, books: Books, action: Action, outbox_id: UUID) -> Done:
    """``outbox.skip``: a parked row is given up, so that its group goes on without it (OB-8)."""

    def work() -> tuple[Facts, Facts]:
        why = f"skipped by {action.actor}: {action.reason}"
        if not outbox.skip(conn, outbox_id, why=why):
            raise _outbox_refused(conn, outbox_id, "skip", "a parked row can be skipped")
        _close_reviews(conn, books, action, outbox_id)
        return {"state": "parked"}, {"state": "cancelled"}

    return perform(conn, books, action, "outbox.skip", f"outbox/{outbox_id}", work)


def cancel_outbox(conn: Connection, books: Books, action: Action, outbox_id: UUID) -> Done:
    """``outbox.cancel``: a row that was not handed on yet never will be."""

    def work() -> tuple[Facts, Facts]:
        before = [row.state for row in outbox.rows(conn, [outbox_id])]
        if not outbox.cancel(conn, outbox_id, why=f"cancelled by {action.actor}: {action.reason}"):
            raise _outbox_refused(
                conn, outbox_id, "cancel", "a queued or parked row can be cancelled"
            )
        _close_reviews(conn, books, action, outbox_id)
        return {"state": before[0]}, {"state": "cancelled"}

    return perform(conn, books, action, "outbox.cancel", f"outbox/{outbox_id}", work)


def resume_lane(conn: Connection, books: Books, action: Action, lane: str) -> Done:
    """``lane.resume``: a lane that was stopped is worked on again."""

    def work() -> tuple[Facts, Facts]:
        why = lanes.why_stopped(conn, lane)
        if not lanes.resume(conn, lane):
            raise ActionRefusedError(f"cannot resume {lane}: it is not stopped")
        return {"stopped_because": why}, {"stopped_because": None}

    return perform(conn, books, action, "lane.resume", f"lane/{lane}", work)


def resume_run(conn: Connection, books: Books, action: Action, run_id: UUID) -> Done:
    """``run.resume``: a paused run goes on."""

    def work() -> tuple[Facts, Facts]:
        run = runs.load(conn, run_id)
        if run["state"] != "paused":
            raise ActionRefusedError(
                f"cannot resume: run {run_id} is {run['state']}; only a paused run is resumed"
            )
        runs.start(conn, books, run_id)
        return {"state": "paused", "because": run["paused_because"]}, {"state": "running"}

    return perform(conn, books, action, "run.resume", f"run/{run_id}", work)


def rebuild_schedule(conn: Connection, books: Books, action: Action) -> Done:
    """``schedule.rebuild``: see ``rebuild.rebuild_schedule``."""

    def work() -> tuple[Facts, Facts]:
        rebuilt = rebuild.rebuild_schedule(conn, books)
        return {}, dict(rebuilt._asdict())

    return perform(conn, books, action, "schedule.rebuild", "schedule", work)


def reveal_payload(
    conn: Connection, books: Books, action: Action, receipt_id: UUID
) -> bytes | None:
    """``payload.reveal``: the body of one event; that somebody looked is an action (rule OP-7)."""
    body = conn.execute(select(payloads.c.body).where(payloads.c.receipt_id == receipt_id)).scalar()
    if body is None:
        body = conn.execute(
            select(quarantined.c.payload).where(quarantined.c.receipt_id == receipt_id)
        ).scalar()

    def work() -> tuple[Facts, Facts]:
        return {}, {"bytes": None if body is None else len(body)}

    perform(conn, books, action, "payload.reveal", f"receipt/{receipt_id}", work)
    return None if body is None else bytes(body)


def _close_reviews(conn: Connection, books: Books, action: Action, outbox_id: UUID) -> None:
    reviews.close_subject(
        conn,
        books,
        subject_kind=outbox.OUTBOX,
        subject_id=outbox_id,
        by=action.actor,
        note=action.reason,
    )


def _outbox_refused(
    conn: Connection, outbox_id: UUID, verb: str, possible: str
) -> ActionRefusedError:
    found = outbox.rows(conn, [outbox_id])
    if not found:
        return ActionRefusedError(f"cannot {verb}: there is no outbox row {outbox_id}")
    return ActionRefusedError(f"cannot {verb}: it is {found[0].state}; {possible}")
