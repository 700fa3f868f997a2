"""Print docs/reference/moves.md from the table in landed.commands.moves.

python -m tools.moves          print it
python -m tools.moves --write  write it to its place
"""

from __future__ import annotations

import sys
from pathlib import Path

from landed.commands.moves import MOVES, At, End, Rule

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "moves.md"

HEAD = """\
# The moves of the safe write loop

Printed from `landed.commands.moves` by `python -m tools.moves --write`; do not edit. `loop.py` does
what this table says and decides nothing by itself. Rules: SW-26 to SW-39, SW-34 above all.

**Conflict means re-derive. Unknown means hold the sequence and refresh the version.**

The version of a write is never held: each attempt takes it from its own catch-up. The column
*sequence* says where the next attempt takes its sequence from: `derive` is the highest own one of
the next catch-up plus one, `hold` is the same again, `-` leaves the plan as it was.

*Back off* waits and goes on where the row says, or ends the call if no attempts or no time are left.
*Give up* is `Unresolved` if an attempt may still land or the last write was in flight, else
`Unavailable` if the last obstacle was reachability, else `Conflicted`.

| state | what came back | sequence | next | or else |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The whole document."""
    return HEAD + "".join(_row(at, saw, rule) for (at, saw), rule in MOVES.items())


def _row(at: At, saw: str, rule: Rule) -> str:
    if rule.then is At.BACK_OFF:
        assert rule.back_to is not None
        assert rule.otherwise is not None
        then = f"back off, then **{rule.back_to}**"
        return f"| **{at}** | {saw} | {rule.sequence} | {then} | {_end(rule.otherwise)} |\n"
    then = _end(rule.then) if isinstance(rule.then, End) else f"**{rule.then}**"
    return f"| **{at}** | {saw} | {rule.sequence} | {then} | |\n"


def _end(end: End) -> str:
    return end.value if end is End.GIVE_UP else f"end: `{end.value}`"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
