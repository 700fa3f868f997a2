"""How long something must be remembered: the longest chain by which it may still arrive.

Late arrivals come in chains (a producer retries, then a person replays, then we look back), so a
horizon is the longest chain and never the largest single input. An input nobody knows makes its
chain endless. Source: rules RT-1 to RT-4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpans:
    """Seconds; None means that nobody knows."""

    retry_s: float | None
    """How long the producer retries one delivery."""
    transit_s: float | None = 3600.0
    """How long a delivery may be under way after it was sent."""
    replay_s: float | None = 0.0
    """How far back the producer's own console lets a person replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientSpans:
    """Seconds; None means that nobody knows."""

    series_s: float | None
    """Attempts and questions about one effect."""
    key_retention_s: float | None
    control_retention_s: float | None = 0.0
    evidence_lag_s: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseSpans:
    """The installation's own, seconds; None means that nobody knows."""

    backlog_s: float | None = DAY_S
    operator_s: float | None = 14 * DAY_S
    """How long after the fact a person may still release, replay or requeue."""
    look_back_s: float | None = 30 * DAY_S
    audit_s: float | None = 0.0
    legal_s: float | None = 0.0
    clock_tolerance_s: float = 300.0
    scrub_every_s: float = 3600.0

    @property
    def margin_s(self) -> float:
        return self.clock_tolerance_s + self.scrub_every_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ages at which somebody wants things forgotten, seconds; None: as long as computed."""

    receipts_s: float | None = None
    effects_s: float | None = None
    payloads_s: float | None = None


class Chain(NamedTuple):
    """One way by which something may still arrive. ``total_s`` None: endless."""

    name: str
    parts: tuple[tuple[str, float | None], ...]
    total_s: float | None


class Horizon(NamedTuple):
    """The binding chain and its length with margin. ``length_s`` None: nothing ever ages."""

    length_s: float | None
    binding: Chain
    chains: tuple[Chain, ...]

    @property
    def unknown_inputs(self) -> tuple[str, ...]:
        """What to find out before anything may age."""
        return tuple(
            sorted({name for chain in self.chains for name, span in chain.parts if span is None})
        )


def receipt_horizon(producer: ProducerSpans, house: HouseSpans) -> Horizon:
    """How long a settled receipt of a producer must recognise its repeats."""
    return _longest(_receipt_chains(producer, house), house)


def effect_horizon(
    recipient: RecipientSpans, producers: Iterable[ProducerSpans], house: HouseSpans
) -> Horizon:
    """How long a settled effect must be recognised: its recipient's memory, or any cause's."""
    control = _max(recipient.key_retention_s, recipient.control_retention_s)
    chains = [
        _chain(
            "recipient memory",
            ("handling backlog", house.backlog_s),
            ("attempts and questions", recipient.series_s),
            ("recipient's key or control retention", control),
            ("evidence lag", recipient.evidence_lag_s),
        )
    ]
    for producer in producers:
        chains.extend(_receipt_chains(producer, house))
    return _longest(tuple(chains), house)


def _receipt_chains(producer: ProducerSpans, house: HouseSpans) -> tuple[Chain, ...]:
    sent = (("producer retry", producer.retry_s), ("transit", producer.transit_s))
    return (
        _chain("redelivery", *sent),
        _chain(
            "replayed by people",
            *sent,
            ("producer's own replay", producer.replay_s),
            ("operator recovery", house.operator_s),
        ),
        _chain(
            "backfilled",
            ("backfill look-back", house.look_back_s),
            ("operator recovery", house.operator_s),
        ),
        _chain("audit", ("audit", house.audit_s)),
        _chain("legal", ("legal", house.legal_s)),
    )


def _chain(name: str, *parts: tuple[str, float | None]) -> Chain:
    spans = [span for _, span in parts]
    total = None if None in spans else sum(span for span in spans if span is not None)
    return Chain(name, parts, total)


def _longest(chains: tuple[Chain, ...], house: HouseSpans) -> Horizon:
    binding = max(chains, key=lambda c: float("inf") if c.total_s is None else c.total_s)
    length = None if binding.total_s is None else binding.total_s + house.margin_s
    return Horizon(length, binding, chains)


def _max(*spans: float | None) -> float | None:
    return None if None in spans else max(span for span in spans if span is not None)
