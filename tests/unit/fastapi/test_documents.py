"""What is written about the problems is what the table says, and the guide's claims are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from landed.fastapi import TABLE

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("code", TABLE)
def test_every_line_of_the_table_is_documented(code):
    row = TABLE[code]
    outcome = "" if row.outcome is None else row.outcome.value
    retryable = "yes" if row.is_retryable else "no"
    lines = (DOCS / "reference" / "http.md").read_text().splitlines()
    (line,) = [
        line for line in lines if line.startswith(f"| {row.status} | `{code}` | `{row.type}` |")
    ]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3].startswith(outcome) or cells[3] == "as known"
    assert cells[4] == retryable
