"""Write the reference pages that are made from tables: ``python tools/reference.py``.

With ``--check`` nothing is written; the exit code is 1 if a page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from landed.wire.codes import TABLE, Code, CodeClass, error_of
from landed.wire.messages import Failure, Operation
from landed.wire.refusals import codes_sent

PAGES = Path(__file__).parent.parent / "docs" / "reference"

CODES_INTRO = """\
# Codes

Made from `landed/wire/codes.py` by `tools/reference.py`; do not edit.

An error frame carries a number and a text. Only the number decides; the text is compact JSON with
the detail fields, `{}` where there are none, and free text in it may be cut so that the frame fits.

## What a class means

"""

CODES_RULES = """
Three rules stand above the table (design decision 14, pool rules CP-32 and CP-74):

- A number that is in no table is *unknown* for a change and a plain no for a read.
- A number that speaks of reading only, in answer to a change, is *unknown* as well.
- A number of the class *unknown*, in answer to a read, means that the node failed; nothing was
  changed, because nothing was asked to change.

A detail field that is missing or no number is `None` in the error, never 0.

## The table

"Sent" marks what this product's own server answers. 2900 is its extension.

| Code | Symbol | Class | Meaning | Detail fields | Error | Sent |
| --- | --- | --- | --- | --- | --- | --- |
"""


def codes_page() -> str:
    """The page of the codes."""
    classes = "".join(f"- **{_label(cls)}**: {cls.value}.\n" for cls in CodeClass)
    return CODES_INTRO + classes + CODES_RULES + "".join(_row(row) for row in TABLE.values())


def _row(row: Code) -> str:
    fields = ", ".join(f"`{field}`" for field in row.fields)
    sent = "yes" if row.code in codes_sent() else ""
    operation = Operation.READ if row.cls is CodeClass.READ_SIDE else Operation.WRITE
    error = type(error_of(operation, Failure(row.code))).__name__
    return (
        f"| {row.code} | {row.symbol} | {_label(row.cls)} | {row.meaning} "
        f"| {fields} | `{error}` | {sent} |\n"
    )


def _label(cls: CodeClass) -> str:
    return cls.name.lower().replace("_", " ")


MADE: dict[str, Callable[[], str]] = {"codes.md": codes_page}
"""Each page that is made, and what makes it."""


def stale() -> list[str]:
    """The pages that differ from what their tables say now."""
    return [
        name
        for name, make in MADE.items()
        if not (PAGES / name).exists() or (PAGES / name).read_text() != make()
    ]


def main(arguments: list[str]) -> int:
    """Write the pages, or only look whether they are up to date."""
    if "--check" in arguments:
        for name in stale():
            print(f"docs/reference/{name} is out of date: run python tools/reference.py")
        return 1 if stale() else 0
    for name, make in MADE.items():
        (PAGES / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
