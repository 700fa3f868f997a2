"""What a program declares before its ledger starts: producers, handlers, recipients, destinations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from landed.deliveries.event import IdentityRule
from landed.deliveries.producer import PayloadPolicy, Producer, When
from landed.deliveries.verify import Authentication
from landed.effects.contract import Contract
from landed.effects.horizon import HouseSpans, Limits
from landed.errors import ConfigurationError
from landed.ledger.event_type import Declared, event_types
from landed.registry import Destination, Handler, Recipient, Registry

F = TypeVar("F", bound=Callable[..., object])


class Declarations:
    """The declaring half of a ``Ledger``."""

    def __init__(self) -> None:
        self.registry = Registry()

    def producer(
        self,
        namespace: str,
        *,
        authentication: Authentication,
        types: Mapping[str, Declared],
        ignore: Iterable[str] = (),
        owner: str = "installation",
        identity: IdentityRule = IdentityRule.CLOUDEVENTS,
        payload: PayloadPolicy = PayloadPolicy.KEEP,
        **more: Any,
    ) -> Producer:
        """Declare who may send events, and how it proves itself.

        Args:
            namespace: the producer's name; its events are received under it.
            authentication: ``StandardWebhooks`` or ``HmacScheme``.
            types: by event type: a payload class (dataclass, TypedDict, attrs, msgspec, pydantic),
                a check of your own, an ``EventType``, or None for JSON as it is.
            ignore: types that are receipted and never handled.
            owner: who is asked about its quarantine.
            identity: which id tells its events apart.
            payload: what is kept of its payloads.
            more: any other field of ``Producer``.
        """
        producer = Producer(
            namespace=namespace,
            authentication=authentication,
            types=event_types(types),
            ignore=frozenset(ignore),
            owner=owner,
            identity=identity,
            payload=payload,
            **more,
        )
        self.registry.add_producer(producer)
        return producer

    def on(
        self,
        producer: Producer,
        event_type: str,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        when: When | None = None,
        why: str = "its business condition does not hold",
        serial: Callable[[Any], str] | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler ``(tx, event)`` for one event type of a producer.

        Args:
            producer: what ``producer`` returned.
            event_type: one of its types.
            name: stable text under which its work is stored; the function's name by default.
                Work waiting under another name waits for a handler of that name.
            aliases: names it had before; work that waits under them is handled (rule HN-4).
            when: the type's business condition over the data; if false the event is ``ignored``.
            why: what ``explain`` says of an event whose condition does not hold.
            serial: over the data: handled one at a time per key, in receipt order (OG-3).
        """
        if event_type not in producer.types:
            raise ConfigurationError(f"{producer.namespace} declares no type {event_type}")
        if when is not None:
            self.registry.add_condition(producer.namespace, event_type, when, why)

        def _declare(function: F) -> F:
            if asyncio.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"handler {function.__name__} is async; a handler is a plain function, run in a "
                    "thread inside its transaction, and does no other I/O"
                )
            self.registry.add_handler(
                Handler(
                    name=name or function.__name__,
                    function=function,
                    namespace=producer.namespace,
                    event_type=event_type,
                    serial=serial,
                    aliases=tuple(aliases),
                )
            )
            return function

        return _declare

    def recipient(self, name: str, contract: Contract) -> Recipient:
        """Declare a system that effects act on, with what it promises."""
        return self.registry.add_recipient(name, contract)

    def destination(
        self,
        name: str,
        sink: object,
        *,
        blocks_on_failure: bool = True,
        body_bytes_max: int | None = None,
    ) -> Destination:
        """Declare where publications go.

        Args:
            name: as in ``tx.publish(..., to=name)``.
            sink: of ``landed.relay``.
            blocks_on_failure: a message that cannot be handed on holds up its order key until a
                person decides; False: it is skipped, and the skip is recorded (rule OB-8).
            body_bytes_max: the largest body it takes, if that is known.
        """
        declared = Destination(
            name=name,
            sink=sink,
            blocks_on_failure=blocks_on_failure,
            body_bytes_max=body_bytes_max,
        )
        self.registry.add_destination(declared)
        return declared

    def retention(self, *, house: HouseSpans | None = None, limits: Limits | None = None) -> None:
        """Say what this installation knows of late arrivals, and how early it wants to forget.

        A worker does not start under limits that forget what may still arrive (rule RT-5).

        Args:
            house: how long handlers may lag, people may decide, backfills may look back.
            limits: None: everything is kept for as long as computed.
        """
        self.registry.set_retention(
            HouseSpans() if house is None else house, Limits() if limits is None else limits
        )

    def alerts(self, sink: object) -> None:
        """Declare one more place where alerts go; without any they go to the log."""
        self.registry.add_alert_sink(sink)
