"""What a producer's own list has and we do not, and the reverse: measured, never guessed (BF-10)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, insert, select

from landed.records.session import Books
from landed.records.tables import gap_reports, receipts

NOT_MEASURED: Final = "gap not measured"
_PAGE: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A manifest compared with what is held. ``expected`` None: there was no manifest."""

    expected: int | None
    held: int = 0
    missing: tuple[tuple[str, str], ...] = ()
    """(source, id) of what the producer has and we do not."""
    unexpected: int | None = None
    """Receipts in the window that the manifest does not list; None without a window."""
    recovered: int | None = None
    """Missing in the report before, held now; None if there was no report before."""

    @property
    def verdict(self) -> str:
        if self.expected is None:
            return NOT_MEASURED
        return f"{len(self.missing)} of {self.expected} missing"


def measure(
    conn: Connection,
    books: Books,
    *,
    namespace: str,
    manifest: Sequence[tuple[str, str]] | None,
    phase: str,
    run_id: UUID | None = None,
    window_us: tuple[int, int] | None = None,
) -> Gap:
    """Compare a manifest with the receipts, and write the report down.

    Args:
        conn: inside a transaction.
        books: the ledger's.
        namespace: the producer.
        manifest: (source, id) of every event that it says it sent; None: it has no list.
        phase: ``before`` or ``after`` a run, or ``audit``.
        run_id: the run that this is about.
        window_us: from and to (without), microseconds of receipt, for counting the unexpected.
    """
    gap = Gap(expected=None) if manifest is None else _compare(conn, books, namespace, manifest)
    if manifest is not None and window_us is not None:
        gap = _with_unexpected(conn, books, namespace, manifest, gap, window_us)
    before = _missing_before(conn, run_id)
    if before is not None and manifest is not None:
        still = set(gap.missing)
        gap = Gap(
            expected=gap.expected,
            held=gap.held,
            missing=gap.missing,
            unexpected=gap.unexpected,
            recovered=sum(item not in still for item in before),
        )
    conn.execute(
        insert(gap_reports).values(
            report_id=books.new_id(),
            run_id=run_id,
            namespace=namespace,
            made_at=books.at(conn),
            phase=phase,
            report=json.dumps(
                {
                    "verdict": gap.verdict,
                    "expected": gap.expected,
                    "held": gap.held,
                    "missing": gap.missing,
                    "unexpected": gap.unexpected,
                    "recovered": gap.recovered,
                }
            ),
        )
    )
    return gap


def _compare(
    conn: Connection, books: Books, namespace: str, manifest: Sequence[tuple[str, str]]
) -> Gap:
    listed = list(dict.fromkeys(manifest))
    missing: list[tuple[str, str]] = []
    for start in range(0, len(listed), _PAGE):
        page = {
            books.identity_digest(namespace, source, id): (source, id)
            for source, id in listed[start : start + _PAGE]
        }
        held = set(
            conn.execute(
                select(receipts.c.identity_digest).where(receipts.c.identity_digest.in_(page))
            ).scalars()
        )
        missing += [item for digest, item in page.items() if digest not in held]
    return Gap(expected=len(listed), held=len(listed) - len(missing), missing=tuple(missing))


def _with_unexpected(
    conn: Connection,
    books: Books,
    namespace: str,
    manifest: Sequence[tuple[str, str]],
    gap: Gap,
    window_us: tuple[int, int],
) -> Gap:
    known = {books.identity_digest(namespace, source, id) for source, id in manifest}
    held = conn.execute(
        select(receipts.c.identity_digest).where(
            receipts.c.namespace == namespace,
            receipts.c.received_at >= window_us[0],
            receipts.c.received_at < window_us[1],
        )
    ).scalars()
    unexpected = sum(bytes(digest) not in known for digest in held)
    return Gap(expected=gap.expected, held=gap.held, missing=gap.missing, unexpected=unexpected)


def _missing_before(conn: Connection, run_id: UUID | None) -> list[tuple[str, str]] | None:
    if run_id is None:
        return None
    report = conn.execute(
        select(gap_reports.c.report)
        .where(gap_reports.c.run_id == run_id, gap_reports.c.phase == "before")
        .order_by(gap_reports.c.made_at)
        .limit(1)
    ).scalar()
    if report is None:
        return None
    return [(source, id) for source, id in json.loads(report)["missing"]]
