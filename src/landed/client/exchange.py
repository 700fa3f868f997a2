"""One request and what became of it: the values that the pool's parts hand to each other."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple

from landed.errors import NotSentError
from landed.wire.connection import Answered
from landed.wire.messages import Operation


class Kind(Enum):
    """Whom a request may share a link with. Answers come in order, so a neighbour can delay it."""

    READ = "read"
    CHANGE = "change"
    """Waits for a flush, as its neighbours do; a read behind it would wait for that flush too."""
    ALONE = "alone"
    """May take long, be large, or end the connection: nobody else is on its link."""


class Broken(NamedTuple):
    """It was handed to a link, and no trustworthy answer came back."""

    reason: str
    """timeout, eof, reset, protocol or closing."""
    detail: str
    is_culprit: bool = False
    """With reason protocol: this very answer was at fault, not a neighbour's on the same link."""


class NotSent(NamedTuple):
    """No byte of it was handed to a link."""

    error: NotSentError


Ended = Answered | Broken | NotSent


class Exchange:
    """One request on its way: waiting at a node, then handed to exactly one link, then ended."""

    __slots__ = (
        "answer_s",
        "correlation",
        "due",
        "frame",
        "future",
        "give_up_at",
        "kind",
        "operation",
        "sent_over",
        "size",
    )

    def __init__(
        self,
        operation: Operation,
        kind: Kind,
        frame: bytes,
        correlation: bytes,
        future: asyncio.Future[Ended],
        *,
        wait_until: float,
        answer_s: float,
        give_up_at: float,
    ) -> None:
        self.operation = operation
        self.kind = kind
        self.frame = frame
        self.size = len(frame)
        self.correlation = correlation
        self.future = future
        self.answer_s = answer_s
        """Seconds from hand-over to the last byte of the answer."""
        self.give_up_at = give_up_at
        """Loop time at which the whole call is over; infinity for no such limit."""
        self.due = min(wait_until, give_up_at)
        """Loop time at which it has waited long enough: first for a link, then for an answer."""
        self.sent_over: object = None
        """The link it was handed to. Set before the transport sees a byte of it (CP-33); from then
        on nobody may say that it was not sent."""

    def end(self, ended: Ended) -> None:
        """Say what became of it; whoever stopped waiting is not told."""
        if not self.future.done():
            self.future.set_result(ended)

    @property
    def is_awaited(self) -> bool:
        """Somebody still waits for its answer."""
        return not self.future.done()
