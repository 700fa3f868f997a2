"""``landed doctor``: does the database hold what it promises? Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from landed.cli.desk import DatabaseOption, JsonOption, LedgerOption, opened, say

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from landed.registry import Registry


OPEN_S: Final = 60.0
"""A transaction of ours takes milliseconds, a handler seconds. An older one keeps dead rows alive."""


def doctor(
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    open_s: Annotated[
        float,
        typer.Option("--open-seconds", min=0, help="Name PostgreSQL transactions open for longer."),
    ] = OPEN_S,
    as_json: JsonOption = False,
) -> None:
    """Check the invariants and the settings of a ledger's database; changes nothing.

    With --ledger also whether work waits for a handler that is no longer declared. On PostgreSQL it
    names sessions whose transaction has been open for long: they keep dead rows from being cleared.
    Leaves with 1 if anything is broken.

    Example: landed doctor --database sqlite:///app.db
    """
    from landed.errors import ConfigurationError
    from landed.records import invariants, migrations
    from landed.records.session import check_durability

    with opened(database, ledger) as desk:
        broken = desk.read(lambda conn: invariants.check(conn, desk.books))
        schema = desk.read(migrations.version)
        settings: list[str] = []
        try:
            desk.read(check_durability)
        except ConfigurationError as e:
            settings.append(str(e))
        settings += desk.read(lambda conn: _long_open(conn, open_s))
        stranded: list[str] = []
        if desk.ledger is not None:
            registry = desk.ledger.registry
            settings += registry.warnings
            stranded = desk.read(lambda conn: _stranded(conn, registry))
    found = {
        "ledger": desk.books.ledger,
        "schema": schema,
        "broken": [item._asdict() for item in broken],
        "settings": settings,
        "stranded": stranded,
    }
    lines = [f"ledger {desk.books.ledger}, schema {schema}"]
    lines += [f"broken {item.rule}: {item.detail}: {item.subject}" for item in broken]
    lines += [f"setting: {text}" for text in settings]
    lines += [f"work waits for handler {name}, which is not declared" for name in stranded]
    if len(lines) == 1:
        lines.append("every invariant holds")
    say(found, lines, as_json=as_json)
    if broken or stranded or settings:
        raise typer.Exit(1)


def _long_open(conn: Connection, seconds: float) -> list[str]:
    """Sessions that hold back the clearing of dead rows (rule SQ-13)."""
    from sqlalchemy import text

    if conn.dialect.name != "postgresql":
        return []
    rows = conn.execute(
        text(
            "SELECT pid, usename, application_name, state,"
            " extract(epoch FROM clock_timestamp() - xact_start) AS open_s"
            " FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND clock_timestamp() - xact_start > make_interval(secs => :seconds)"
            " ORDER BY xact_start"
        ),
        {"seconds": seconds},
    )
    return [
        f"session {row.pid} of {row.usename} ({row.application_name or 'no name'}) is {row.state} in "
        f"a transaction that has been open for {row.open_s:.0f} s"
        for row in rows
    ]


def _stranded(conn: Connection, registry: Registry) -> list[str]:
    from sqlalchemy import select

    from landed.records.tables import outbox

    waiting = conn.execute(
        select(outbox.c.destination)
        .where(outbox.c.state == "queued", outbox.c.kind.in_(["handle", "settled"]))
        .distinct()
    ).scalars()
    settled = registry.settled_handlers()
    names = {name.removeprefix("handler:") for name in waiting}
    return sorted(
        name for name in names if name not in settled and registry.handler_named(name) is None
    )
