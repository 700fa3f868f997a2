"""What was claimed to be handled: read in a few statements, and matched with its handlers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from landed.errors import ConfigurationError
from landed.facts import Note
from landed.records import effects, outbox, schedule
from landed.records.session import Books
from landed.registry import Handler, Registry
from landed.workers.events import event_of, settlement_of, stored_rows

LATER_US: Final = 60_000_000
"""How long work waits for a declaration that is missing."""


class Job(NamedTuple):
    """One handling: its claim, its outbox row, and how to call its handler."""

    claim: schedule.Claim
    row: outbox.Row
    handler: Handler
    cause: effects.Cause
    event: Any
    """An ``Event``, or None for a settlement."""
    argument: Any
    owner: str
    claimed_ms: float
    """On the monotonic clock."""


def load(
    conn: Connection,
    books: Books,
    registry: Registry,
    claims: Sequence[schedule.Claim],
    *,
    claimed_ms: float,
    note: Note,
) -> list[Job]:
    """Read all that was claimed; what cannot be handled is put off, with its reason."""
    rows = {row.outbox_id: row for row in outbox.rows(conn, [c.subject_id for c in claims])}
    rows = {outbox_id: row for outbox_id, row in rows.items() if row.state == "queued"}
    schedule.finish(conn, [claim for claim in claims if claim.subject_id not in rows])
    events = stored_rows(conn, _causes(rows.values(), "handle"))
    ended = {
        found.effect_id: found for found in effects.views(conn, _causes(rows.values(), "settled"))
    }
    settled = registry.settled_handlers()
    jobs = []
    for claim in claims:
        row = rows.get(claim.subject_id)
        if row is None:
            continue
        try:
            if row.kind == "settled":
                job = _settlement(claim, row, settled, ended)
            else:
                job = _event(claim, row, registry, events)
        except ConfigurationError as e:
            # Nothing was tried: it waits for the declaration, and doctor lists it (HN-4).
            outbox.note_failure(conn, row.outbox_id, str(e), is_counted=False)
            schedule.rearm(conn, books, claim, delay_us=LATER_US)
            note("handling.put_off", {"row": str(row.outbox_id)})
        else:
            jobs.append(job._replace(claimed_ms=claimed_ms))
    return jobs


def _settlement(
    claim: schedule.Claim,
    row: outbox.Row,
    settled: Mapping[str, Handler],
    ended: Mapping[UUID, effects.EffectView],
) -> Job:
    name = row.destination.removeprefix("handler:")
    assert row.cause_id is not None, "a settlement has a cause"
    handler = settled.get(name)
    if handler is None:
        raise ConfigurationError(f"no settlement handler {name} is declared")
    cause = effects.Cause(kind="settlement", id=str(row.cause_id), handler=name)
    argument = settlement_of(ended[row.cause_id])
    return Job(claim, row, handler, cause, None, argument, "installation", 0.0)


def _event(
    claim: schedule.Claim, row: outbox.Row, registry: Registry, events: Mapping[UUID, Any]
) -> Job:
    name = row.destination.removeprefix("handler:")
    assert row.cause_id is not None, "a handling has a cause"
    handler = registry.handler_named(name)
    if handler is None:
        raise ConfigurationError(f"no handler {name} is declared")
    stored = events[row.cause_id]
    event = event_of(stored, registry)
    cause = effects.Cause(kind="receipt", id=str(row.cause_id), handler=name, origin=row.origin)
    owner = registry.producers[stored.namespace].owner
    return Job(claim, row, handler, cause, event, event, owner, 0.0)


def _causes(rows: Iterable[outbox.Row], kind: str) -> list[UUID]:
    return [row.cause_id for row in rows if row.kind == kind and row.cause_id is not None]
