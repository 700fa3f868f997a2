"""What many worlds came to: counted, watched while they run, and told as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from landed.sim.explore import Report


@dataclass(slots=True)
class Tally:
    """What many worlds came to."""

    worlds: int = 0
    calls: int = 0
    virtual_s: float = 0.0
    took_s: float = 0.0
    marks: Counter[str] = field(default_factory=Counter)
    failure: Report | None = None
    """The first world in which something was wrong."""

    def add(self, report: Report) -> None:
        """Count one world."""
        self.worlds += 1
        self.calls += report.calls
        self.virtual_s += report.virtual_s
        self.marks.update(report.marks)
        if report.violations:
            self.failure = report


def watched(reports: Iterable[Report], total: int, marks: int) -> Iterator[Report]:
    """Show a bar on standard error while somebody looks at it. ``marks``: how many there are."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from reports
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("worlds", total=total, pace="")
        began = time.perf_counter()
        reached: set[str] = set()
        for count, report in enumerate(reports, start=1):
            reached |= report.marks
            pace = f"{count / (time.perf_counter() - began):.0f} worlds/s"
            pace += f", {len(reached)} of {marks} marks reached"
            progress.update(bar, advance=1, pace=pace)
            yield report


def as_json(tally: Tally, start: int, replay: str, marks: Sequence[str]) -> dict[str, object]:
    failure = tally.failure
    return {
        "start": start,
        "worlds": tally.worlds,
        "clean": failure is None,
        "failure": None
        if failure is None
        else {
            "seed": failure.seed,
            "violations": [violation._asdict() for violation in failure.violations],
            "replay": replay,
        },
        "calls": tally.calls,
        "virtual_s": round(tally.virtual_s, 3),
        "took_s": round(tally.took_s, 3),
        "marks": {mark: tally.marks[mark] for mark in marks},
    }
