"""What lies in a queue, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from landed.errors import ConfigurationError
from landed.ids import AggregateKey, ClientId, EventId
from landed.limits import MIB
from landed.log import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The bounds of one store."""

    disk_bytes_max: int = 256 * MIB
    """Of the file. Above it saving is refused; syncing still works and makes room."""
    event_bytes_max: int = 8 * MIB
    """Of one event: half of what a server takes, so that no saved event is too large to send."""
    run_events_max: int = 256
    """Events of one request: one flush here and one there for all of them."""
    run_bytes_max: int = 1 * MIB
    """Event bytes of one request; a larger event goes alone."""
    synced_kept: int = 1_000
    """Synced events that stay in the file until somebody prunes; beyond it they go by themselves."""

    def __post_init__(self) -> None:
        if self.disk_bytes_max < MIB // 4:
            raise ConfigurationError(
                "disk_bytes_max must be at least 262144: an empty file has some"
            )
        if min(self.event_bytes_max, self.run_events_max, self.run_bytes_max) < 1:
            raise ConfigurationError("event_bytes_max, run_events_max and run_bytes_max start at 1")


class Saved(NamedTuple):
    """An event is on the disk, with the number it keeps."""

    client_seq: int
    event_id: EventId
    key: AggregateKey


class Entry(NamedTuple):
    """A queued event."""

    client_seq: int
    event_id: EventId
    event_ms: int
    type_major: int
    type_minor: int
    value: bytes
    iv: bytes | None
    is_attempted: bool
    """It may have left this device, and so may be in the log."""

    def event(self) -> Event:
        """The event as the log takes it."""
        return Event.new(
            self.type_major,
            self.value,
            client_seq=self.client_seq,
            event_id=self.event_id,
            type_minor=self.type_minor,
            event_ms=self.event_ms,
            iv=self.iv,
        )


class Run(NamedTuple):
    """Consecutive queued events of one aggregate, about to be sent as one request."""

    aggregate: int
    """The store's own number for the key."""
    key: AggregateKey
    entries: tuple[Entry, ...]
    attempted_seq: int
    """The highest number of this aggregate that was ever sent before this sending; 0 if none."""

    @property
    def first(self) -> int:
        """The lowest number, by which the log judges it."""
        return self.entries[0].client_seq

    @property
    def last(self) -> int:
        """The highest number."""
        return self.entries[-1].client_seq


class Settled(NamedTuple):
    """The log holds a run up to a number; to be marked."""

    run: Run
    upto: int


class Blocked(NamedTuple):
    """An aggregate whose queue stands still: the log refuses its first event for good."""

    key: AggregateKey
    client_seq: int
    """The event refused."""
    code: int
    """The protocol's number; 0 where the refusal has none."""
    reason: str
    queued: int
    """Events that wait, the refused one included."""


class Status(NamedTuple):
    """A store at a glance."""

    client_id: ClientId
    next_seq: int
    queued: int
    attempted: int
    """Of the queued ones, those that may be in the log already."""
    synced: int
    """Still in the file."""
    abandoned: int
    pruned_seq: int
    """Every synced event up to here may be gone from the file; 0 if none is."""
    blocked: tuple[Blocked, ...]
    fault: str | None
    """Why nothing is sent at all: the store was restored or copied."""
    used_bytes: int
    limit_bytes: int | None
    """None where the store was only looked at."""
