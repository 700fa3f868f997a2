"""``landed quarantine``: events set aside, and the one decision that each gets."""

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
    id_of,
    opened,
    say,
    when,
)

quarantine = typer.Typer(
    name="quarantine",
    help="Authentic events that could not be processed: look at them, release or reject them.",
    no_args_is_help=True,
)
_SAMPLE = 5
ReceiptArgument = Annotated[str, typer.Argument(metavar="RECEIPT", help="The receipt's id.")]


@quarantine.command("list")
def list_(
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    reason: Annotated[str | None, typer.Option(help="Only this reason.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Not more than these.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the events that wait for a decision, oldest first.

    Example: landed quarantine list --database sqlite:///app.db
    """
    from landed.records import quarantine as records

    with opened(database, ledger) as desk:
        rows = desk.read(lambda conn: records.open_events(conn, reason=reason, limit=limit))
    lines = [
        f"{row['receipt_id']}  {when(row['opened_at'])}  {row['reason']}  {row['namespace']} "
        f"{row['type']}  owner {row['owner']}  {row['detail']}"
        for row in rows
    ]
    say([dict(row) for row in rows], lines or ["nothing waits"], as_json=as_json)


@quarantine.command()
def show(
    receipt: ReceiptArgument,
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Print the payload too; that is an act, and kept.")
    ] = False,
    by: ByOption = None,
    why: Annotated[str, typer.Option("--why", help="Why the payload is looked at.")] = "",
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one event that was set aside. Its payload only with --reveal and --why.

    Example: landed quarantine show 0198… --database sqlite:///app.db --reveal --why "ticket 7"
    """
    from landed.errors import ActionRefusedError
    from landed.records import actions
    from landed.records import quarantine as records

    receipt_id = id_of(receipt)
    with opened(database, ledger) as desk:
        row = desk.read(lambda conn: records.find(conn, receipt_id))
        if row is None:
            raise ActionRefusedError(f"no event {receipt_id} was set aside")
        shown = dict(row)
        if reveal:
            action = action_of(by, why, action_id)
            body = desk.transact(
                lambda conn: actions.reveal_payload(conn, desk.books, action, receipt_id)
            )
            shown["payload"] = None if body is None else body.decode(errors="replace")
    lines = [
        f"{name}: {when(value) if name.endswith('_at') and value is not None else value}"
        for name, value in shown.items()
        if value is not None
    ]
    say(shown, lines, as_json=as_json)


@quarantine.command()
def release(
    receipt: ReceiptArgument,
    *,
    ledger: Annotated[
        str, typer.Option("--ledger", metavar="MODULE:LEDGER", help="Today's declarations.")
    ],
    why: WhyOption,
    database: DatabaseOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let an event be handled after all, if the declarations of today accept it.

    Example: landed quarantine release 0198… --ledger app:ledger --why "schema 2 is declared now"
    """
    from landed.errors import ActionRefusedError
    from landed.records import actions
    from landed.records import quarantine as records

    receipt_id = id_of(receipt)
    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        registry = desk.declared().registry
        row = desk.read(lambda conn: records.find(conn, receipt_id))
        if row is None:
            raise ActionRefusedError(f"no event {receipt_id} was set aside")
        producer = registry.producers.get(row["namespace"])
        if producer is None:
            raise ActionRefusedError(f"producer {row['namespace']} is not declared any more")
        done = desk.transact(
            lambda conn: actions.release_quarantine(
                conn,
                desk.books,
                action,
                receipt_id,
                producer=producer,
                routes=registry.routes(producer.namespace),
            )
        )
    word = "was released before" if done.is_repeat else "released"
    say(
        {"receipt": receipt_id, "is_repeat": done.is_repeat, **done.after},
        [f"{receipt_id} {word}; its handlers get it next"],
        as_json=as_json,
    )


@quarantine.command("release-all")
def release_all(
    namespace: Annotated[str, typer.Argument(metavar="PRODUCER", help="Whose events.")],
    *,
    ledger: Annotated[
        str, typer.Option("--ledger", metavar="MODULE:LEDGER", help="Today's declarations.")
    ],
    reason: Annotated[str | None, typer.Option(help="Only those set aside for this.")] = None,
    preview: Annotated[
        str | None,
        typer.Option("--preview", metavar="DIGEST", help="Release the set that was looked at."),
    ] = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept with the act.")] = "",
    database: DatabaseOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release all events that were set aside, a thousand at most: first look, then say the digest.

    If the set changed since the look, nothing is released.

    Example: landed quarantine release-all shop --ledger app:ledger --reason unsupported_type
    """
    from landed.errors import ActionRefusedError, ConfigurationError
    from landed.records import actions
    from landed.records import quarantine as records

    try:
        digest = None if preview is None else bytes.fromhex(preview)
    except ValueError:
        raise ConfigurationError(
            f"--preview takes the digest that was printed: {preview!r}"
        ) from None
    with opened(database, ledger) as desk:
        registry = desk.declared().registry
        producer = registry.producers.get(namespace)
        if producer is None:
            raise ActionRefusedError(f"producer {namespace} is not declared")
        if digest is None:
            found = desk.read(lambda conn: records.preview(conn, namespace, reason=reason))
            shown = [str(receipt_id) for receipt_id in found.receipt_ids[:_SAMPLE]]
            say(
                {"count": len(found.receipt_ids), "sample": shown, "digest": found.digest.hex()},
                [
                    f"{len(found.receipt_ids)} events wait, such as {', '.join(shown) or 'none'}",
                    f'release exactly these with: --preview {found.digest.hex()} --why "..."',
                ],
                as_json=as_json,
            )
            return
        action = action_of(by, why, action_id)
        done = desk.transact(
            lambda conn: actions.release_previewed(
                conn,
                desk.books,
                action,
                producer=producer,
                reason=reason,
                digest=digest,
                routes=registry.routes(namespace),
            )
        )
    say(
        {"is_repeat": done.is_repeat, **done.after},
        [f"{done.after.get('released')} events are released; their handlers get them next"],
        as_json=as_json,
    )


@quarantine.command()
def reject(
    receipt: ReceiptArgument,
    *,
    why: WhyOption,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide that an event is never handled. Its repeats stay duplicates.

    Example: landed quarantine reject 0198… --database sqlite:///app.db --why "a test of theirs"
    """
    from landed.records import actions

    receipt_id = id_of(receipt)
    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        done = desk.transact(
            lambda conn: actions.reject_quarantine(conn, desk.books, action, receipt_id)
        )
    word = "was rejected before" if done.is_repeat else "rejected"
    say(
        {"receipt": receipt_id, "is_repeat": done.is_repeat, **done.after},
        [f"{receipt_id} {word}; it is never handled"],
        as_json=as_json,
    )
