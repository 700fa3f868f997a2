"""``landed retention``: how long things must be remembered, and whether given limits are safe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from landed.cli.desk import JsonOption, say

if TYPE_CHECKING:
    from landed.effects.horizon import Horizon, HouseSpans

DAY_S = 24 * 3600.0

retention = typer.Typer(
    name="retention",
    help="How long receipts and effects must be remembered. Horizons are computed, not typed in.",
    no_args_is_help=True,
)
TargetArgument = Annotated[
    str, typer.Argument(metavar="MODULE:LEDGER", help="Where the ledger is declared.")
]
BacklogOption = Annotated[
    float | None, typer.Option("--backlog-days", min=0, help="How far handlers may lag behind.")
]
OperatorOption = Annotated[
    float | None, typer.Option("--operator-days", min=0, help="How long a person may still decide.")
]
LookBackOption = Annotated[
    float | None, typer.Option("--look-back-days", min=0, help="How far back a backfill may reach.")
]
AuditOption = Annotated[float | None, typer.Option("--audit-days", min=0, help="For audit.")]
LegalOption = Annotated[float | None, typer.Option("--legal-days", min=0, help="For the law.")]


@retention.command()
def explain(
    target: TargetArgument,
    *,
    backlog: BacklogOption = None,
    operator: OperatorOption = None,
    look_back: LookBackOption = None,
    audit: AuditOption = None,
    legal: LegalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print every chain by which something may still arrive, and the one that binds.

    Example: landed retention explain app:ledger --operator-days 30
    """
    from landed.cli.loading import load_ledger
    from landed.registry.horizons import horizons_of

    registry = load_ledger(target).registry
    house = _house(registry.house, backlog, operator, look_back, audit, legal)
    horizons = horizons_of(registry, house)
    lines: list[str] = []
    for kind, found in (("receipts of", horizons.receipts), ("effects at", horizons.effects)):
        for name, horizon in sorted(found.items()):
            lines += _lines(f"{kind} {name}", horizon, house)
    say(
        {
            "margin_s": house.margin_s,
            "receipts": {name: _told(horizon) for name, horizon in horizons.receipts.items()},
            "effects": {name: _told(horizon) for name, horizon in horizons.effects.items()},
        },
        lines or ["nothing is declared"],
        as_json=as_json,
    )


@retention.command()
def check(
    target: TargetArgument,
    *,
    receipts: Annotated[
        float | None, typer.Option("--receipts-days", min=0, help="Forget receipts after this.")
    ] = None,
    effects: Annotated[
        float | None, typer.Option("--effects-days", min=0, help="Forget effects after this.")
    ] = None,
    payloads: Annotated[
        float | None, typer.Option("--payloads-days", min=0, help="Forget payloads after this.")
    ] = None,
    backlog: BacklogOption = None,
    operator: OperatorOption = None,
    look_back: LookBackOption = None,
    audit: AuditOption = None,
    legal: LegalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse limits that would forget what may still arrive; leaves with 1 if any would.

    Example: landed retention check app:ledger --receipts-days 60 --effects-days 90
    """
    from landed.cli.loading import load_ledger
    from landed.registry.horizons import unsafe

    registry = load_ledger(target).registry
    limits = replace(
        registry.limits,
        **_given(receipts_s=receipts, effects_s=effects, payloads_s=payloads),
    )
    house = _house(registry.house, backlog, operator, look_back, audit, legal)
    refused = list(unsafe(registry, house, limits))
    say(
        {"is_safe": not refused, "refused": refused},
        [f"refused: {reason}" for reason in refused] or ["safe"],
        as_json=as_json,
    )
    if refused:
        raise typer.Exit(1)


def _house(
    declared: HouseSpans,
    backlog: float | None,
    operator: float | None,
    look_back: float | None,
    audit: float | None,
    legal: float | None,
) -> HouseSpans:
    """The ledger's own spans, with those that were said here in their place."""
    return replace(
        declared,
        **_given(
            backlog_s=backlog,
            operator_s=operator,
            look_back_s=look_back,
            audit_s=audit,
            legal_s=legal,
        ),
    )


def _given(**days: float | None) -> dict[str, float]:
    return {name: span * DAY_S for name, span in days.items() if span is not None}


def _lines(what: str, horizon: Horizon, house: HouseSpans) -> list[str]:
    from landed.registry.horizons import days

    length = "for ever" if horizon.length_s is None else f"for {days(horizon.length_s)}"
    lines = [f"{what}: remembered {length}"]
    for chain in horizon.chains:
        if chain.total_s == 0:
            continue
        parts = " + ".join(f"{name} {days(span)}" for name, span in chain.parts)
        mark = "*" if chain == horizon.binding else " "
        total = "endless" if chain.total_s is None else days(chain.total_s)
        lines.append(f"  {mark} {chain.name}: {total} = {parts}")
    lines.append(f"    margin: {days(house.margin_s)}")
    lines += [f"  find out: {name}" for name in horizon.unknown_inputs]
    return lines


def _told(horizon: Horizon) -> dict[str, Any]:
    return {
        "length_s": horizon.length_s,
        "binding": horizon.binding.name,
        "chains": [
            {"name": chain.name, "total_s": chain.total_s, "parts": dict(chain.parts)}
            for chain in horizon.chains
        ],
        "find_out": list(horizon.unknown_inputs),
    }
