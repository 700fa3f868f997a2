"""How long what is declared must be remembered, and what follows (rules RT-1 to RT-5).

Limits that would forget too early are refused; what may age does so at its horizon, or at the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from landed.deliveries.producer import Producer
from landed.effects.contract import Contract
from landed.effects.horizon import (
    DAY_S,
    Horizon,
    HouseSpans,
    Limits,
    ProducerSpans,
    RecipientSpans,
    effect_horizon,
    receipt_horizon,
)
from landed.errors import ConfigurationError
from landed.records.retention import Policy
from landed.registry.declared import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizons:
    """Every horizon of a ledger."""

    receipts: Mapping[str, Horizon] = field(default_factory=dict)
    """By namespace."""
    effects: Mapping[str, Horizon] = field(default_factory=dict)
    """By recipient."""


def horizons_of(registry: Registry, house: HouseSpans) -> Horizons:
    """Compute the horizons of what is declared.

    Any producer may cause an effect at any recipient: handlers say which only when they run.
    """
    producers = {name: spans_of(producer) for name, producer in registry.producers.items()}
    return Horizons(
        receipts={name: receipt_horizon(spans, house) for name, spans in producers.items()},
        effects={
            name: effect_horizon(memory_of(recipient.contract), producers.values(), house)
            for name, recipient in registry.recipients.items()
        },
    )


def spans_of(producer: Producer) -> ProducerSpans:
    """What a producer's declaration says of late deliveries."""
    return ProducerSpans(
        retry_s=producer.retry_s, transit_s=producer.transit_s, replay_s=producer.replay_s
    )


def memory_of(contract: Contract) -> RecipientSpans:
    """What a contract says of the recipient's memory; without keys there is none to outlast."""
    controls = [
        control.retention_s for control in (contract.fence, contract.seal) if control is not None
    ]
    known = [span for span in controls if span is not None]
    return RecipientSpans(
        series_s=contract.series_max_s,
        key_retention_s=0.0 if contract.key is None else contract.key.retention_s,
        control_retention_s=max(known, default=0.0) if len(known) == len(controls) else None,
    )


def policy_of(registry: Registry) -> Policy:
    """At which ages the keeper may scrub: the declared limits, or the horizons (rule RT-1)."""
    house, limits = registry.house, registry.limits
    horizons = horizons_of(registry, house)
    return Policy(
        payload_us=_us(limits.payloads_s, house.operator_s),
        receipts_us={n: _us(limits.receipts_s, h.length_s) for n, h in horizons.receipts.items()},
        effects_us={n: _us(limits.effects_s, h.length_s) for n, h in horizons.effects.items()},
    )


def check_retention(registry: Registry) -> None:
    """Refuse to work under settings that forget what may still arrive (rule RT-5).

    Raises:
        ConfigurationError: one sentence with every limit that is too low, and the numbers.
    """
    refused = list(unsafe(registry, registry.house, registry.limits))
    if refused:
        raise ConfigurationError(
            f"this ledger would forget too early: {'; '.join(refused)}. Change the limits or the "
            "declarations; 'landed retention explain' shows every chain"
        )


def unsafe(registry: Registry, house: HouseSpans, limits: Limits) -> Iterator[str]:
    """Say which limits would forget something that may still arrive; each line names the numbers."""
    horizons = horizons_of(registry, house)
    for kind, limit, found in (
        ("receipts of", limits.receipts_s, horizons.receipts),
        ("effects at", limits.effects_s, horizons.effects),
    ):
        if limit is None:
            continue
        for name, horizon in sorted(found.items()):
            yield from _below(f"{kind} {name}", limit, horizon)
    for name, producer in sorted(registry.producers.items()):
        if None not in (limits.receipts_s, producer.retry_s) and (
            producer.retry_s > limits.receipts_s  # type: ignore[operator]  # neither is None here
        ):
            yield (
                f"{name} retries for {days(producer.retry_s)}, longer than the "
                f"{days(limits.receipts_s)} that its receipts would live"
            )
    operator_s = 0.0 if house.operator_s is None else house.operator_s
    if limits.payloads_s is not None and limits.payloads_s < operator_s:
        yield (
            f"payloads would go after {days(limits.payloads_s)}, but a person may need them for "
            f"{days(operator_s)}"
        )
    for name, recipient in sorted(registry.recipients.items()):
        contract = recipient.contract
        retention_s = None if contract.key is None else contract.key.retention_s
        if retention_s is not None and contract.series_max_s > retention_s:
            yield (
                f"{name} forgets a key after {days(retention_s)}, but attempts go on for "
                f"{days(contract.series_max_s)}"
            )


def days(seconds: float | None) -> str:
    """A span for people."""
    if seconds is None:
        return "an unknown time"
    return f"{seconds / DAY_S:.2f} days"


def _us(limit_s: float | None, computed_s: float | None) -> int | None:
    seconds = computed_s if limit_s is None else limit_s
    return None if seconds is None else int(seconds * 1_000_000)


def _below(what: str, limit: float, horizon: Horizon) -> Iterator[str]:
    if horizon.length_s is None:
        unknown = ", ".join(horizon.unknown_inputs)
        yield f"{what} may not be forgotten after {days(limit)}: nobody knows {unknown}"
    elif limit < horizon.length_s:
        yield (
            f"{what} would be forgotten after {days(limit)}, but the chain "
            f"{horizon.binding.name!r} needs {days(horizon.length_s)}"
        )
