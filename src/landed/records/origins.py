"""Where a row comes from: ``live``, or one run, which is counted and bounded."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy import Connection, or_, update

from landed.errors import CeilingReachedError
from landed.records.tables import runs

LIVE: Final = "live"


def origin_of(kind: str, run_id: UUID) -> str:
    """The label of everything that a run causes."""
    return f"{kind}:{run_id}"


def run_of(origin: str) -> UUID | None:
    """The run behind a label; None for live traffic."""
    _, colon, run = origin.partition(":")
    return UUID(run) if colon else None


def count_effect(conn: Connection, origin: str) -> None:
    """Count one new effect of a run, in the transaction that creates it (rules BF-5, BF-8).

    Raises:
        CeilingReachedError: it would be one too many; the caller's transaction must roll back.
    """
    run_id = run_of(origin)
    if run_id is None:
        return
    counted = conn.execute(
        update(runs)
        .where(
            runs.c.run_id == run_id,
            or_(runs.c.effects_max.is_(None), runs.c.new_effects < runs.c.effects_max),
        )
        .values(new_effects=runs.c.new_effects + 1)
    )
    if counted.rowcount != 1:
        raise CeilingReachedError(f"run {run_id} may cause no more new effects")
