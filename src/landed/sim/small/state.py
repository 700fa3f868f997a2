"""A small world as a value: what is in the log, what each replica knows, and what is on its way."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from landed.commands.moves import At
from landed.ids import AggregateKey, ClientId, EventId
from landed.projections.port import Answered

KEY: Final = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))
"""The one aggregate."""
SERVICE: Final = ClientId(UUID(int=7))
EVENT_IDS: Final = tuple(EventId(UUID(int=100 + request)) for request in range(4))
"""By request."""


class Landing(NamedTuple):
    """A batch of the log: every event is one request's, and one batch's."""

    request: int
    client_seq: int


class Writing(NamedTuple):
    """A write on its way to the log, or in it and not durable yet."""

    request: int
    write: int
    """Its number in the search's table of writes."""
    call: int
    """Position of the call that sent it, or NOBODY, once that has ended."""
    number: int
    """Which sending of that call; an answer is heard if it is the last one."""
    is_repeated: bool = False
    """The network delivers it once more than it was sent."""
    is_disowned: bool = False
    """Its call has said "not applied"."""


NOBODY: Final = -1


class Known(NamedTuple):
    """What a replica's projection knows of the aggregate; nothing, after a restart."""

    state: int = 0
    version: int = 0
    client_seq: int = 0
    newest_ms: int = 0
    answered: tuple[Answered[int] | None, ...] = ()
    """By request."""


class Calling(NamedTuple):
    """One call of one request on one replica, under way."""

    request: int
    replica: int
    at: At
    """Where it is; SEND: its write, or the answer to it, is on its way."""
    memory: int
    """What the loop remembers of it: its number in the search's table of memories."""
    sent: int = 0
    """How often it has sent."""
    has_landed: bool = False
    """One of its sendings is in the log, and was not delivered twice."""


class Reply(NamedTuple):
    """The answer to a write on its way back."""

    call: int
    answer: int
    """Its number in the search's table of answers."""


class World(NamedTuple):
    """One state. Equal worlds have equal futures."""

    visible: tuple[Landing, ...]
    """Durable and readable, in the order of versions."""
    ahead: tuple[Writing, ...]
    """Accepted and not durable yet."""
    replicas: tuple[int, ...]
    """What each knows: numbers in the search's table of that."""
    calls: tuple[Calling, ...]
    """Those under way."""
    wire: tuple[Writing, ...]
    """Sorted: the network has no order."""
    replies: tuple[Reply, ...]
    begun: tuple[int, ...]
    """How many calls of each request have begun."""
    faults: int
    """How many may still happen."""


class Size(NamedTuple):
    """How much there is of everything."""

    requests: int = 2
    calls: int = 3
    """Of each request: the first and its retries, on any replica."""
    at_once: int = 1
    """Calls of one request under way at the same time, at most."""
    sendings: int = 2
    """Of each call, at most."""
    replicas: int = 2
    faults: int = 2
