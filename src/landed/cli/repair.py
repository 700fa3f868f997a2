"""``landed log``: check a closed log file, and the few things an operator may change in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

log = typer.Typer(
    name="log", help="Check and repair a log file that nobody has open.", no_args_is_help=True
)

_Log = Annotated[Path, typer.Argument(help="The log file.", metavar="PATH")]
_Reason = Annotated[str, typer.Option(help="Why. Kept with the log.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@log.command()
def verify(path: _Log, as_json: _Json = False) -> None:
    """Check every row, link, head and mark. Exits with 1 if anything is damaged.

    Example: landed log verify log.db
    """
    from rich.console import Console
    from rich.progress import Progress

    from landed.engines.sqlite.check import verify as check

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("checking", total=None)
        report = check(
            path, progress=lambda done, all_: bar.update(task, completed=done, total=all_)
        )
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "sound": report.is_sound,
                    "entries": report.entries,
                    "aggregates": report.aggregates,
                    "marks": report.marks,
                    "findings": report.findings,
                }
            )
        )
    else:
        for finding in report.findings:
            typer.echo(finding)
        verdict = "sound" if report.is_sound else f"{len(report.findings)} findings"
        typer.echo(f"{report.entries} entries, {report.aggregates} aggregates: {verdict}")
    if not report.is_sound:
        raise typer.Exit(1)


@log.command("lower-mark")
def lower_mark(
    path: _Log,
    key: Annotated[str, typer.Option(help="The aggregate: org/type/id, three UUIDs.")],
    client_id: Annotated[UUID, typer.Option(help="The writer whose mark is wrong.")],
    to: Annotated[int, typer.Option(min=0, help="The new mark; 0 as if it had never written.")],
    reason: _Reason,
    as_json: _Json = False,
) -> None:
    """Lower the mark of one writer on one aggregate, closed by an absurd sequence.

    Refused below a sequence that is still readable. Sequences of trimmed or deleted batches become
    free again: be sure that nobody retries them.

    Example: landed log lower-mark log.db --key ORG/TYPE/ID --client-id
    5b0c64f7-6a0b-4b1f-9d55-5f3f5d1f4f0e --to 41 --reason "a test sent 2^60"
    """
    from landed.clock import SystemClock
    from landed.engines.sqlite import repair
    from landed.ids import AggregateKey, ClientId

    try:
        aggregate = AggregateKey.parse(key)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--key") from None
    change = repair.lower_mark(
        path,
        key=aggregate,
        client_id=ClientId(client_id),
        to=to,
        reason=reason,
        at_ms=SystemClock().wall_ms(),
    )
    _print_change("mark", change.before, change.after, as_json=as_json)


@log.command()
def restored(path: _Log, reason: _Reason, as_json: _Json = False) -> None:
    """Say that the file was restored from a backup, so that every projection of it notices.

    Example: landed log restored log.db --reason "the disk failed, backup of Monday"
    """
    from landed.clock import SystemClock
    from landed.engines.sqlite import repair

    change = repair.raise_restore_epoch(path, reason=reason, at_ms=SystemClock().wall_ms())
    _print_change("restore epoch", change.before, change.after, as_json=as_json)


@log.command()
def repairs(path: _Log, as_json: _Json = False) -> None:
    """List what operators changed in the file, and why.

    Example: landed log repairs log.db
    """
    from landed.engines.sqlite import repair

    recorded = repair.repairs(path)
    if as_json:
        typer.echo(json.dumps([item._asdict() for item in recorded]))
        return
    for item in recorded:
        typer.echo(
            f"{item.at_ms}  {item.action}  {item.subject}  "
            f"{item.before} -> {item.after}  {item.reason}"
        )


def _print_change(what: str, before: int, after: int, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"before": before, "after": after}))
    else:
        typer.echo(f"{what}: {before} -> {after}")
