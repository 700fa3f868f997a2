"""What the law needs to know of an aggregate before it admits a change."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from landed.ids import ClientId, UserId


class Life(IntEnum):
    NEVER = 0
    """Never written."""
    LIVE = 1
    DELETED = 2


class Head(NamedTuple):
    """An aggregate in one line. Replaced, never changed."""

    life: Life
    incarnation: int
    """How many lives the key has had; 0 if never written. Old lives are never readable again."""
    version: int
    """The newest version; of a deleted aggregate the one it had when it was deleted."""
    event_seq: int
    """The newest event_seq, likewise."""
    floor: int
    """The first version still readable."""
    allow_recreate: bool
    allow_continuation: bool
    last_ms: int
    """Server time, client and user of the newest record of any kind (log rule N4)."""
    last_client: ClientId
    last_user: UserId | None


NEVER: Final = Head(Life.NEVER, 0, 0, 0, 0, False, False, 0, ClientId(UUID(int=0)), None)
"""The head of every key that nobody has written yet."""
