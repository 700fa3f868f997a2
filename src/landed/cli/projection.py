"""``landed projection``: what an operator may do to folded states in PostgreSQL."""

from __future__ import annotations

import json
from typing import Annotated

import typer

projection = typer.Typer(
    name="projection", help="Folded states in PostgreSQL.", no_args_is_help=True
)


@projection.command()
def rebuild(
    database: Annotated[
        str, typer.Option("--database", metavar="URL", help="postgresql://user@host/database")
    ],
    name: Annotated[str, typer.Option("--name", help="Of the projection.")] = "accounts",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fold everything anew from the log. Safe while replicas run; answers are found again.

    Needed after a log was put back from a backup without its restore epoch, or when a domain folds
    otherwise than before. A log that says that it is another one is noticed without this.

    Example: landed projection rebuild --database postgresql://app@db/app --name accounts
    """
    from landed.projections.postgres import rebuild as begin_anew

    folds = begin_anew(database, name)
    if as_json:
        typer.echo(json.dumps({"projection": name, "folds": folds}))
    else:
        typer.echo(f"{name}: {folds} fold(s) begin anew; states are folded when they are next read")
