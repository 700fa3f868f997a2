"""Bodies: MessagePack to values and back."""

from __future__ import annotations

from collections.abc import Iterable

from landed.log import Event


def encode_events(events: Iterable[Event]) -> bytes:
    """Write events as one MessagePack array, the form in which they travel."""
    raise NotImplementedError


def decode_events(data: bytes | bytearray | memoryview) -> tuple[Event, ...]:
    """Take events back from ``encode_events``.

    Raises:
        ValueError: these bytes were never written by it.
    """
    raise NotImplementedError
