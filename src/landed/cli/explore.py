"""``landed explore``: many simulated worlds, each from a seed, and what must hold in all of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from landed.cli.days import explore_shop
from landed.cli.proofs import break_rules, search_small
from landed.cli.tally import Tally, watched
from landed.cli.tally import as_json as told_as_json
from landed.errors import ConfigurationError

if TYPE_CHECKING:
    from landed.sim.explore import Finding, Report
    from landed.sim.plan import EngineName

REPLICAS_MAX: Final = 5
_LAST_STEPS: Final = 60
"""Lines of the timeline shown with a failure; ``--seed`` shows all of it."""


class EngineChoice(StrEnum):
    """Where the log of a world lies."""

    DRAWN = "drawn"
    MEMORY = "memory"
    SQLITE = "sqlite"


class WorldChoice(StrEnum):
    """What a world is."""

    FLEET = "fleet"
    SHOP = "shop"


@dataclass(frozen=True, slots=True)
class Kind:
    """Which worlds."""

    replicas: int = 0
    """0: drawn by each seed."""
    engine: EngineChoice = EngineChoice.DRAWN
    app: str | None = None
    """A user's own subject, ``module:name``."""

    @property
    def options(self) -> str:
        """The same as options of the command line."""
        app = f" --app {self.app}" if self.app else ""
        return f"--replicas {self.replicas} --engine {self.engine.value}{app}"

    def __str__(self) -> str:
        replicas = f"{self.replicas} replicas" if self.replicas else "2 to 5 replicas"
        where = "memory or SQLite" if self.engine is EngineChoice.DRAWN else self.engine.value
        return f"{replicas} on {where}" + (f", {self.app}" if self.app else "")

    def run(self, seeds: range, jobs: int) -> Iterator[Report]:
        """Live the worlds of these seeds."""
        from landed.sim.crew import explore_together

        jobs = jobs or os.cpu_count() or 1
        return explore_together(
            seeds, jobs=jobs, replicas=self.replicas or None, engine=self._engine, app=self.app
        )

    def live(self, seed: int) -> Finding:
        """Live one world and keep everything that happened in it."""
        from landed.sim.explore import run_world
        from landed.sim.plan import draw
        from landed.sim.subject import load_subject

        subject = None if self.app is None else load_subject(self.app)
        replicas = self.replicas or None
        return run_world(draw(seed, replicas=replicas, engine=self._engine, subject=subject))

    @property
    def _engine(self) -> EngineName | None:
        match self.engine:
            case EngineChoice.DRAWN:
                return None
            case EngineChoice.MEMORY:
                return "memory"
            case EngineChoice.SQLITE:
                return "sqlite"


def explore(
    *,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many worlds.")] = 200,
    start: Annotated[int, typer.Option("--start", min=0, help="The first seed.")] = 0,
    world: Annotated[
        WorldChoice,
        typer.Option(
            "--world",
            help="fleet: servers, replicas and callers; shop: a ledger, its workers and recipients.",
        ),
    ] = WorldChoice.FLEET,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Replay one world and print its timeline.")
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", min=0, max=REPLICAS_MAX, help="Replicas of the fleet; 0: 2 to 5, drawn."
        ),
    ] = 0,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Where the log lies.")
    ] = EngineChoice.DRAWN,
    app: Annotated[
        str | None,
        typer.Option("--app", help="Your own commands: module:name of a landed.sim.Subject."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Draw the world of --seed, or the first wrong one, as a page."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="A folder for the story and the page of what went wrong."),
    ] = None,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations", help="Break each rule on purpose and say how it is caught, with --save."
        ),
    ] = False,
    small: Annotated[
        bool, typer.Option("--small", help="Go through every order of one small world.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0 for one a core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the real server, pool, loop and engine in simulated worlds, and check what must hold.

    Every world has a fleet of replicas, callers that retry, lost answers, resets, crashes of the
    server's machine in the middle of a flush, hosts that stop and clocks that step, all from its
    seed. The first world in which something is wrong is told as a story, with the command that
    replays it; the exit code is then 1.

    Example: landed explore --seeds 1000
    """
    kind = Kind(replicas, engine, app)
    is_shop = world is WorldChoice.SHOP
    if ablations or small:
        is_single = seed is not None or html is not None or (small and save is not None)
        _check_alone(not is_single and not is_shop and small != ablations and kind == Kind())
        if small:
            raise typer.Exit(search_small(as_json=as_json))
        raise typer.Exit(break_rules(save=save, as_json=as_json, jobs=jobs))
    if is_shop:
        _check_shop(html is None and save is None and kind == Kind())
        raise typer.Exit(explore_shop(seeds, start, seed, jobs, is_json=as_json))
    if seed is not None:
        finding = kind.live(seed)
        _print_world(finding, as_json=as_json)
        _draw(finding, kind, html, save)
        raise typer.Exit(1 if finding.violations else 0)
    from landed.sim.marks import ALL_MARKS

    tally = Tally()
    began = time.perf_counter()
    for report in watched(kind.run(range(start, start + seeds), jobs), seeds, len(ALL_MARKS)):
        tally.add(report)
        if tally.failure is not None:
            break
    tally.took_s = time.perf_counter() - began
    failed = None if tally.failure is None else kind.live(tally.failure.seed)
    if as_json:
        replay = "" if failed is None else _replay_command(failed.plan.seed, kind)
        typer.echo(json.dumps(told_as_json(tally, start, replay, ALL_MARKS)))
    else:
        _print_table(tally, start, kind)
        if failed is not None:
            typer.echo("")
            _print_story(failed, last=_LAST_STEPS)
            typer.echo(f"\nreplay it whole: {_replay_command(failed.plan.seed, kind)}")
    if failed is not None:
        _draw(failed, kind, html, save)
    elif html is not None:
        typer.echo(f"nothing went wrong, so {html} was not drawn: name a world by --seed", err=True)
    raise typer.Exit(0 if failed is None else 1)


def _check_alone(is_alone: bool) -> None:
    """Refuse what would not be heard."""
    if not is_alone:
        raise ConfigurationError(
            "--ablations and --small go alone: they choose their worlds themselves; --ablations "
            "takes --save as well, and both take --json"
        )


def _check_shop(is_heard: bool) -> None:
    if not is_heard:
        raise ConfigurationError(
            "days of the shop are told, not drawn, and are about its own handlers: leave out "
            "--html, --save, --app, --replicas and --engine; landed.testing.crash_everywhere is "
            "for yours"
        )


def _print_world(finding: Finding, *, as_json: bool) -> None:
    from landed.sim.story import tell

    if as_json:
        violations = [violation._asdict() for violation in finding.violations]
        told = {
            "seed": finding.plan.seed,
            "violations": violations,
            "timeline": tell(finding.history),
        }
        typer.echo(json.dumps(told))
    else:
        _print_story(finding, last=None)


def _draw(finding: Finding, kind: Kind, html: Path | None, save: Path | None) -> None:
    """Write the page, and the folder, that were asked for."""
    from landed.sim.page import draw_page

    seed = finding.plan.seed
    if html is None and save is None:
        return
    page = draw_page(finding, replay=_replay_command(seed, kind))
    try:
        if html is not None:
            html.write_text(page)
            typer.echo(f"drawn in {html}", err=True)
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"seed-{seed}.html").write_text(page)
            (save / f"seed-{seed}.txt").write_text("\n".join(_story(finding, last=None)) + "\n")
            typer.echo(f"saved as {save / f'seed-{seed}'}.txt and .html", err=True)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from None


def _print_story(finding: Finding, *, last: int | None) -> None:
    for line in _story(finding, last=last):
        typer.echo(line)


def _story(finding: Finding, *, last: int | None) -> Iterator[str]:
    from landed.sim.story import tell, tell_log

    lines = tell(finding.history, last=last)
    yield f"seed {finding.plan.seed}" + (f", its last {len(lines)} steps" if last else "")
    yield from lines
    yield "the log at the end"
    for line in tell_log(finding.history) or ["nothing"]:
        yield f"  {line}"
    yield "what is wrong" if finding.violations else "nothing is wrong"
    for violation in finding.violations:
        yield f"  {violation.invariant.replace('_', ' ')}: {violation.sentence}"


def _print_table(tally: Tally, start: int, kind: Kind) -> None:
    from landed.sim.marks import ALL_MARKS

    verdict = (
        "clean" if tally.failure is None else f"wrong in the world of seed {tally.failure.seed}"
    )
    typer.echo(f"{tally.worlds} worlds from seed {start}, {kind}: {verdict}")
    typer.echo(
        f"{tally.worlds / tally.took_s:.0f} worlds/s, {tally.calls} calls, "
        f"{tally.virtual_s / 3600:.1f} h of virtual time in {tally.took_s:.1f} s"
    )
    typer.echo("worlds that went through")
    for mark in sorted(ALL_MARKS, key=lambda mark: -tally.marks[mark]):
        typer.echo(f"  {tally.marks[mark]:>7}  {mark}")


def _replay_command(seed: int, kind: Kind) -> str:
    return f"landed explore --seed {seed} {kind.options}"
