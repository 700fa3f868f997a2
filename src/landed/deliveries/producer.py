"""A producer, declared: what it may send, how it proves itself, what is remembered of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from landed.deliveries.event import IdentityRule
from landed.deliveries.verify import Authentication
from landed.fingerprint import Json

BODY_BYTES_MAX: Final = 1024 * 1024
HEADERS_MAX: Final = 100


class PayloadPolicy(StrEnum):
    KEEP = "keep"
    NONE = "none"
    """Only fingerprints are kept, except for a quarantined event until its decision (QU-4)."""


class Invalid(Exception):  # noqa: N818  # a schema's verdict, raised by a user's own check
    """The payload does not fit the schema. The message becomes the quarantine's detail."""


Check = Callable[[Json], object]
"""Turn parsed JSON into the handler's data, or raise ``Invalid`` (any exception counts)."""
When = Callable[[object], bool]
"""The business condition under which work may begin, over the handler's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """One type a producer may send."""

    name: str
    versions: Mapping[str | None, Check | None] = field(default_factory=lambda: {None: None})
    """By schema version (the event's ``dataschema``); a version that is not here is quarantined."""
    when: When | None = None
    """False for an event: it is ``ignored``, with ``when_reason``."""
    when_reason: str = "its business condition does not hold"
    is_opaque: bool = False
    """The payload is not JSON; handlers get the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """An authenticated sender namespace (rule AU-1)."""

    namespace: str
    authentication: Authentication
    types: Mapping[str, EventType]
    ignore: frozenset[str] = frozenset()
    owner: str = "installation"
    """Who owns its quarantine."""
    identity: IdentityRule = IdentityRule.CLOUDEVENTS
    identity_field: tuple[str, ...] = ()
    """For FIELD: the path of the id in the signed JSON body."""
    type_field: tuple[str, ...] = ("type",)
    """Where a webhook that is no CloudEvent states its type."""
    excluded_paths: tuple[tuple[str, ...], ...] = ()
    """Members that change from delivery to delivery and are left out of the fingerprint."""
    payload: PayloadPolicy = PayloadPolicy.KEEP
    body_bytes_max: int = BODY_BYTES_MAX
    depth_max: int = 32
    rate_per_s: float | None = None
    webhook_origins: frozenset[str] = frozenset()
    """Who may ask for deliveries by the CloudEvents webhook handshake (rule AU-10)."""
    repeats_equal_events: bool = False
    """Two events with equal payloads may really be two."""
    has_signed_event_time: bool = False
    retry_s: float | None = None
    """How long it retries one delivery; None: nobody knows, so its receipts never age (RT-3)."""
    transit_s: float | None = 3600.0
    """How long a delivery may be under way after it was sent."""
    replay_s: float | None = 0.0
    """How far back its own console lets a person replay."""
    replay_floor_us: int | None = None
    """Events older than this are refused: beyond it nobody could tell a repeat from a first."""

    def __post_init__(self) -> None:
        if self.identity is IdentityRule.DERIVED and self.repeats_equal_events:
            raise ValueError(
                f"producer {self.namespace}: a derived identity cannot tell equal events apart"
            )
