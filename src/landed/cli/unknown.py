"""``landed unknown``: effects that may have happened: ask again, or say what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
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
    id_of,
    opened,
    say,
    when,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from landed.records.effect_actions import Case

unknown = typer.Typer(
    name="unknown",
    help="Effects in doubt: they may have happened, and nobody knows yet.",
    no_args_is_help=True,
)
EffectArgument = Annotated[str, typer.Argument(metavar="EFFECT", help="The effect's id.")]


@unknown.command("list")
def list_(
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    recipient: Annotated[str | None, typer.Option(help="Only this recipient's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Not more than these.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List effects in doubt, with the reason and the number of questions asked.

    Example: landed unknown list --database sqlite:///app.db
    """
    from landed.records import deadlines
    from landed.records.effects import EffectView, views

    def found(conn: Connection) -> list[EffectView]:
        kept: list[EffectView] = []
        after: UUID | None = None
        while len(kept) < limit:
            ids = deadlines.doubtful(conn, limit=limit, after=after)
            kept += [view for view in views(conn, ids) if recipient in (None, view.recipient)]
            if len(ids) < limit:
                break
            after = ids[-1]
        return kept[:limit]

    with opened(database, ledger) as desk:
        effects = desk.read(found)
    say(
        [
            {
                "effect": effect.effect_id,
                "recipient": effect.recipient,
                "type": effect.effect_type,
                "state": effect.state.value,
                "reason": effect.reason,
                "attempts": effect.attempt_no,
                "questions": effect.questions,
                "created_us": effect.created_at,
            }
            for effect in effects
        ],
        [
            f"{effect.effect_id}  {when(effect.created_at)}  {effect.state.value} "
            f"({effect.reason or 'no reason noted'})  {effect.effect_type} at {effect.recipient}  "
            f"{effect.attempt_no} attempts, {effect.questions} questions"
            for effect in effects
        ]
        or ["nothing is in doubt"],
        as_json=as_json,
    )


@unknown.command()
def ask(
    effect: EffectArgument,
    *,
    database: DatabaseOption = None,
    ledger: LedgerOption = None,
    by: ByOption = None,
    why: WhyOption = "asked by an operator",
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the recipient asked now rather than later; a running worker does it.

    Example: landed unknown ask 0198… --database sqlite:///app.db
    """
    from landed.records import effect_actions

    effect_id = id_of(effect)
    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        done = desk.transact(
            lambda conn: effect_actions.reconcile(
                conn, desk.books, action, _case(conn, desk, effect_id)
            )
        )
    say(
        {"effect": effect_id, "is_repeat": done.is_repeat, **done.after},
        [f"{effect_id} is asked about next"],
        as_json=as_json,
    )


@unknown.command()
def attest(
    effect: EffectArgument,
    *,
    ledger: Annotated[
        str,
        typer.Option(
            "--ledger",
            metavar="MODULE:LEDGER",
            help="Where the ledger is declared: its handlers are told.",
        ),
    ],
    acted: Annotated[
        bool, typer.Option("--acted/--did-not-act", help="What became of it.", show_default=False)
    ],
    evidence: Annotated[
        str, typer.Option(metavar="TEXT", help="What that rests on: a statement, a ticket.")
    ],
    why: WhyOption,
    approved_by: Annotated[
        str | None, typer.Option("--approved-by", metavar="NAME", help="The second person.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Do it without a second person, said aloud.")
    ] = False,
    database: DatabaseOption = None,
    by: ByOption = None,
    action_id: ActionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what became of an effect in doubt. It is recorded as attested, never as proven.

    That it did not act parks the effect: sending it again is an act of its own.

    Example: landed unknown attest 0198… --ledger app:ledger --acted --evidence "statement 12"
    --why "month end" --approved-by ann
    """
    from landed.errors import ApprovalMissingError
    from landed.records import effect_actions

    if approved_by is None and not alone:
        raise ApprovalMissingError(
            "a second person approves what nobody can check: --approved-by NAME, or --alone"
        )
    effect_id = id_of(effect)
    action = action_of(by, why, action_id)
    with opened(database, ledger) as desk:
        done = desk.transact(
            lambda conn: effect_actions.attest(
                conn,
                desk.books,
                action,
                _case(conn, desk, effect_id),
                has_acted=acted,
                evidence=evidence,
                approved_by=approved_by,
            )
        )
    say(
        {"effect": effect_id, "is_repeat": done.is_repeat, **done.after},
        [f"{effect_id} is {done.after.get('state')}, attested by {action.actor}"],
        as_json=as_json,
    )


def _case(conn: Connection, desk: Desk, effect_id: UUID) -> Case:
    from landed.errors import ActionRefusedError
    from landed.records import contracts, settle
    from landed.records.effect_actions import Case
    from landed.records.effects import view

    effect = view(conn, effect_id)
    if effect is None:
        raise ActionRefusedError(f"there is no effect {effect_id}")
    try:
        contract = contracts.load(conn, effect.contract_digest)
    except ValueError:
        contract = None
    if contract is None:
        raise ActionRefusedError("the contract that it is bound to is not known to this version")
    declared = (
        None
        if desk.ledger is None
        else desk.ledger.registry.effect_types.get((effect.recipient, effect.effect_type))
    )
    listeners = () if declared is None else tuple(sorted(declared.settled_handlers))
    return Case(effect_id, contract, settle.Delays(settled_handlers=listeners))
