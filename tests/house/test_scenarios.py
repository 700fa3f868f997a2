"""Every acceptance scenario and case that concerns what is built is named by a test that shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Watch, lists, schemas and authentication come later (SC-76 and up), as do identity and follower reads
# in the pool.
BUILT = {
    "SC": range(1, 76),
    "SWA": range(1, 96),
    "CPA": [*range(1, 13), *range(14, 39), *range(40, 45), 48, 49, 50, 51, 57, 58],
    "BC": [1, 2, 5, 6, *range(9, 19), 26],
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
