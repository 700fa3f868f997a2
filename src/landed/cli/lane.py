"""``landed lane``: lanes that stopped themselves, and the word that lets one go on."""

from __future__ import annotations

from typing import Annotated

import typer

from landed.cli.desk import (
    ActionOption,
    ByOption,
    DatabaseOption,
    JsonOption,
    LedgerOption,
    WhyOption,
    action_of,
    opened,
    say,
    when,
)

lane = typer.Typer(
    name="lane",
    help="Lanes that nobody works on until a person lets them go on.",
    no_args_is_help=True,
)


@lane.command("list")
def list_(
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the lanes that are stopped, and why.

    Example: landed lane list --database sqlite:///app.db
    """
    from landed.records import lanes

    with opened(database, ledger) as desk:
        rows = desk.read(lanes.stopped)
    say(
        [dict(row) for row in rows],
        [
            f"{row['lane']}  {when(row['stopped_at'])}  by {row['stopped_by']}: {row['reason']}"
            for row in rows
        ]
        or ["no lane is stopped"],
        as_json=as_json,
    )


@lane.command()
def resume(
    name: Annotated[str, typer.Argument(metavar="LANE", help="As landed lane list prints it.")],
    *,
    why: WhyOption,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a stopped lane go on; running workers take it up within their poll.

    Example: landed lane resume relay:bus --database sqlite:///app.db --why "the endpoint is back"
    """
    from landed.records import actions

    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        done = desk.transact(lambda conn: actions.resume_lane(conn, desk.books, action, name))
    word = "was resumed before" if done.is_repeat else "goes on"
    say(
        {"lane": name, "is_repeat": done.is_repeat, **done.after},
        [f"lane {name} {word}"],
        as_json=as_json,
    )
