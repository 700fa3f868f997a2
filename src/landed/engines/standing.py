"""Where one aggregate stands: found once for a change, and handed along with it to the disk.

With a hundred thousand aggregates every look-up in a dictionary waits for memory several times, so
what a write needs of its aggregate is together in one object.
"""

from __future__ import annotations

from typing import Any

from landed.log import Head


class Standing:
    """What a lane knows of one aggregate, and its store. One for each, as long as it is cached."""

    __slots__ = ("accepted", "ahead_client", "ahead_seq", "client", "mark", "place", "visible")

    visible: Head
    """What readers may see: everything durable."""
    accepted: Head
    """With every accepted change in it; the very same object as ``visible`` if none is in flight."""
    ahead_client: int | None
    """While changes are in flight: who made them all, by batches whose sequences rise, else None."""
    ahead_seq: int
    """The highest client_seq in flight, if there is such a client."""
    client: int | None
    """The pair whose mark is kept here, by its client id as a number: most often the only one."""
    mark: int
    """The visible mark of that pair."""
    place: Any
    """For the store alone, on the committing thread: what a commit found out and the next one
    needs; None if there is nothing. It may be dropped at any time with the standing."""

    def __init__(self, head: Head) -> None:
        self.visible = self.accepted = head
        self.ahead_client = self.client = None
        self.ahead_seq = 0
        self.mark = 0
        self.place = None
