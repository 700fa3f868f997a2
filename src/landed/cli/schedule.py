"""``landed schedule``: the one table that may be lost at any time, made anew."""

from __future__ import annotations

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
)

schedule = typer.Typer(
    name="schedule", help="What is due, and who works on it.", no_args_is_help=True
)


@schedule.callback()
def _group() -> None:
    """What is due, and who works on it."""


@schedule.command()
def rebuild(
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    why: WhyOption = "rebuilt by an operator",
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the schedule anew from outbox and effects. Loses only delays and claims.

    Example: landed schedule rebuild --database sqlite:///app.db
    """
    from landed.records import actions

    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        done = desk.transact(lambda conn: actions.rebuild_schedule(conn, desk.books, action))
    say(
        {"is_repeat": done.is_repeat, **done.after},
        [
            "rebuilt: {put} put, {removed} removed, {total} now".format_map(
                {"put": "?", "removed": "?", "total": "?", **done.after}
            )
        ],
        as_json=as_json,
    )
