"""What a benchmark found, how it is shown, and what it was found on."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sqlite3
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from landed.clock import SystemClock

_STYLES: Final = {"": "", "met": "", "unclear": "dim", "missed": "yellow"}
RESULTS: Final = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything is measured."""

    rounds: int
    is_quick: bool
    """Small sizes: to see that it works, not to be quoted."""
    is_big: bool
    """Ten million events as well."""
    folder: Path
    """Where logs are made; on the disk that is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table."""

    bench: str
    subject: str
    rounds: tuple[float, ...]
    """The figure of each round: two things measured one after the other in that round."""
    unit: str
    """"x" for a ratio, "flushes", "MB"; or a plain count."""
    measured: str
    """What the ratio is of, in its own units: only fit to be read on this machine."""
    against: str = ""
    target: float | None = None
    is_more_better: bool = True

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def aim(self) -> str:
        """The target, to be read."""
        if self.target is None:
            return ""
        return f"{'at least' if self.is_more_better else 'at most'} {self.target:g}"

    @property
    def verdict(self) -> str:
        """Whether the target is met: by every round, by none, or the rounds do not agree."""
        if self.target is None:
            return ""
        met = [
            one >= self.target if self.is_more_better else one <= self.target for one in self.rounds
        ]
        return "met" if all(met) else "unclear" if any(met) else "missed"


@dataclass(slots=True)
class Report:
    """Figures as they come in, and a bar that shows how far it is."""

    console: Console
    figures: list[Figure] = field(default_factory=list)
    _progress: Progress | None = None
    _task: TaskID | None = None

    @contextmanager
    def progress(self, steps: int) -> Iterator[None]:
        """Show a bar while the block runs, unless nobody would see it move."""
        with Progress(
            TextColumn("{task.description:36}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        ) as self._progress:
            self._task = self._progress.add_task("", total=steps)
            yield
        self._progress = None

    def doing(self, what: str) -> None:
        """Say what is measured now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what)

    def step(self) -> None:
        """One step is done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    def add(self, figure: Figure) -> None:
        """Keep a figure for the table."""
        self.figures.append(figure)

    def show(self) -> None:
        """Print the table."""
        table = Table(show_edge=False, pad_edge=False, header_style="bold")
        table.add_column("", max_width=46)
        for title in ("measured", "against", "ratio", "rounds", "target"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("")
        previous = self.figures[0].bench if self.figures else ""
        for figure in self.figures:
            if figure.bench != previous:
                table.add_section()
                previous = figure.bench
            table.add_row(
                f"{figure.bench}: {figure.subject}",
                figure.measured,
                figure.against,
                f"{plain(figure.value)} {figure.unit}",
                f"{plain(min(figure.rounds))} to {plain(max(figure.rounds))}"
                if len(figure.rounds) > 1
                else "",
                figure.aim,
                figure.verdict,
                style=_STYLES[figure.verdict],
            )
        self.console.print(table)


def plain(value: float) -> str:
    """A figure with the digits that mean something."""
    return f"{value:,.3f}" if value < 1 else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def machine() -> dict[str, object]:
    """What the figures were found on, and how durable every write was."""
    return {
        "at": _now().isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_1m_before": round(os.getloadavg()[0], 1),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "durability": "WAL, synchronous=FULL, fullfsync=ON; every write flushed before its answer",
        "uvloop": "installed" if importlib.util.find_spec("uvloop") else "not installed",
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
    }


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)


def save(report: Report, facts: Mapping[str, object]) -> Path:
    """Write everything that was found, round by round, to a file of its own."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{_now():%Y%m%d-%H%M%S}.json"
    figures = [
        {**asdict(one), "value": one.value, "verdict": one.verdict} for one in report.figures
    ]
    facts = {**facts, "load_1m_after": round(os.getloadavg()[0], 1)}
    path.write_text(json.dumps({**facts, "figures": figures}, indent=2) + "\n", encoding="utf-8")
    return path


def interleaved(
    rounds: int, subjects: Mapping[str, Callable[[], float]], *, after: Callable[[], None]
) -> dict[str, list[float]]:
    """Measure the subjects in turn, round after round; every other round backwards.

    What slows the machine for a while thus slows all of them, and a drift favours none.
    """
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for at in range(rounds):
        order: Sequence[str] = list(subjects) if at % 2 == 0 else list(subjects)[::-1]
        for name in order:
            found[name].append(subjects[name]())
        after()
    return found


def ratios(found: Sequence[float], base: Sequence[float]) -> tuple[float, ...]:
    """Round by round, one over the other."""
    return tuple([one / other for one, other in zip(found, base, strict=True)])


def per_s(rates: Sequence[float]) -> str:
    """A rate's median, to be read."""
    return f"{statistics.median(rates):,.0f}/s"


def micros(seconds: Sequence[float]) -> str:
    """A time's median, to be read."""
    return f"{statistics.median(seconds) * 1e6:,.0f} us"
