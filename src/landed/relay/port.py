"""What a sink is: one place that takes messages, and what proves that it has one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from landed.fingerprint import Json, canonical_json, parse_json

CLOUDEVENT: Final = "application/cloudevents+json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message. Everything here is the same on every try (rule OB-2)."""

    message_id: str
    type: str
    source: str
    """Ledger and domain."""
    data: bytes
    """Canonical JSON, as it was written."""
    created_us: int
    order_key: str | None = None
    order_seq: int | None = None

    def cloudevent(self) -> bytes:
        """The message as a structured CloudEvent, so that its id and type are signed with it.

        ``sequence`` lets the next consumer measure gaps (rule OB-10).
        """
        envelope: dict[str, Json] = {
            "specversion": "1.0",
            "id": self.message_id,
            "source": self.source,
            "type": self.type,
            "time": (_EPOCH + timedelta(microseconds=self.created_us)).isoformat(),
            "datacontenttype": "application/json",
            "data": parse_json(self.data),
        }
        if self.order_key is not None:
            envelope["partitionkey"] = self.order_key
            envelope["sequence"] = str(self.order_seq)
            envelope["sequencetype"] = "Integer"
        return canonical_json(envelope)


class Taken(NamedTuple):
    """The destination durably has it. ``proof`` is kept: what it answered."""

    proof: dict[str, Json]


class NotHanded(NamedTuple):
    """It may or may not have it; the same message is handed on again later."""

    error: str
    retry_after_s: float | None = None
    """What the destination asked for; then nothing at all is sent to it for so long."""


class Undeliverable(NamedTuple):
    """It will never take this message: set aside, with a review."""

    error: str


class Gone(NamedTuple):
    """It will never take anything again: the lane stops, with a review."""

    error: str


Handed = Taken | NotHanded | Undeliverable | Gone


class Sink(Protocol):
    """Hand one message on. Whatever it raises counts as ``NotHanded``."""

    @property
    def proof(self) -> str:
        """What proves a hand-off here, in words."""
        ...

    @property
    def dedup_window_s(self) -> float | None:
        """How long the destination recognises a repeat by its id; None: it never does."""
        ...

    async def hand_on(self, message: Outgoing) -> Handed: ...

    async def close(self) -> None: ...
