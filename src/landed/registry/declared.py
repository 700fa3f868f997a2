"""The registry: what a ledger was told before its start. Frozen afterwards, no globals (PY-5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from landed.deliveries.event import Event as Delivered
from landed.deliveries.producer import Producer, When
from landed.effects.contract import Contract, check_contract
from landed.effects.horizon import HouseSpans, Limits
from landed.effects.order import OrderPolicy
from landed.errors import ConfigurationError
from landed.records.quarantine import Route, Routes
from landed.registry.effect_type import EffectType, Ordering

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A user's function of (tx, event). ``name`` is stable text, never an import path (HN-4)."""

    name: str
    function: Callable[..., object]
    namespace: str | None = None
    event_type: str | None = None
    serial: Callable[[Any], str] | None = None
    """Over the handler's data, like ``when``: handled one at a time per key, in receipt order (OG-3)."""
    aliases: tuple[str, ...] = ()
    """Names it had before: work that was stored under them is still its own (HN-4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where publications go; the sink says what proves its hand-off."""

    name: str
    sink: object
    """A ``landed.relay`` sink; declared here as an object, since this room is below that one."""
    blocks_on_failure: bool = True
    """A parked head blocks its group (OB-8); False records the skip and goes on."""
    body_bytes_max: int | None = None


@dataclass(slots=True)
class Recipient:
    """A system that effects act on, with what it promises."""

    name: str
    contract: Contract
    registry: Registry

    def effect(
        self,
        name: str,
        payload: type[P],
        *,
        ordered: str | Ordering | None = None,
        commutative: str | None = None,
        one_to_one_with_event: bool = False,
    ) -> EffectType[P]:
        """Declare an effect type.

        Args:
            name: registered name, unique at this recipient.
            payload: what ``tx.request`` takes for it.
            ordered: the order domain, if order matters; the recipient must then be able to enforce it.
            commutative: why order does not matter although effects of one thing may cross.
            one_to_one_with_event: an event's id may serve as the effect key.

        Raises:
            ConfigurationError: the contract cannot keep what is declared (rule CT-3).
        """
        ordering = Ordering(domain=ordered) if isinstance(ordered, str) else ordered
        warnings = check_contract(
            self.contract,
            recipient=self.name,
            is_ordered=ordering is not None,
            is_commutative=commutative is not None,
        )
        if (
            ordering is not None
            and ordering.policy is OrderPolicy.LATEST_WINS
            and self.contract.fence is None
        ):
            raise ConfigurationError(
                f"effect {self.name}.{name}: the latest can only win where the recipient refuses older "
                "versions; its contract has no fence, so the policy must be strict"
            )
        effect_type = EffectType(
            name=name,
            recipient=self.name,
            contract=self.contract,
            payload=payload,
            ordering=ordering,
            is_commutative=commutative is not None,
            is_one_to_one_with_event=one_to_one_with_event,
        )
        self.registry.add_effect_type(effect_type, warnings)
        return effect_type


@dataclass(slots=True)
class Registry:
    """Everything declared to one ledger."""

    producers: dict[str, Producer] = field(default_factory=dict)
    handlers: dict[str, Handler] = field(default_factory=dict)
    recipients: dict[str, Recipient] = field(default_factory=dict)
    effect_types: dict[tuple[str, str], EffectType[Any]] = field(default_factory=dict)
    """By (recipient, name)."""
    destinations: dict[str, Destination] = field(default_factory=dict)
    alert_sinks: list[object] = field(default_factory=list)
    """Where alerts go, ``landed.relay`` sinks; none: the log."""
    warnings: list[str] = field(default_factory=list)
    contracts: dict[bytes, Contract] = field(default_factory=dict)
    """By digest, also the older ones that open effects are bound to; filled at the start."""
    house: HouseSpans = field(default_factory=HouseSpans)
    """What the installation knows of late arrivals."""
    limits: Limits = field(default_factory=Limits)
    """How early it wants things forgotten; a worker refuses what is too early (rule RT-5)."""
    is_frozen: bool = False

    def add_producer(self, producer: Producer) -> None:
        self._check_open()
        if producer.namespace in self.producers:
            raise ConfigurationError(f"producer {producer.namespace} is declared twice")
        self.producers[producer.namespace] = producer

    def add_handler(self, handler: Handler) -> None:
        self._check_open()
        for name in (handler.name, *handler.aliases):
            if self.handler_named(name) is not None:
                raise ConfigurationError(
                    f"handler {name} is declared twice; give one of them another name="
                )
        self.handlers[handler.name] = handler

    def add_condition(self, namespace: str, event_type: str, when: When, why: str) -> None:
        """Set the business condition of an event type; one type has one (design decision 28)."""
        self._check_open()
        producer = self.producers[namespace]
        declared = producer.types[event_type]
        if declared.when is not None:
            raise ConfigurationError(
                f"{namespace}: {event_type} has a business condition already; a type has one"
            )
        types = {**producer.types, event_type: replace(declared, when=when, when_reason=why)}
        self.producers[namespace] = replace(producer, types=types)

    def add_recipient(self, name: str, contract: Contract) -> Recipient:
        self._check_open()
        if name in self.recipients:
            raise ConfigurationError(f"recipient {name} is declared twice")
        recipient = self.recipients[name] = Recipient(name, contract, self)
        return recipient

    def add_effect_type(self, effect_type: EffectType[Any], warnings: tuple[str, ...]) -> None:
        self._check_open()
        place = (effect_type.recipient, effect_type.name)
        if place in self.effect_types:
            raise ConfigurationError(f"effect {'.'.join(place)} is declared twice")
        self.effect_types[place] = effect_type
        self.warnings += [f"{effect_type.recipient}: {warning}" for warning in warnings]

    def add_destination(self, destination: Destination) -> None:
        self._check_open()
        _check_sink(destination.name, destination.sink)
        if destination.name in self.destinations:
            raise ConfigurationError(f"destination {destination.name} is declared twice")
        self.destinations[destination.name] = destination

    def add_alert_sink(self, sink: object) -> None:
        self._check_open()
        _check_sink("alerts", sink)
        self.alert_sinks.append(sink)

    def set_retention(self, house: HouseSpans, limits: Limits) -> None:
        self._check_open()
        self.house, self.limits = house, limits

    def freeze(self) -> None:
        """Refuse later declarations, and what cannot work (rules PY-5, RC-13)."""
        self.is_frozen = True
        for producer in self.producers.values():
            for event_type in producer.types:
                if not self.handlers_of(producer.namespace, event_type):
                    raise ConfigurationError(
                        f"{producer.namespace} may send {event_type}, but nothing handles it; add a "
                        "handler, or list it in ignore="
                    )
        for effect_type in self.effect_types.values():
            effect_type.freeze()
            self.contracts[effect_type.contract.digest()] = effect_type.contract

    def handlers_of(self, namespace: str, event_type: str) -> tuple[Handler, ...]:
        """The handlers of one producer's event type, in the order of their declaration."""
        return tuple(
            handler
            for handler in self.handlers.values()
            if handler.namespace == namespace and handler.event_type == event_type
        )

    def handler_named(self, name: str) -> Handler | None:
        """The handler that has a name, or had it before (HN-4)."""
        found = self.handlers.get(name)
        if found is not None:
            return found
        return next((h for h in self.handlers.values() if name in h.aliases), None)

    def routes(self, namespace: str) -> Routes:
        """Who handles one producer's events, and in turn within which key."""

        def _routes(event: Delivered, data: object) -> tuple[Route, ...]:
            return tuple(
                Route(handler.name, None if handler.serial is None else handler.serial(data))
                for handler in self.handlers_of(namespace, event.type)
            )

        return _routes

    def settled_handlers(self) -> Mapping[str, Handler]:
        """The settlement handlers of all effect types, by name."""
        return {
            name: Handler(name=name, function=function)
            for effect_type in self.effect_types.values()
            for name, function in effect_type.settled_handlers.items()
        }

    def _check_open(self) -> None:
        if self.is_frozen:
            raise ConfigurationError("declare everything before the ledger starts")


def _check_sink(place: str, sink: object) -> None:
    if not callable(getattr(sink, "hand_on", None)):
        raise ConfigurationError(f"{place}: {sink!r} is no sink; landed.relay has some")
