"""The one table of HTTP answers that are not a success. No other file knows a status.

Every problem says three things a program can act on: ``code``, whether the same key may be sent
again (``retryable``), and what became of this request (``outcome``). Source: safe-writes SW-124 and
SW-125, RFC 9457.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from fastapi import Response

from landed.commands import Applied

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""What a 409 or a 503 asks a caller to wait; whole seconds, and the loop has just waited itself."""

_RETRY_LATER: Final = frozenset({409, 503})


class Row(NamedTuple):
    """One line of the table."""

    status: int
    type: str
    """A URI reference; ``about:blank`` where the status says it all."""
    title: str
    outcome: Applied | None
    """None where a request that changes nothing is meant."""
    is_retryable: bool


_NO = Applied.NOT_APPLIED

TABLE: Final[Mapping[str, Row]] = {
    "BAD_REQUEST": Row(400, "/problems/bad-request", "The request is malformed", _NO, False),
    "BAD_IDEMPOTENCY_KEY": Row(
        400, "/problems/bad-idempotency-key", "The Idempotency-Key is malformed", _NO, False
    ),
    "NOT_FOUND": Row(404, "about:blank", "Not Found", _NO, False),
    "METHOD_NOT_ALLOWED": Row(405, "about:blank", "Method Not Allowed", _NO, False),
    "CONFLICT": Row(409, "/problems/conflict", "Others kept getting there first", _NO, True),
    "OUTCOME_UNKNOWN": Row(
        409,
        "/problems/outcome-unknown",
        "It may or may not have happened; ask again with the same key",
        Applied.UNKNOWN,
        True,
    ),
    "RESULT_UNAVAILABLE": Row(
        409,
        "/problems/result-unavailable",
        "It happened, but its result cannot be given yet",
        Applied.APPLIED,
        True,
    ),
    "CLOSED": Row(410, "/problems/closed", "It was closed", _NO, False),
    "VERSION_NOT_REACHED": Row(
        412, "/problems/version-not-reached", "That version does not exist yet", None, True
    ),
    "CONTENT_TOO_LARGE": Row(413, "about:blank", "Content Too Large", _NO, False),
    "UNSUPPORTED_MEDIA_TYPE": Row(415, "about:blank", "Unsupported Media Type", _NO, False),
    "VALIDATION_ERROR": Row(422, "/problems/validation", "A value is not allowed", _NO, False),
    "REJECTED": Row(422, "/problems/rejected", "A rule forbids it", _NO, False),
    "IDEMPOTENCY_KEY_REUSED": Row(
        422,
        "/problems/idempotency-key-reused",
        "The key belongs to a different request",
        _NO,
        False,
    ),
    "INTERNAL_ERROR": Row(
        500, "/problems/internal", "A fault that needs a human", Applied.UNKNOWN, False
    ),
    "SERVICE_UNAVAILABLE": Row(
        503, "/problems/unavailable", "Nothing was sent; try again", _NO, True
    ),
}


class Problem(NamedTuple):
    """One problem, ready to be written for one request."""

    code: str
    row: Row
    detail: str
    members: Mapping[str, object]
    """Extension members of its own, beside ``code``, ``retryable`` and ``outcome``."""


def problem(
    code: str,
    detail: str = "",
    *,
    outcome: Applied | None = None,
    members: Mapping[str, object] | None = None,
) -> Problem:
    """Take a line of the table. ``outcome`` overrides it where the caller knows better."""
    row = TABLE[code]
    if outcome is not None:
        row = row._replace(outcome=outcome)
    return Problem(code, row, detail or row.title, members or {})


class ProblemError(Exception):
    """Raised in a route or a dependency to answer with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem


def refuse(
    code: str, detail: str = "", *, members: Mapping[str, object] | None = None
) -> ProblemError:
    """Make the error that answers with a line of the table."""
    return ProblemError(problem(code, detail, members=members))


def respond(problem: Problem, *, request_id: str) -> Response:
    """Write a problem document (RFC 9457), with ``Retry-After`` where it asks for another try."""
    row = problem.row
    document: dict[str, object] = {
        "type": row.type,
        "title": row.title,
        "status": row.status,
        "detail": problem.detail,
        "instance": f"urn:uuid:{request_id}",
        "code": problem.code,
        "retryable": row.is_retryable,
    }
    if row.outcome is not None:
        document["outcome"] = row.outcome.value
    headers = {"Retry-After": str(RETRY_AFTER_S)} if row.status in _RETRY_LATER else {}
    return Response(
        msgspec.json.encode({**document, **problem.members}),
        status_code=row.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )
