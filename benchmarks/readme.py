"""Put the newest result of each benchmark into the table of README.md.

python -m benchmarks.readme                 what lies in benchmarks/results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.report import RESULTS, Figure, plain

PAGE: Final = Path(__file__).parent / "README.md"
BEGIN: Final = "<!-- measured: python -m benchmarks.readme -->\n"
END: Final = "<!-- end of measured -->"
HEAD: Final = """
| figure | measured | against | median | rounds | target | | load |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def newest() -> dict[str, tuple[dict[str, Any], list[Figure]]]:
    """Each benchmark's newest full result, with what it was found on."""
    found: dict[str, tuple[dict[str, Any], list[Figure]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if "--quick" in facts["command"]:
            continue
        by_bench: dict[str, list[Figure]] = {}
        for row in facts.pop("figures"):
            names = Figure.__dataclass_fields__
            figure = Figure(**{name: row[name] for name in names if name in row})
            by_bench.setdefault(figure.bench, []).append(figure)
        found.update({bench: (facts, figures) for bench, figures in by_bench.items()})
    return found


def table() -> str:
    """The table, and a line on where each part was measured."""
    rows, places = [], []
    for bench, (facts, figures) in newest().items():
        load = f"{facts['load_1m_before']} to {facts.get('load_1m_after', '?')}"
        places.append(
            f"{bench}: {facts['at'][:10]}, {facts['cores']} cores, {facts['python']}, "
            f"SQLite {facts['sqlite']}, `{facts['command']}`"
        )
        for one in figures:
            spread = f"{plain(min(one.rounds))} to {plain(max(one.rounds))}"
            cells = [
                f"{one.bench}: {one.subject}",
                one.measured,
                one.against,
                f"**{plain(one.value)}** {one.unit}",
                spread if len(one.rounds) > 1 else "",
                one.aim,
                one.verdict,
                load,
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n\n" + "".join(f"- {place}\n" for place in places)


def main() -> None:
    """Rewrite the part of the page between the marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
