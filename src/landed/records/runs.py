"""Runs: labelled, approved, rate-limited batches of events (rules BF-1 to BF-8).

A run never bypasses anything: its items go through the functions of live traffic, and are counted in
the transaction that keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, RowMapping, insert, select, update

from landed.errors import ActionRefusedError, ApprovalMissingError, CeilingReachedError
from landed.fingerprint import Json, canonical_json, fingerprint_raw
from landed.records.receipts import Conflicting, Seen, Taken
from landed.records.session import Books, is_postgres
from landed.records.tables import runs

BACKFILL: Final = "backfill"
REPROCESS: Final = "reprocess"
_MILLI: Final = 1000
_MILLITOKEN_US: Final = 1000
"""At one token a second, one thousandth of it takes a thousand microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What a run may do at most; None: no bound."""

    events: int | None = None
    receipts: int | None = None
    effects: int | None = None
    quarantines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do. Its digest is what a person approves; another plan needs another one."""

    kind: str
    """``backfill``: events from outside that we may not have; ``reprocess``: receipts we have."""
    label: str
    namespace: str
    source: str
    selection: Mapping[str, Json] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    rate_per_s: float | None = None
    """Items a second over all workers, with bursts of one second."""
    is_stale_approved: bool = False
    """Old attempt times pass, marked as such. A signature that does not verify never does."""
    is_sensitive: bool = False
    """Somebody else than the requester must approve it (rule BF-3)."""

    def declaration(self) -> bytes:
        """The plan as canonical bytes."""
        bounds = self.ceilings
        return canonical_json(
            {
                "kind": self.kind,
                "label": self.label,
                "namespace": self.namespace,
                "source": self.source,
                "selection": dict(self.selection),
                "ceilings": [bounds.events, bounds.receipts, bounds.effects, bounds.quarantines],
                "rate_per_s": self.rate_per_s,
                "is_stale_approved": self.is_stale_approved,
                "is_sensitive": self.is_sensitive,
            }
        )

    def digest(self) -> bytes:
        """SHA-256 over the plan, 32 bytes."""
        return fingerprint_raw(self.declaration()).digest


def create(conn: Connection, books: Books, plan: Plan, *, by: str, why: str) -> UUID:
    """Write down a run as a draft. It does nothing before somebody approves it."""
    if plan.kind not in (BACKFILL, REPROCESS):
        raise ActionRefusedError(f"a run is a {BACKFILL} or a {REPROCESS}, not {plan.kind!r}")
    run_id = books.new_id()
    at = books.at(conn)
    conn.execute(
        insert(runs).values(
            run_id=run_id,
            requested_by=by,
            reason=_stated(why),
            state="draft",
            created_at=at,
            changed_at=at,
            **_planned(plan),
        )
    )
    return run_id


def replan(conn: Connection, books: Books, run_id: UUID, plan: Plan) -> None:
    """Put another plan in place of one that has not run yet; an approval of the old one is void.

    Raises:
        ActionRefusedError: it runs, or has run.
    """
    changed = conn.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.state.in_(["draft", "approved"]))
        .values(state="draft", approved_by=None, changed_at=books.at(conn), **_planned(plan))
    )
    if changed.rowcount != 1:
        raise _refused(conn, run_id, "have another plan")


def approve(conn: Connection, books: Books, run_id: UUID, *, by: str, plan_digest: bytes) -> None:
    """Approve exactly the plan with this digest (rule BF-3).

    Raises:
        ApprovalMissingError: the plan is another one, or its requester may not approve it.
        ActionRefusedError: it is not a draft.
    """
    run = load(conn, run_id)
    if run["plan_digest"] != plan_digest:
        raise ApprovalMissingError(
            f"the plan of run {run_id} is {run['plan_digest'].hex()[:16]} now; look at it again"
        )
    if json.loads(run["plan"])["is_sensitive"] and by == run["requested_by"]:
        raise ApprovalMissingError(
            f"{run['namespace']} is sensitive: somebody else than {by} must approve the run"
        )
    _change(conn, books, run_id, frm=("draft",), to="approved", approved_by=by, verb="be approved")


def start(conn: Connection, books: Books, run_id: UUID) -> None:
    """Let an approved or paused run go on.

    Raises:
        ApprovalMissingError: nobody approved it.
        ActionRefusedError: it is over.
    """
    if load(conn, run_id)["state"] == "draft":
        raise ApprovalMissingError(f"run {run_id} is a draft: it must be approved first")
    _change(
        conn,
        books,
        run_id,
        frm=("approved", "paused", "running"),
        to="running",
        paused_because=None,
        verb="start",
    )


def pause(conn: Connection, books: Books, run_id: UUID, *, because: str) -> bool:
    """Stop a run until somebody starts it again. Returns whether it was running."""
    paused = conn.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.state == "running")
        .values(state="paused", paused_because=because[:500], changed_at=books.at(conn))
    )
    return paused.rowcount == 1


def pause_all(conn: Connection, books: Books, *, because: str) -> int:
    """Stop every run that goes, until somebody starts it again; returns how many went."""
    paused = conn.execute(
        update(runs)
        .where(runs.c.state == "running")
        .values(state="paused", paused_because=because[:500], changed_at=books.at(conn))
    )
    return paused.rowcount


def complete(conn: Connection, books: Books, run_id: UUID) -> None:
    """Note that every item was taken."""
    _change(conn, books, run_id, frm=("running",), to="completed", verb="be completed")


def abort(conn: Connection, books: Books, run_id: UUID, *, because: str) -> None:
    """Give a run up for good; what it did stays, labelled."""
    _change(
        conn,
        books,
        run_id,
        frm=("draft", "approved", "running", "paused"),
        to="aborted",
        paused_because=because[:500],
        verb="be aborted",
    )


def load(conn: Connection, run_id: UUID) -> RowMapping:
    """One run as it stands.

    Raises:
        ActionRefusedError: there is none.
    """
    row = conn.execute(select(runs).where(runs.c.run_id == run_id)).mappings().first()
    if row is None:
        raise ActionRefusedError(f"there is no run {run_id}")
    return row


def all_runs(conn: Connection, *, limit: int = 100) -> list[RowMapping]:
    """Runs, the newest first."""
    return list(
        conn.execute(select(runs).order_by(runs.c.created_at.desc()).limit(limit)).mappings()
    )


def take_tokens(conn: Connection, books: Books, run_id: UUID, *, wanted: int) -> int:
    """Take leave for so many items from the run's bucket; returns how many were given (BF-4).

    The bucket lives in the database and is shared by all workers; a restart does not refill it. It
    holds one second's worth at most, and starts empty.
    """
    statement = select(
        runs.c.state,
        runs.c.rate_millitokens,
        runs.c.bucket_millitokens,
        runs.c.bucket_at,
        books.at(conn).label("at"),
    ).where(runs.c.run_id == run_id)
    if is_postgres(conn.dialect):
        statement = statement.with_for_update()
    row = conn.execute(statement).one()
    if row.state != "running":
        return 0
    if row.rate_millitokens is None:
        return wanted
    passed_us = 0 if row.bucket_at is None else max(0, row.at - row.bucket_at)
    gained = passed_us * row.rate_millitokens // (_MILLI * _MILLITOKEN_US)
    held = min(max(row.rate_millitokens, _MILLI), row.bucket_millitokens + gained)
    given = min(wanted, held // _MILLI)
    conn.execute(
        update(runs)
        .where(runs.c.run_id == run_id)
        .values(bucket_millitokens=held - given * _MILLI, bucket_at=row.at)
    )
    return int(given)


def count_items(
    conn: Connection,
    books: Books,
    run_id: UUID,
    *,
    cursor_from: int,
    cursor_to: int,
    taken: Sequence[Taken],
    rejected: int = 0,
) -> None:
    """Count items and move the cursor, in the transaction that keeps them (rule BF-8).

    Args:
        conn: the transaction of ``receipts.keep``.
        books: the ledger's.
        run_id: whose items they are.
        cursor_from: where the caller read from: another worker's progress refuses it.
        cursor_to: the first item that is still to be taken.
        taken: what ``receipts.keep`` returned.
        rejected: items refused before receipt.

    Raises:
        CeilingReachedError: roll back, then pause the run (rule BF-5).
        ActionRefusedError: the run does not run, or another worker moved its cursor.
    """
    tally = tally_of(taken)
    counted = conn.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.state == "running", runs.c.cursor == cursor_from)
        .values(
            cursor=cursor_to,
            accepted=runs.c.accepted + tally["accepted"],
            duplicates=runs.c.duplicates + tally["duplicates"],
            ignored=runs.c.ignored + tally["ignored"],
            quarantined=runs.c.quarantined + tally["quarantined"],
            conflicts=runs.c.conflicts + tally["conflicts"],
            rejected=runs.c.rejected + rejected,
            changed_at=books.at(conn),
        )
        .returning(
            runs.c.accepted,
            runs.c.ignored,
            runs.c.quarantined,
            runs.c.events_max,
            runs.c.receipts_max,
            runs.c.quarantines_max,
        )
    ).first()
    if counted is None:
        raise ActionRefusedError(f"run {run_id} does not run, or its cursor is not {cursor_from}")
    receipts_made = counted.accepted + counted.ignored + counted.quarantined
    for name, done, most in (
        ("events", cursor_to, counted.events_max),
        ("receipts", receipts_made, counted.receipts_max),
        ("quarantines", counted.quarantined, counted.quarantines_max),
    ):
        if most is not None and done > most:
            raise CeilingReachedError(f"run {run_id} may have {most} {name}; this would be {done}")


def tally_of(taken: Sequence[Taken]) -> dict[str, int]:
    """Count what became of items, in the words of a run's counters."""
    tally = dict.fromkeys(("accepted", "duplicates", "ignored", "quarantined", "conflicts"), 0)
    for item in taken:
        if isinstance(item, Seen):
            tally["duplicates"] += 1
        elif isinstance(item, Conflicting):
            tally["conflicts"] += 1
        else:
            tally[item.disposition] += 1
    return tally


def _planned(plan: Plan) -> dict[str, object]:
    return {
        "kind": plan.kind,
        "label": plan.label,
        "namespace": plan.namespace,
        "source": plan.source,
        "plan": plan.declaration().decode(),
        "plan_digest": plan.digest(),
        "events_max": plan.ceilings.events,
        "receipts_max": plan.ceilings.receipts,
        "effects_max": plan.ceilings.effects,
        "quarantines_max": plan.ceilings.quarantines,
        "rate_millitokens": None if plan.rate_per_s is None else int(plan.rate_per_s * _MILLI),
    }


def _change(
    conn: Connection,
    books: Books,
    run_id: UUID,
    *,
    frm: tuple[str, ...],
    to: str,
    verb: str,
    **values: object,
) -> None:
    changed = conn.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.state.in_(frm))
        .values(state=to, changed_at=books.at(conn), **values)
    )
    if changed.rowcount != 1:
        raise _refused(conn, run_id, verb)


def _refused(conn: Connection, run_id: UUID, verb: str) -> ActionRefusedError:
    return ActionRefusedError(f"run {run_id} is {load(conn, run_id)['state']}: it cannot {verb}")


def _stated(why: str) -> str:
    if not why.strip():
        raise ActionRefusedError("say why: a reason is kept with every run")
    return why
