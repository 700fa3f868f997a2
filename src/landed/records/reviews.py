"""Work for people, with an owner, and the alert that tells them; both commit with their cause."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, RowMapping, case, select, update
from sqlalchemy.dialects import postgresql, sqlite

from landed.records import outbox
from landed.records.session import Books, is_postgres
from landed.records.tables import alerts, reviews
from landed.records.texts import storable

ALERT_LANE = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One work item. One may be open per kind and subject."""

    kind: str
    subject_kind: str
    subject_id: str
    severity: str
    """``warning`` or ``critical``."""
    owner: str
    note: str


def open_review(conn: Connection, books: Books, review: Review) -> bool:
    """Open a review and raise its alert, unless one is open for the subject already.

    Repeats of one cause join one alert, raised again at 1, 10, 100, ... (rule AL-3).

    Returns whether it was opened.
    """
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    at = books.at(conn)
    opened = conn.execute(
        dialect.insert(reviews)
        .values(
            review_id=books.new_id(),
            kind=review.kind,
            subject_kind=review.subject_kind,
            subject_id=review.subject_id,
            severity=review.severity,
            owner=review.owner,
            note=storable(review.note[:2000]),
            opened_at=at,
        )
        .on_conflict_do_nothing()
        .returning(reviews.c.review_id)
    ).first()
    if opened is None:
        return False
    _raise(conn, books, review)
    return True


def is_open(conn: Connection, *, kind: str, subject_id: str) -> bool:
    """Whether somebody is asked about this already."""
    found = conn.execute(
        select(reviews.c.review_id).where(
            reviews.c.state == "open", reviews.c.kind == kind, reviews.c.subject_id == subject_id
        )
    )
    return found.first() is not None


def close_review(conn: Connection, books: Books, review_id: UUID, *, by: str, note: str) -> bool:
    """Close a review, with a note (rule AL-5). Returns whether it was open."""
    result = conn.execute(
        update(reviews)
        .where(reviews.c.review_id == review_id, reviews.c.state == "open")
        .values(state="closed", closed_by=by, closed_at=books.at(conn), closing_note=note)
    )
    return result.rowcount == 1


def open_reviews(conn: Connection, *, limit: int = 100) -> list[RowMapping]:
    """What people have to look at: the worst first, then the oldest."""
    return list(
        conn.execute(
            select(reviews)
            .where(reviews.c.state == "open")
            .order_by(reviews.c.severity, reviews.c.opened_at)
            .limit(limit)
        ).mappings()
    )


def close_subject(
    conn: Connection, books: Books, *, subject_kind: str, subject_id: UUID, by: str, note: str
) -> int:
    """Close every open review of a subject that was dealt with; returns how many."""
    result = conn.execute(
        update(reviews)
        .where(
            reviews.c.state == "open",
            reviews.c.subject_kind == subject_kind,
            reviews.c.subject_id == str(subject_id),
        )
        .values(state="closed", closed_by=by, closed_at=books.at(conn), closing_note=note)
    )
    return result.rowcount


def _raise(conn: Connection, books: Books, review: Review) -> None:
    dialect = postgresql if is_postgres(conn.dialect) else sqlite
    at = books.at(conn)
    key = f"{review.kind}/{review.owner}"
    # "critical" sorts before "warning": a joined alert keeps the worse of the two.
    is_worse = alerts.c.severity > review.severity
    count, severity = conn.execute(
        dialect.insert(alerts)
        .values(dedupe_key=key, severity=review.severity, first_at=at, last_at=at, count=1)
        .on_conflict_do_update(
            index_elements=["dedupe_key"],
            set_={
                "last_at": at,
                # Worse than before: the count begins again, so that it is raised again.
                "count": case((is_worse, 1), else_=alerts.c.count + 1),
                "severity": case((is_worse, review.severity), else_=alerts.c.severity),
            },
        )
        .returning(alerts.c.count, alerts.c.severity)
    ).one()
    if str(count).rstrip("0") != "1":
        return
    # It leaves the house, so it names and counts; what the review says may quote a payload.
    outbox.add(
        conn,
        books,
        [
            outbox.Message(
                kind="alert",
                destination="alerts",
                message_id=f"{key}/{count}/{books.new_id()}",
                cause_kind="review",
                cause_id=None,
                type=review.kind,
                body=json.dumps(
                    {
                        "kind": review.kind,
                        "severity": severity,
                        "owner": review.owner,
                        "subject": f"{review.subject_kind}/{review.subject_id}",
                        "count": count,
                    },
                    ensure_ascii=False,
                ).encode(),
                lane=ALERT_LANE,
            )
        ],
    )
