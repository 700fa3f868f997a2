"""``landed migrate``: bring the tables of the handling wing up to this version."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def migrate(
    database: Annotated[
        str, typer.Option(help="sqlite:///PATH or postgresql://USER@HOST/DATABASE.")
    ],
    is_check: Annotated[
        bool, typer.Option("--check", help="Only say what would be applied; 1 if anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create or update the tables that receipts, outbox and effects live in.

    Safe to run from every replica at once, and again at any time.

    Example: landed migrate --database postgresql://app@db/app
    """
    from landed.records import migrations
    from landed.records.session import Books, open_engine, ping

    engine = open_engine(database)
    try:
        ping(engine)
        with engine.connect() as conn:
            before = migrations.version(conn)
        # Neither the ledger's name nor its digest key plays a part here.
        books = Books("", b"")
        steps = (
            [step for step in migrations.STEPS if step.number > before]
            if is_check
            else migrations.migrate(engine, books)
        )
    finally:
        engine.dispose()
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "schema": before if is_check else migrations.NEWEST,
                    "applied": [] if is_check else [step.number for step in steps],
                    "missing": [step.number for step in steps] if is_check else [],
                }
            )
        )
    else:
        word = "missing" if is_check else "applied"
        for step in steps:
            typer.echo(f"{word} {step.number} {step.name}")
        if not steps:
            typer.echo(f"up to date: schema {before}")
    if is_check and steps:
        raise typer.Exit(1)
