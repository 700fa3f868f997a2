"""One event as its producer means it, whatever transport and mode brought it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class IdentityRule(StrEnum):
    """Which rule produced an event's identity (rule ID-3), in order of preference."""

    CLOUDEVENTS = "cloudevents"
    WEBHOOK_ID = "webhook-id"
    FIELD = "field"
    DERIVED = "derived"
    """Digest of the signed bytes, for a producer without any id; repeats of equal events merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event with an identity, before anything is known of its meaning.

    ``source`` and ``id`` are text exactly as received: no trimming, no case folding, no
    normalisation (rule ID-2).
    """

    source: str
    id: str
    identity_rule: IdentityRule
    type: str
    schema_version: str | None = None
    subject: str | None = None
    occurred_us: int | None = None
    """The producer's own time of the event, microseconds since 1970, if it states one."""
    sequence: str | None = None
    content_type: str | None = None
    data: bytes = b""
    """The payload alone, exactly as received (structured mode: as it stands in the document)."""
    extensions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What authentication proved of a delivery. Everything else in it is a claim."""

    namespace: str
    key_id: str
    method: str
    """``standard-webhooks``, ``hmac``, ..."""
    signed_us: int | None = None
    """Time of the signed attempt, microseconds since 1970."""
    result: str = "verified"
    """``verified``, or ``verified-stale-approved`` in an approved run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Refused before receipt: no record but a count, no payload kept (rule AU-7)."""

    status: int
    reason: str
    """A fixed word, counted: unauthenticated, not_fresh, bad_syntax, too_large, ..."""
    detail: str = ""
    retry_after_s: int | None = None
