"""A run's files and its measured gaps, for ``landed run``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from landed.cli.desk import Desk

if TYPE_CHECKING:
    from sqlalchemy import RowMapping


def gaps_of(desk: Desk, id: UUID) -> list[dict[str, Any]]:
    """What was measured for a run, oldest first."""
    from sqlalchemy import select

    from landed.records.tables import gap_reports

    rows = desk.read(
        lambda conn: conn.execute(
            select(gap_reports.c.phase, gap_reports.c.report)
            .where(gap_reports.c.run_id == id)
            .order_by(gap_reports.c.made_at)
        ).all()
    )
    return [{"phase": row.phase, **json.loads(row.report)} for row in rows]


def measure(desk: Desk, row: RowMapping, phase: str) -> None:
    """Measure the gap once per phase; without a manifest the report says that it was not (BF-10)."""
    from landed.records import gaps

    if any(gap["phase"] == phase for gap in gaps_of(desk, row["run_id"])):
        return
    selection = json.loads(row["plan"])["selection"]
    path = selection["manifest"]
    manifest = None if path is None else _manifest(Path(path), selection["manifest_sha256"])
    desk.transact(
        lambda conn: gaps.measure(
            conn,
            desk.books,
            namespace=row["namespace"],
            manifest=manifest,
            phase=phase,
            run_id=row["run_id"],
        )
    )


def _manifest(path: Path, sha256: str) -> list[tuple[str, str]]:
    from landed.errors import ConfigurationError

    check_digest(path, sha256)
    listed: list[tuple[str, str]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            source, id = json.loads(line)
        except (ValueError, TypeError):
            raise ConfigurationError(f"{path}, line {number}: not [source, id]") from None
        listed.append((str(source), str(id)))
    return listed


def check_digest(path: Path, sha256: str) -> None:
    """Refuse a file that is not the one that was planned.

    Raises:
        ApprovalMissingError: it has changed.
    """
    from landed.errors import ApprovalMissingError

    if digest_of(path) != sha256:
        raise ApprovalMissingError(f"{path} is not the file that was planned: create the run anew")


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex.

    Raises:
        ConfigurationError: it cannot be read.
    """
    from landed.errors import ConfigurationError

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as e:
        raise ConfigurationError(f"{path} cannot be read: {e.strerror}") from None
