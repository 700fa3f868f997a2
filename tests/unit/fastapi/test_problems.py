"""One table says what every outcome is answered with."""

from __future__ import annotations

import json

import pytest

from landed.commands import (
    Applied,
    Conflicted,
    Done,
    Fault,
    FaultKind,
    How,
    KeyReused,
    Reject,
    Rejected,
    Unavailable,
    Unresolved,
)
from landed.fastapi.answers import problem_of
from landed.fastapi.problems import TABLE, problem, respond


def told(outcome):
    answer = problem_of(outcome, noun="account")
    assert answer is not None
    row = answer.row
    return row.status, row.type, answer.code, row.outcome, row.is_retryable


@pytest.mark.scenario("SWA-83")
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Conflicted(), (409, "/problems/conflict", "CONFLICT", Applied.NOT_APPLIED, True)),
        (
            Unresolved(Applied.UNKNOWN),
            (409, "/problems/outcome-unknown", "OUTCOME_UNKNOWN", Applied.UNKNOWN, True),
        ),
        (
            Unresolved(Applied.APPLIED),
            (409, "/problems/result-unavailable", "RESULT_UNAVAILABLE", Applied.APPLIED, True),
        ),
        (
            Unavailable(),
            (503, "/problems/unavailable", "SERVICE_UNAVAILABLE", Applied.NOT_APPLIED, True),
        ),
        (
            KeyReused(),
            (
                *(422, "/problems/idempotency-key-reused", "IDEMPOTENCY_KEY_REUSED"),
                *(Applied.NOT_APPLIED, False),
            ),
        ),
        (
            Rejected(Reject("insufficient_funds"), (5,)),
            (
                *(422, "/problems/insufficient-funds", "INSUFFICIENT_FUNDS"),
                *(Applied.NOT_APPLIED, False),
            ),
        ),
        (
            Rejected(Reject("validation_error"), ()),
            (422, "/problems/validation", "VALIDATION_ERROR", Applied.NOT_APPLIED, False),
        ),
        (
            Fault(FaultKind.CLOSED, Applied.NOT_APPLIED),
            (410, "/problems/account-closed", "ACCOUNT_CLOSED", Applied.NOT_APPLIED, False),
        ),
        (
            Fault(FaultKind.CLOSED, Applied.UNKNOWN),
            (410, "/problems/account-closed", "ACCOUNT_CLOSED", Applied.UNKNOWN, False),
        ),
        (
            Fault(FaultKind.TRIMMED, Applied.NOT_APPLIED),
            (500, "/problems/internal", "INTERNAL_ERROR", Applied.NOT_APPLIED, False),
        ),
        (
            Fault(FaultKind.REFUSED, Applied.UNKNOWN, code=9001),
            (500, "/problems/internal", "INTERNAL_ERROR", Applied.UNKNOWN, False),
        ),
    ],
)
def test_every_outcome_has_its_line(outcome, expected):
    assert told(outcome) == expected


def test_done_is_no_problem():
    assert problem_of(Done((1,), (1,), How.FRESH), noun="account") is None


@pytest.mark.scenario("SWA-83")
@pytest.mark.parametrize("code", TABLE)
def test_every_line_is_written_with_all_its_members(code):
    response = respond(problem(code, "why", members={"extra": 2**63}), request_id="r-1")
    document = json.loads(response.body)
    row = TABLE[code]
    assert response.status_code == document["status"] == row.status
    assert response.headers["content-type"] == "application/problem+json"
    assert document["type"] == row.type
    assert document["instance"] == "urn:uuid:r-1"
    assert document["detail"] == "why"
    assert document["title"] == row.title
    assert document["code"] == code
    assert document["retryable"] is row.is_retryable
    assert document.get("outcome") == (row.outcome and row.outcome.value)
    assert document["extra"] == 2**63
    is_to_be_retried = row.status in (409, 503)
    assert ("retry-after" in response.headers) is is_to_be_retried
    if is_to_be_retried:
        assert int(response.headers["retry-after"]) >= 1
        assert row.is_retryable


def test_a_rule_of_your_own_keeps_its_name_and_fields():
    reason = Reject("sold_out", "nothing left", {"left": 0})
    answer = problem_of(Rejected(reason, (0,)), noun="item")
    assert answer is not None
    assert answer.code == "SOLD_OUT"
    assert answer.row.type == "/problems/sold-out"
    assert answer.row.title == "Sold out"
    assert answer.members == {"left": 0}
