"""From a delivery to arrivals: authentication, identity, disposition, fingerprint.

The one way in, for live traffic and runs alike (rule BF-2). Does no I/O; may take as long as a user's
own check takes, so it never runs on the event loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from landed.deliveries.classify import (
    AcceptedEvent,
    Disposition,
    IgnoredEvent,
    QuarantinedEvent,
    QuarantineReason,
    classify,
    fingerprint_event,
    form_name,
    is_beyond_floor,
)
from landed.deliveries.event import Event, Rejected, Verified
from landed.deliveries.producer import PayloadPolicy, Producer
from landed.deliveries.verify import Ed25519Check, verify
from landed.fingerprint import RAW, Fingerprint, fingerprint_raw
from landed.intake.reading import Headers, read_events
from landed.records.origins import LIVE
from landed.records.receipts import Arrival
from landed.records.texts import is_storable, storable
from landed.registry import Registry

KEPT_HEADERS: Final = frozenset({"content-type", "webhook-id", "webhook-timestamp", "user-agent"})
"""And ``ce-*``. Everything else, signatures and tokens above all, is forgotten (rule RC-11)."""
SERIAL_KEY_CHARS_MAX: Final = 512
OTHERS_MAX: Final = 8
"""Producers of other endpoints that are tried, only to tell 403 from 401."""
_HEADER_CHARS_MAX: Final = 1024

Paths = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What arrived, before anybody looked at it."""

    headers: Headers
    body: bytes
    transport: str = "http"
    transport_ref: str | None = None
    """Where the transport has it: evidence, and never an identity (rule ID-5)."""
    origin: str = LIVE
    is_stale_approved: bool = False
    """An approved run lets an old attempt time pass. A signature, never (rule BF-2)."""


class Admitted(NamedTuple):
    """An authentic delivery. A member of a batch may be refused while others are taken."""

    producer: Producer
    verified: Verified
    arrivals: tuple[Arrival | Rejected, ...]


class Refused(NamedTuple):
    """Refused before receipt. ``namespace`` None: nobody proved who it was from."""

    rejected: Rejected
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doorkeeper:
    """Judges deliveries by what is declared."""

    registry: Registry
    now_us: Callable[[], int]
    """By the host's clock as it is: signed times are others', and must not be judged by a clock that
    was ahead once and cannot go back (SQ-18)."""
    check_ed25519: Ed25519Check | None = None
    forms: Mapping[str, Paths] = field(default_factory=dict)
    """Paths left out of a fingerprint, by the form's name: of earlier declarations too (RC-8)."""

    def admit(self, delivery: Delivery, namespaces: Sequence[str]) -> Admitted | Refused:
        """Say what becomes of a delivery.

        Args:
            delivery: as it arrived.
            namespaces: the producers that may deliver where it arrived, tried in this order. Which
                of them it is, is what its signature proves, never what it says (rule ID-1).
        """
        proof = self._authenticate(delivery, namespaces)
        if isinstance(proof, Refused):
            return proof
        producer, verified = proof
        if len(delivery.body) > producer.body_bytes_max:
            return Refused(
                Rejected(status=413, reason="too_large", detail=_limit(producer)),
                producer.namespace,
            )
        events = read_events(producer, delivery.headers, delivery.body)
        if isinstance(events, Rejected):
            return Refused(events, producer.namespace)
        arrivals = tuple(self.arrive(event, producer, verified, delivery) for event in events)
        if len(arrivals) == 1 and isinstance(arrivals[0], Rejected):
            return Refused(arrivals[0], producer.namespace)
        return Admitted(producer, verified, arrivals)

    def arrive(
        self, event: Event, producer: Producer, verified: Verified, delivery: Delivery
    ) -> Arrival | Rejected:
        """Judge one event of an authentic delivery.

        Used as it is where the transport itself is the proof: a bridge, a listing of our own.
        """
        if is_beyond_floor(event, producer):
            return beyond_retention(producer.namespace)
        disposition = _plain(classify(event, producer))
        if isinstance(disposition, QuarantinedEvent) and disposition.detail.startswith("too_deep:"):
            return Rejected(status=400, reason="bad_syntax", detail=disposition.detail)
        names, serial_keys, disposition = self._routes(event, producer, disposition)
        return Arrival(
            event=event,
            verified=verified,
            disposition=disposition,
            fingerprint=fingerprint_event(event, producer.excluded_paths),
            fingerprint_under=self._fingerprint_under(event, producer),
            handlers=names,
            owner=producer.owner,
            keeps_payload=producer.payload is PayloadPolicy.KEEP,
            headers=kept_headers(delivery.headers),
            transport=delivery.transport,
            transport_ref=delivery.transport_ref,
            origin=delivery.origin,
            serial_keys=serial_keys,
        )

    def _authenticate(
        self, delivery: Delivery, namespaces: Sequence[str]
    ) -> tuple[Producer, Verified] | Refused:
        first: Rejected | None = None
        for namespace in namespaces:
            verified = self._verify(delivery, namespace)
            if isinstance(verified, Verified):
                return self.registry.producers[namespace], verified
            if first is None or (first.status == 400 and verified.status == 401):
                first = verified
            if verified.reason == "not_fresh":
                return Refused(verified, namespace)
        if first is None:
            return Refused(Rejected(status=403, reason="no_endpoint", detail="nobody sends here"))
        others = sorted(self.registry.producers.keys() - set(namespaces))
        for namespace in others[:OTHERS_MAX]:
            if isinstance(self._verify(delivery, namespace), Verified):
                return Refused(
                    Rejected(
                        status=403, reason="not_allowed", detail="not this producer's endpoint"
                    ),
                    namespace,
                )
        return Refused(first)

    def _verify(self, delivery: Delivery, namespace: str) -> Verified | Rejected:
        return verify(
            self.registry.producers[namespace].authentication,
            namespace=namespace,
            headers=delivery.headers,
            body=delivery.body,
            now_us=self.now_us(),
            is_stale_approved=delivery.is_stale_approved,
            check_ed25519=self.check_ed25519,
        )

    def _routes(
        self, event: Event, producer: Producer, disposition: Disposition
    ) -> tuple[tuple[str, ...], dict[str, str], Disposition]:
        if not isinstance(disposition, AcceptedEvent):
            return (), {}, disposition
        try:
            routes = self.registry.routes(producer.namespace)(event, disposition.data)
        except Exception as e:  # noqa: BLE001  # a user's own function over a payload it did not expect
            reason = f"its serial key failed: {type(e).__name__}"
            return (), {}, QuarantinedEvent(QuarantineReason.POLICY_HOLD, reason)
        keys = {route.handler: route.serial_key for route in routes if route.serial_key is not None}
        given: list[object] = list(keys.values())
        for key in given:
            if not isinstance(key, str) or len(key) > SERIAL_KEY_CHARS_MAX or not is_storable(key):
                reason = f"its serial key is no text of up to {SERIAL_KEY_CHARS_MAX} characters"
                return (), {}, QuarantinedEvent(QuarantineReason.POLICY_HOLD, reason)
        return tuple(route.handler for route in routes), keys, disposition

    def _fingerprint_under(
        self, event: Event, producer: Producer
    ) -> Callable[[str], Fingerprint | None]:
        def _under(form: str) -> Fingerprint | None:
            if form == RAW:
                return fingerprint_raw(event.data)
            declared = producer.excluded_paths
            known = {**self.forms, form_name(()): (), form_name(declared): declared}
            if form not in known:
                return None
            found = fingerprint_event(event, known[form])
            return found if found.form == form else None

        return _under


def beyond_retention(namespace: str) -> Rejected:
    """The refusal of an event that is older than its producer's replay floor (rules RT-10, BF-12)."""
    return Rejected(
        status=400,
        reason="beyond-retention",
        detail=f"older than the replay floor of {namespace}: a repeat could not be told from a first",
    )


def kept_headers(headers: Headers) -> str:
    """The headers that are kept, as JSON."""
    return json.dumps(
        {
            name: lines[0][:_HEADER_CHARS_MAX]
            for name, lines in sorted(headers.items())
            if lines and (name in KEPT_HEADERS or name.startswith("ce-"))
        }
    )


def _plain(disposition: Disposition) -> Disposition:
    """Keep what a user's check said, in characters that a database can hold."""
    match disposition:
        case QuarantinedEvent(reason=reason, detail=detail):
            return QuarantinedEvent(reason, storable(detail))
        case IgnoredEvent(reason=reason):
            return IgnoredEvent(storable(reason))
        case _:
            return disposition


def _limit(producer: Producer) -> str:
    return f"a body has at most {producer.body_bytes_max} bytes"
