"""An event as a handler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from landed.effects.state import State

T = TypeVar("T")


class TransportRef(str):
    """A broker's offset, tag or sequence: evidence, and never an identity (rule ID-5).

    A type of its own, so that it can be refused as an effect key.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[T]):
    """One accepted event. ``data`` is what the type's schema check returned. Times in microseconds."""

    namespace: str
    source: str
    id: str
    type: str
    schema_version: str | None
    subject: str | None
    data: T
    receipt_id: UUID
    received_us: int
    occurred_us: int | None
    origin: str
    """``live``, ``backfill:<run>`` or ``reprocess:<run>``."""
    transport_ref: TransportRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How one effect ended, as its settlement handlers see it (rule HN-7)."""

    effect_id: UUID
    recipient: str
    effect_type: str
    effect_key: str | None
    state: State
    reason: str | None
    certainty: str | None
    result: bytes | None
    """What the recipient answered or the look-up found, as far as it is kept."""
    recipient_ref: str | None
    version: int | None
