"""Every acceptance scenario and case that concerns what is built is named by a test that shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LATER = {
    int(number)
    for number in re.findall(
        r"^\| AS-(\d+) \|", (ROOT / "docs/reference/scenarios-later.md").read_text(), re.MULTILINE
    )
}
"""Scenarios of the handling wing that nothing shows yet; the page says why."""
ON_ONE = {
    32: "isolation levels of PostgreSQL",
    33: "deferred transactions of SQLite",
    77: "PostgreSQL's clock; SQLite has none",
    83: "a declaration, before any database",
    89: "arithmetic",
    120: "each database has settings of its own",
    121: "a proxy for PostgreSQL",
    122: "sessions of PostgreSQL",
}
"""Scenarios that concern one database, or none."""
BOTH = {"ledger_db", "db", "shop", "cli", "empty_url"}
"""Fixtures that come once for each database."""

# Watch, lists, schemas and authentication come later (SC-76 and up), as do identity and follower reads
# in the pool.
BUILT = {
    "SC": range(1, 76),
    "SWA": range(1, 96),
    "CPA": [*range(1, 13), *range(14, 39), *range(40, 45), 48, 49, 50, 51, 57, 58],
    "BC": [1, 2, 5, 6, *range(9, 19), 26],
    "AS": [number for number in range(1, 126) if number not in LATER],
}


def named() -> Iterator[str]:
    """The ids given to ``pytest.mark.scenario`` and ``obligation``."""
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/landed/conformance").rglob("*.py")]
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            if name in ("scenario", "obligation"):
                yield from (
                    argument.value
                    for argument in node.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                )


def test_every_scenario_of_what_is_built_has_a_test() -> None:
    shown = {
        f"{kind}-{int(number)}"
        for kind, _, number in (i.partition("-") for i in named())
        if number.isdigit()
    }
    missing = [
        f"{kind}-{number}"
        for kind, numbers in BUILT.items()
        for number in numbers
        if f"{kind}-{number}" not in shown
    ]
    assert [] == missing


def on_both() -> Iterator[int]:
    """The scenarios of the handling wing that some test shows on either database."""
    for source in (ROOT / "tests/handling").rglob("test_*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            is_on_one = any("'ledger_db'" in mark for mark in marks)
            if is_on_one or not BOTH & {argument.arg for argument in node.args.args}:
                continue
            for mark in marks:
                yield from map(int, re.findall(r"'AS-(\d+)'", mark))


def test_scenarios_of_the_handling_wing_are_shown_on_both_databases() -> None:
    missing = set(BUILT["AS"]) - set(ON_ONE) - set(on_both())
    assert sorted(missing) == []


def test_what_is_left_for_later_is_not_shown_yet() -> None:
    shown = {int(name.partition("-")[2]) for name in named() if name.startswith("AS-")}
    assert sorted(LATER & shown) == [], "take it off docs/reference/scenarios-later.md"
