"""``landed run``: backfills and reprocessings, planned, approved, bounded and counted."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from landed.cli.desk import (
    ActionOption,
    ByOption,
    DatabaseOption,
    Desk,
    JsonOption,
    LedgerOption,
    WhyOption,
    action_of,
    actor_of,
    id_of,
    opened,
    say,
    when,
)
from landed.cli.gaps import check_digest, digest_of, gaps_of, measure

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

    from landed.records.runs import Plan
    from landed.workers.backfill import Progress, Shown, Source
    from landed.workers.sources import DeliveryFile

run = typer.Typer(
    name="run",
    help="Runs: events from outside that we may not have, or those that were set aside, taken "
    "through the same doors as live traffic.",
    no_args_is_help=True,
)
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
DeclaredOption = Annotated[
    str, typer.Option("--ledger", metavar="MODULE:LEDGER", help="Where the ledger is declared.")
]
_COUNTERS = ("accepted", "duplicates", "ignored", "quarantined", "conflicts", "rejected")


class Kind(StrEnum):
    """What a run takes."""

    BACKFILL = "backfill"
    REPROCESS = "reprocess"


@run.command()
def create(
    namespace: Annotated[str, typer.Argument(metavar="PRODUCER", help="Whose events.")],
    *,
    ledger: DeclaredOption,
    why: WhyOption,
    label: Annotated[str, typer.Option(help="A name for people.")] = "run",
    kind: Annotated[Kind, typer.Option(help="reprocess: what was set aside.")] = Kind.BACKFILL,
    source: Annotated[
        Path | None,
        typer.Option(help="JSON lines of stored deliveries: headers, and body or body_base64."),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(help="JSON lines of [source, id]: what the producer says it sent."),
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Items a second.")] = None,
    events: Annotated[
        int | None, typer.Option("--max-events", min=0, help="It pauses after so many.")
    ] = None,
    receipts: Annotated[int | None, typer.Option("--max-receipts", min=0, help="Likewise.")] = None,
    effects: Annotated[int | None, typer.Option("--max-effects", min=0, help="Likewise.")] = None,
    quarantines: Annotated[
        int | None, typer.Option("--max-quarantines", min=0, help="Likewise.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale-signatures", help="Old but valid signatures pass, marked.")
    ] = False,
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Somebody else must approve it.")
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would do; nothing stays.")
    ] = False,
    database: DatabaseOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write down what a run would do, for somebody to approve.

    Example: landed run create shop --ledger app:ledger --source old.jsonl --why "outage" --dry-run
    """
    from landed.errors import ConfigurationError
    from landed.records import runs

    if (kind is Kind.BACKFILL) != (source is not None):
        raise ConfigurationError("a backfill reads --source FILE; a reprocess reads none")
    plan = runs.Plan(
        kind=kind.value,
        label=label,
        namespace=namespace,
        source="quarantine" if source is None else str(source),
        selection={
            "source_sha256": None if source is None else digest_of(source),
            "manifest": None if manifest is None else str(manifest),
            "manifest_sha256": None if manifest is None else digest_of(manifest),
        },
        ceilings=runs.Ceilings(
            events=events, receipts=receipts, effects=effects, quarantines=quarantines
        ),
        rate_per_s=rate,
        is_stale_approved=stale,
        is_sensitive=sensitive,
    )
    with opened(database, ledger) as desk:
        if namespace not in desk.declared().registry.producers:
            raise ConfigurationError(f"no producer {namespace} is declared")
        if dry:
            if source is None:
                raise ConfigurationError("--dry-run is for a backfill")
            _rehearse(desk, plan, _file(source), as_json=as_json)
            return
        run_id = desk.transact(
            lambda conn: runs.create(conn, desk.books, plan, by=actor_of(by), why=why)
        )
    digest = plan.digest().hex()
    say(
        {"run": run_id, "state": "draft", "plan_digest": digest},
        [
            f"run {run_id} is a draft",
            f"plan {digest}",
            f"approve it with: landed run approve {run_id} --plan {digest}",
        ],
        as_json=as_json,
    )


@run.command()
def approve(
    run_id: RunArgument,
    *,
    plan: Annotated[str, typer.Option(metavar="DIGEST", help="Of the plan that was looked at.")],
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve exactly the plan with this digest; a changed plan needs a new approval.

    Example: landed run approve 0198… --plan 3f2a… --database sqlite:///app.db --by ann
    """
    from landed.errors import ConfigurationError
    from landed.records import runs

    id = id_of(run_id)
    try:
        digest = bytes.fromhex(plan)
    except ValueError:
        raise ConfigurationError(f"--plan takes the digest that create printed: {plan!r}") from None
    with opened(database, ledger) as desk:
        desk.transact(
            lambda conn: runs.approve(conn, desk.books, id, by=actor_of(by), plan_digest=digest)
        )
    say({"run": id, "state": "approved"}, [f"run {id} is approved"], as_json=as_json)


@run.command()
def start(
    run_id: RunArgument,
    *,
    ledger: DeclaredOption,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do an approved run, or go on with a paused one, here and until it ends or pauses.

    It may be killed and started again at any time, and by several processes at once. Leaves with 1
    if it paused.

    Example: landed run start 0198… --ledger app:ledger
    """
    _go(id_of(run_id), ledger=ledger, database=database, as_json=as_json)


@run.command()
def resume(
    run_id: RunArgument,
    *,
    ledger: DeclaredOption,
    why: WhyOption,
    database: DatabaseOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was paused, or that paused itself; that is an act, and kept.

    Example: landed run resume 0198… --ledger app:ledger --why "acme answers again"
    """
    from landed.records import actions

    id = id_of(run_id)
    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        desk.transact(lambda conn: actions.resume_run(conn, desk.books, action, id))
    _go(id, ledger=ledger, database=database, as_json=as_json)


@run.command()
def pause(
    run_id: RunArgument,
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    why: WhyOption = "paused by an operator",
    as_json: JsonOption = False,
) -> None:
    """Stop a run until somebody starts it again.

    Example: landed run pause 0198… --database sqlite:///app.db
    """
    from landed.records import runs

    id = id_of(run_id)
    because = f"{actor_of(by)}: {why}"
    with opened(database, ledger) as desk:
        paused = desk.transact(lambda conn: runs.pause(conn, desk.books, id, because=because))
        state = desk.read(lambda conn: runs.load(conn, id))["state"]
    line = f"run {id} is paused" if paused else f"run {id} was not running: it is {state}"
    say({"run": id, "state": state}, [line], as_json=as_json)


@run.command()
def report(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id; without it, all runs.")
    ] = None,
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what runs have done, and which gaps were measured.

    Example: landed run report 0198… --database sqlite:///app.db
    """
    _report(
        desk_url=database,
        ledger=ledger,
        id=None if run_id is None else id_of(run_id),
        as_json=as_json,
    )


def _go(id: UUID, *, ledger: str, database: str | None, as_json: bool) -> None:
    """Do a run here until it ends or is paused."""
    from landed.errors import ActionRefusedError
    from landed.records import runs
    from landed.workers.backfill import Clerk, go

    with opened(database, ledger) as desk:
        declared = desk.declared()
        row = desk.read(lambda conn: runs.load(conn, id))
        if row["namespace"] not in declared.registry.producers:
            raise ActionRefusedError(f"producer {row['namespace']} is not declared any more")
        if row["state"] in ("approved", "paused", "running"):
            measure(desk, row, "before")
        clerk = Clerk(
            engine=desk.engine, books=desk.books, registry=declared.registry, note=declared.note
        )
        with _bar(is_shown=not as_json) as shown:
            progress = asyncio.run(go(clerk, id, _source(desk, row), shown=shown))
        if progress.state == "completed":
            measure(desk, row, "after")
    _report(desk_url=database, ledger=ledger, id=id, as_json=as_json)
    if progress.state != "completed":
        raise typer.Exit(1)


def _report(*, desk_url: str | None, ledger: str | None, id: UUID | None, as_json: bool) -> None:
    from landed.records import runs

    with opened(desk_url, ledger) as desk:
        if id is None:
            rows = desk.read(runs.all_runs)
            told = [_told(row) for row in rows]
            lines = [
                f"{row['run_id']}  {when(row['created_at'])}  {row['state']}  {row['kind']} "
                f"{row['namespace']}  {row['label']}"
                for row in rows
            ]
            say(told, lines or ["there are no runs"], as_json=as_json)
            return
        row = desk.read(lambda conn: runs.load(conn, id))
        gaps = gaps_of(desk, id)
    lines = [
        f"run {id} is {row['state']}"
        + (f": {row['paused_because']}" if row["paused_because"] else ""),
        f"{row['kind']} of {row['namespace']} from {row['source']}: {row['label']}",
        f"asked for by {row['requested_by']}: {row['reason']}",
        f"approved by {row['approved_by'] or 'nobody'}",
        "  ".join(f"{row[name]} {name}" for name in _COUNTERS)
        + f"  {row['new_effects']} new effects",
        *[f"gap {gap['phase']}: {gap['verdict']}" for gap in gaps],
    ]
    say({**_told(row), "gaps": gaps}, lines, as_json=as_json)


def _told(row: RowMapping) -> dict[str, Any]:
    told = {name: value for name, value in row.items() if name not in ("plan", "plan_digest")}
    return {**told, "plan": json.loads(row["plan"]), "plan_digest": bytes(row["plan_digest"]).hex()}


def _source(desk: Desk, row: RowMapping) -> Source:
    from landed.workers.sources import ReceiptList

    if row["kind"] == Kind.REPROCESS.value:
        return ReceiptList(desk.engine, row["namespace"], not_after=row["run_id"])
    path = Path(row["source"])
    check_digest(path, json.loads(row["plan"])["selection"]["source_sha256"])
    return _file(path)


def _file(path: Path) -> DeliveryFile:
    from landed.workers.sources import DeliveryFile

    return DeliveryFile(path)


def _rehearse(desk: Desk, plan: Plan, source: DeliveryFile, *, as_json: bool) -> None:
    from landed.workers.backfill import Clerk
    from landed.workers.rehearsal import rehearse

    declared = desk.declared()
    clerk = Clerk(engine=desk.engine, books=desk.books, registry=declared.registry)
    foreseen = rehearse(clerk, plan, source)
    lines = ["  ".join(f"{number} {name}" for name, number in foreseen.counts.items())]
    lines += [f"new effect {key}" for key in foreseen.effect_keys]
    lines += [f"handler failed: {failure}" for failure in foreseen.failures]
    say(foreseen._asdict(), lines, as_json=as_json)


@contextmanager
def _bar(*, is_shown: bool) -> Iterator[Shown]:
    """A bar on standard error, where somebody looks at it."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("taking", total=None)

        def shown(progress: Progress) -> None:
            what = "taking" if progress.why is None else f"waiting for {progress.why}"
            bar.update(task, completed=progress.done, total=progress.total, description=what)

        yield shown
