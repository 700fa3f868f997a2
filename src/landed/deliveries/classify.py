"""What becomes of an authentic event: accepted, ignored, or set aside with an immutable reason."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import NamedTuple

from landed.deliveries.event import Event
from landed.deliveries.producer import EventType, Producer
from landed.fingerprint import (
    JCS,
    Fingerprint,
    Json,
    NotExactError,
    canonical_json,
    fingerprint_raw,
    parse_json,
)


class QuarantineReason(StrEnum):
    """Why an authentic event cannot be processed as it stands (rule QU-2; a closed list)."""

    UNSUPPORTED_TYPE = "unsupported_type"
    UNSUPPORTED_SCHEMA_VERSION = "unsupported_schema_version"
    SCHEMA_INVALID = "schema_invalid"
    AMBIGUOUS_JSON = "ambiguous_json"
    NUMBER_OUT_OF_DOMAIN = "number_out_of_domain"
    PAYLOAD_ENCODING = "payload_encoding"
    HANDLER_POISON = "handler_poison"
    EFFECT_PAYLOAD_CONFLICT = "effect_payload_conflict"
    ORDER_CONFLICT = "order_conflict"
    POLICY_HOLD = "policy_hold"


class AcceptedEvent(NamedTuple):
    """Work may begin. ``data`` is what the handlers get."""

    data: object


class IgnoredEvent(NamedTuple):
    """Receipted and never handled."""

    reason: str


class QuarantinedEvent(NamedTuple):
    reason: QuarantineReason
    detail: str


Disposition = AcceptedEvent | IgnoredEvent | QuarantinedEvent

_REASONS = {
    "repeated_member": QuarantineReason.AMBIGUOUS_JSON,
    "number_out_of_domain": QuarantineReason.NUMBER_OUT_OF_DOMAIN,
    "encoding": QuarantineReason.PAYLOAD_ENCODING,
    "syntax": QuarantineReason.SCHEMA_INVALID,
    "too_deep": QuarantineReason.SCHEMA_INVALID,
}


def classify(event: Event, producer: Producer) -> Disposition:
    """Say what becomes of an authentic event. Used alike by live traffic, release and runs.

    Source: rules RC-4, QU-1, QU-2; design decision 28 for the business condition.
    """
    if event.type in producer.ignore:
        return IgnoredEvent("its type is ignored")
    declared = producer.types.get(event.type)
    if declared is None:
        return QuarantinedEvent(QuarantineReason.UNSUPPORTED_TYPE, event.type[:200])
    if event.schema_version not in declared.versions:
        return QuarantinedEvent(
            QuarantineReason.UNSUPPORTED_SCHEMA_VERSION, str(event.schema_version)[:200]
        )
    read = read_data(event.data, event.schema_version, declared, producer)
    if isinstance(read, QuarantinedEvent):
        return read
    if declared.when is not None:
        try:
            holds = declared.when(read.data)
        except Exception as e:  # noqa: BLE001  # a user's own function; its failure is a verdict
            return QuarantinedEvent(
                QuarantineReason.POLICY_HOLD, f"its business condition failed: {type(e).__name__}"
            )
        if not holds:
            return IgnoredEvent(declared.when_reason)
    return read


def is_beyond_floor(event: Event, producer: Producer, *, floor_us: int | None = None) -> bool:
    """Say whether an event is too old to tell apart from a repeat (rules RT-10, BF-12).

    Args:
        event: with its own time, if its producer states one.
        producer: with the floor that is declared.
        floor_us: the floor the records know, microseconds since 1970; the higher of both holds.
    """
    floors = [floor for floor in (producer.replay_floor_us, floor_us) if floor is not None]
    return bool(floors) and event.occurred_us is not None and event.occurred_us < max(floors)


def read_data(
    data: bytes, schema_version: str | None, declared: EventType, producer: Producer
) -> AcceptedEvent | QuarantinedEvent:
    """Turn a payload into the handlers' data, by its schema version's check, or say why not."""
    if declared.is_opaque:
        return AcceptedEvent(data)
    try:
        document = parse_json(data, depth_max=producer.depth_max)
    except NotExactError as e:
        return QuarantinedEvent(_REASONS[e.reason], str(e)[:500])
    check = declared.versions[schema_version]
    if check is None:
        return AcceptedEvent(document)
    try:
        return AcceptedEvent(check(document))
    except Exception as e:  # noqa: BLE001  # a user's own schema; whatever it raises is a no
        return QuarantinedEvent(QuarantineReason.SCHEMA_INVALID, f"{type(e).__name__}: {e}"[:500])


def fingerprint_event(
    event: Event, excluded_paths: tuple[tuple[str, ...], ...] = ()
) -> Fingerprint:
    """Fingerprint a payload: canonical JSON where it is exact, else the raw bytes (rule RC-5).

    A declaration of excluded paths is part of the form's name, so that fingerprints made under
    different declarations are never compared.
    """
    try:
        document = parse_json(event.data)
        canonical = canonical_json(_without(document, excluded_paths))
    except NotExactError:
        return fingerprint_raw(event.data)
    return Fingerprint(form_name(excluded_paths), hashlib.sha256(canonical).digest())


def form_name(excluded_paths: tuple[tuple[str, ...], ...]) -> str:
    """``jcs-1``, or that with the digest of the paths left out."""
    if not excluded_paths:
        return JCS
    declared: Json = sorted("/".join(path) for path in excluded_paths)
    return f"{JCS}-{hashlib.sha256(canonical_json(declared)).hexdigest()[:16]}"


def _without(document: Json, paths: tuple[tuple[str, ...], ...]) -> Json:
    if not paths or not isinstance(document, dict):
        return document
    here = {path[0] for path in paths if len(path) == 1}
    return {
        name: _without(
            value, tuple(path[1:] for path in paths if len(path) > 1 and path[0] == name)
        )
        for name, value in document.items()
        if name not in here
    }
