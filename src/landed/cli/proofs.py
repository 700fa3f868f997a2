"""``landed explore --ablations`` and ``--small``: what the explorer is worth, and every order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import typer

from landed.errors import ConfigurationError

if TYPE_CHECKING:
    from landed.sim.ablations.hunting import Caught
    from landed.sim.small.search import Searched

T = TypeVar("T")

_ABOVE: Final = (
    "Each rule was switched off, and the first world that noticed was made as small as it goes while",
    "the same check stays broken. Numbers are those of the table in `ablations.md`; the command is",
    "`landed explore --ablations --save FOLDER`.",
    "",
)


def break_rules(*, save: Path | None, as_json: bool, jobs: int = 1) -> int:
    """Break every rule, print how each was caught, and save the stories; the exit code."""
    from landed.sim.ablations import table
    from landed.sim.ablations.hunting import hunt_all

    began = time.perf_counter()
    jobs = jobs or os.cpu_count() or 1
    caught: list[Caught] = []
    hunted = hunt_all(jobs=jobs, is_told=save is not None)
    for number, one in enumerate(_watched(hunted, len(table.ABLATIONS)), start=1):
        caught.append(one)
        if not as_json:
            _print(number, one)
    took_s = time.perf_counter() - began
    if save is not None:
        _save(save, caught)
    escaped = [one for one in caught if one.seed is None]
    if as_json:
        typer.echo(json.dumps([_as_json(one) for one in caught]))
    else:
        worlds = sum(one.worlds for one in caught)
        typer.echo(
            f"{len(caught)} rules broken, {len(caught) - len(escaped)} caught, "
            f"in {worlds} worlds and {took_s:.0f} s"
        )
    return 1 if escaped else 0


def _watched(hunted: Iterable[T], total: int) -> Iterator[T]:
    """Show a bar on standard error while somebody looks at it."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from hunted
        return
    yield from track(hunted, "rules broken", total=total, console=console, transient=True)


def _print(number: int, caught: Caught) -> None:
    ablation = caught.ablation
    typer.echo(f"{number:>2}  {ablation.rule} ({ablation.source})")
    typer.echo(f"    broken: {ablation.patch}")
    if caught.seed is None:
        typer.echo(f"    UNCAUGHT in {caught.worlds} worlds")
        return
    invariant = ablation.caught_by.replace("_", " ")
    typer.echo(f"    caught: {invariant}; {ablation.ground.name}, world {caught.worlds}")


def _save(folder: Path, caught: Sequence[Caught]) -> None:
    """A page of stories for each wing, in the order of the table."""
    pages: dict[str, list[str]] = {}
    for number, one in enumerate(caught, start=1):
        wing = one.ablation.wing.value
        page = pages.setdefault(wing, [f"# Rules broken on purpose: {wing}", "", *_ABOVE])
        page += _section(number, one)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for wing, lines in pages.items():
            name = wing.rstrip("?").replace(" ", "-")
            (folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n")
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from None


def _section(number: int, caught: Caught) -> list[str]:
    ablation = caught.ablation
    told = caught.story or (f"nobody noticed in {caught.worlds} worlds",)
    return [
        *(f"## {number}. {ablation.rule}", ""),
        *(f"`{ablation.name}`, {ablation.source}. Broken: {ablation.patch}.", ""),
        *("```", *told, "```", ""),
    ]


def _as_json(caught: Caught) -> dict[str, object]:
    ablation = caught.ablation
    return {
        "name": ablation.name,
        "wing": ablation.wing.value,
        "rule": ablation.rule,
        "source": ablation.source,
        "patch": ablation.patch,
        "caught_by": ablation.caught_by,
        "ground": ablation.ground.name,
        "seed": caught.seed,
        "worlds": caught.worlds,
        "sentence": caught.sentence,
        "took_s": round(caught.took_s, 3),
    }


def search_small(*, as_json: bool) -> int:
    """Go through every state of a small world, and print how many there were; the exit code."""
    from landed.sim.small.search import searching
    from landed.sim.small.state import Size

    began = time.perf_counter()
    size = Size()
    searched = _last(searching(size))
    took_s = time.perf_counter() - began
    if as_json:
        told = {
            "size": size._asdict(),
            "states": searched.states,
            "steps": searched.steps,
            "ends": searched.ends,
            "broken": searched.broken,
            "sentence": searched.sentence,
            "way": searched.way,
            "took_s": round(took_s, 3),
        }
        typer.echo(json.dumps(told))
        return 1 if searched.broken else 0
    typer.echo(
        f"{size.requests} requests, {size.calls} calls of each, {size.sendings} sendings of a call, "
        f"{size.replicas} replicas, at most {size.faults} faults: every order"
    )
    typer.echo(
        f"{searched.states} states, {searched.steps} steps between them, {searched.ends} ends, "
        f"in {took_s:.0f} s: " + ("a promise is broken" if searched.broken else "clean")
    )
    if searched.broken is not None:
        for line in searched.way:
            typer.echo(f"  {line}")
        typer.echo(f"{searched.broken.replace('_', ' ')}: {searched.sentence}")
    return 1 if searched.broken else 0


def _last(searching: Iterator[Searched]) -> Searched:
    """Show how far it is on standard error while somebody looks at it; returns the end."""
    from rich.console import Console

    console = Console(stderr=True)
    searched: Searched | None = None
    if not console.is_terminal:
        for searched in searching:  # noqa: B007  # the last one is the whole
            pass
    else:
        with console.status("searching") as status:
            for searched in searching:
                status.update(f"{searched.states} states, {searched.steps} steps")
    assert searched is not None, "a search tells of its end at least"
    return searched
