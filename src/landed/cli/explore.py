"""``landed explore``: many simulated worlds, each from a seed, and what must hold in all of them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from landed.sim.explore import Finding, Report

REPLICAS_MAX: Final = 5
_LAST_STEPS: Final = 60
"""Lines of the timeline shown with a failure; ``--seed`` shows all of it."""


class EngineChoice(StrEnum):
    """Where the log of a world lies."""

    MEMORY = "memory"
    SQLITE = "sqlite"


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


def explore(
    *,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many worlds.")] = 200,
    start: Annotated[int, typer.Option("--start", min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Replay one world and print its timeline.")
    ] = None,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=REPLICAS_MAX, help="Replicas of the fleet.")
    ] = 2,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Where the log lies.")
    ] = EngineChoice.MEMORY,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0 for one a core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the real server, pool, loop and engine in simulated worlds, and check what must hold.

    Every world has a fleet of replicas, callers that retry, lost answers, resets, restarts and
    clocks that step, all from its seed. The first world in which something is wrong is told as a
    story, with the command that replays it; the exit code is then 1.
    """
    if seed is not None:
        raise typer.Exit(_replay(seed, replicas, engine, as_json=as_json))
    tally = Tally()
    began = time.perf_counter()
    for report in _watched(_run(range(start, start + seeds), replicas, engine, jobs), seeds):
        tally.add(report)
        if tally.failure is not None:
            break
    tally.took_s = time.perf_counter() - began
    replay = None if tally.failure is None else _replay_command(tally.failure, replicas, engine)
    if as_json:
        typer.echo(json.dumps(_as_json(tally, start, replay)))
    else:
        _print_table(tally, start, replicas, engine)
        if tally.failure is not None and replay is not None:
            _print_failure(tally.failure.seed, replicas, engine, replay)
    raise typer.Exit(0 if tally.failure is None else 1)


def _run(seeds: range, replicas: int, engine: EngineChoice, jobs: int) -> Iterator[Report]:
    from landed.sim.crew import explore_together

    jobs = jobs or os.cpu_count() or 1
    return explore_together(seeds, jobs=jobs, replicas=replicas, engine=engine.value)


def _watched(reports: Iterable[Report], total: int) -> Iterator[Report]:
    """Show a bar on standard error while somebody looks at it."""
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
        for count, report in enumerate(reports, start=1):
            pace = f"{count / (time.perf_counter() - began):.0f} worlds/s"
            progress.update(bar, advance=1, pace=pace)
            yield report


def _replay(seed: int, replicas: int, engine: EngineChoice, *, as_json: bool) -> int:
    from landed.sim.story import tell

    finding = _live_again(seed, replicas, engine)
    if as_json:
        lines = tell(finding.history)
        violations = [violation._asdict() for violation in finding.violations]
        typer.echo(json.dumps({"seed": seed, "violations": violations, "timeline": lines}))
    else:
        _print_story(finding, last=None)
    return 1 if finding.violations else 0


def _live_again(seed: int, replicas: int, engine: EngineChoice) -> Finding:
    from landed.sim.explore import run_world
    from landed.sim.plan import draw

    return run_world(draw(seed, replicas=replicas, engine=engine.value))


def _print_failure(seed: int, replicas: int, engine: EngineChoice, replay: str) -> None:
    typer.echo("")
    _print_story(_live_again(seed, replicas, engine), last=_LAST_STEPS)
    typer.echo(f"\nreplay it whole: {replay}")


def _print_story(finding: Finding, *, last: int | None) -> None:
    from landed.sim.story import tell, tell_log

    lines = tell(finding.history, last=last)
    typer.echo(f"seed {finding.plan.seed}" + (f", its last {len(lines)} steps" if last else ""))
    for line in lines:
        typer.echo(line)
    typer.echo("the log at the end")
    for line in tell_log(finding.history) or ["nothing"]:
        typer.echo(f"  {line}")
    typer.echo("what is wrong" if finding.violations else "nothing is wrong")
    for violation in finding.violations:
        typer.echo(f"  {violation.invariant.replace('_', ' ')}: {violation.sentence}")


def _print_table(tally: Tally, start: int, replicas: int, engine: EngineChoice) -> None:
    from landed.sim.marks import ALL_MARKS

    verdict = (
        "clean" if tally.failure is None else f"wrong in the world of seed {tally.failure.seed}"
    )
    typer.echo(
        f"{tally.worlds} worlds from seed {start}, {replicas} replicas on {engine.value}: {verdict}"
    )
    typer.echo(
        f"{tally.worlds / tally.took_s:.0f} worlds/s, {tally.calls} calls, "
        f"{tally.virtual_s / 3600:.1f} h of virtual time in {tally.took_s:.1f} s"
    )
    typer.echo("worlds that went through")
    for mark in sorted(ALL_MARKS, key=lambda mark: -tally.marks[mark]):
        typer.echo(f"  {tally.marks[mark]:>7}  {mark}")


def _as_json(tally: Tally, start: int, replay: str | None) -> dict[str, object]:
    from landed.sim.marks import ALL_MARKS

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
        "marks": {mark: tally.marks[mark] for mark in ALL_MARKS},
    }


def _replay_command(failure: Report, replicas: int, engine: EngineChoice) -> str:
    return f"landed explore --seed {failure.seed} --replicas {replicas} --engine {engine.value}"
