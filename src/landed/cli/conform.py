"""``landed conform``: hold every engine to the same list of obligations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from landed.errors import ConfigurationError

if TYPE_CHECKING:
    from landed.conformance import Obligation
    from landed.conformance.running import Result, Room

_T = TypeVar("_T")

MEMORY: Final = "memory"
SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"


def conform(
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="postgresql://user@host/database; scratch schemas are made there and dropped.",
        ),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="WORDS", help="Obligations with these words in them.")
    ] = "",
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/reference/obligations.md.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run every obligation of a log on scratch logs: in memory, on SQLite, and on your PostgreSQL.

    Changes nothing but what it makes for itself. Leaves with 1 if an engine fails one.

    Example: landed conform --database postgresql://app@db/scratch
    """
    from landed.conformance import all_obligations
    from landed.conformance.running import in_memory, on_sqlite, run_all

    chosen = [each for each in all_obligations() if only in each.sentence]
    if not chosen:
        raise ConfigurationError(f"no obligation has {only!r} in it: leave out --only to see all")
    rooms: dict[str, Room] = {MEMORY: in_memory, SQLITE: on_sqlite}
    if database is not None:
        rooms[POSTGRES] = _room_in(database)
    results = list(_watched(run_all(chosen, rooms), len(chosen) * len(rooms)))
    failed = [result for result in results if result.failure]
    if as_json:
        typer.echo(json.dumps([_as_json(result) for result in results]))
    elif as_markdown:
        typer.echo(page(results), nl=False)
    else:
        for sentence, found in _by_sentence(results).items():
            typer.echo(f"{sentence}: {_words(found)}")
        for result in failed:
            typer.echo(f"{result.engine}, {result.obligation.sentence}: {result.failure}")
        counted = [f"{name} {_held(results, name)} of {len(chosen)}" for name in rooms]
        typer.echo(f"held: {', '.join(counted)}")
    if failed:
        raise typer.Exit(1)


def page(results: Iterable[Result]) -> str:
    """The page of obligations, from what a run came to."""
    results = list(results)
    engines = list(dict.fromkeys(result.engine for result in results))
    lines = [
        "# What every engine promises",
        "",
        "Printed by `landed conform --markdown --database postgresql://…`; do not edit. Each line is a",
        "function in `landed/conformance`, run on a log of its own on every engine.",
    ]
    chapter = ""
    for found in _by_sentence(results).values():
        obligation = found[0].obligation
        if chapter != (chapter := obligation.chapter):
            lines += ["", f"## {chapter.capitalize()}", ""]
            lines += [f"| | shows | {' | '.join(engines)} |", "| --- " * (2 + len(engines)) + "|"]
        cells = ["failed" if result.failure else "held" for result in found]
        scenarios = ", ".join(obligation.scenarios)
        lines.append(f"| {obligation.sentence} | {scenarios} | {' | '.join(cells)} |")
    totals = [f"{name} {_held(results, name)}" for name in engines]
    count = len(results) // max(1, len(engines))
    return "\n".join([*lines, "", f"Held, of {count}: {', '.join(totals)}."]) + "\n"


def _room_in(database: str) -> Room:
    from landed.postgres.dsn import parse_dsn

    dsn = parse_dsn(database, own=("accept_data_loss", "prepare"))
    # Only now: without the driver this cannot be imported, and parsing has just told so.
    from landed.conformance.running import on_postgres

    return on_postgres(dsn)


def _by_sentence(results: Iterable[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.obligation.sentence, []).append(result)
    return found


def _words(found: list[Result]) -> str:
    failed = [result.engine for result in found if result.failure]
    return f"FAILED on {', '.join(failed)}" if failed else "held"


def _held(results: list[Result], engine: str) -> int:
    return sum(result.engine == engine and not result.failure for result in results)


def _as_json(result: Result) -> dict[str, object]:
    obligation: Obligation = result.obligation
    return {
        "obligation": obligation.sentence,
        "chapter": obligation.chapter,
        "shows": list(obligation.scenarios),
        "engine": result.engine,
        "held": not result.failure,
        "failure": result.failure,
    }


def _watched(results: Iterator[_T], total: int) -> Iterator[_T]:
    """Show a bar on standard error while somebody looks at it."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from results
        return
    yield from track(results, "obligations", total=total, console=console, transient=True)
