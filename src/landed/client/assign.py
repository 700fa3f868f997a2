"""Who is sent over which link: one synchronous pass over plain data. Decide here, act elsewhere.

The pass looks at a node's waiters, in order of arrival, and at its links, and says what to do now:
which request goes over which link, which idle links to close, how many dials to begin, whether to
refuse the rest. Requests are written in the same turn in which they are assigned, so there is no
state "assigned but not sent" that a cancellation could get between.

Invariants, explored in tests/unit/client/test_assign.py:

1. A link carries one kind, unless all slots are taken; what is ALONE shares with nobody.
2. A link has at most ``depth`` requests unanswered, and takes no further one while at least
   ``bytes_max`` of them are.
3. Links and dials together never exceed ``cap``; dials never exceed ``dials_max``.
4. Nothing is sent over a link that is to be closed, is not open, or has no room.
5. Of one kind, nobody is sent before somebody who came earlier. Nobody at all is sent after
   somebody for whom there is neither a link nor a dial, so nobody starves.
6. Of idle links the one used last is taken.
7. With the breaker open no dial begins; on trial one is under way at most.
8. Who is left waiting waits for something: a link that is busy or on its way out, or a dial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from landed.client.exchange import Kind


class BreakerState(Enum):
    """Whether a node may be dialled."""

    CLOSED = "closed"
    """As usual."""
    OPEN = "open"
    """It failed a moment ago: not now."""
    TRIAL = "trial"
    """Time to try again, with one dial."""


class Waiter(Protocol):
    """A request as the pass sees it."""

    kind: Kind
    size: int
    """Bytes of its frame."""


class Carrier(Protocol):
    """A link as the pass sees it."""

    is_open: bool
    """It may be given requests; not while it is on its way out."""
    is_writable: bool
    """The transport takes what is written; if not, the link has no room."""
    kind: Kind | None
    """What it carries now; None if idle."""
    unanswered: int
    unanswered_bytes: int
    idle_since: float
    ends_at: float
    """When it is too old to be given anything more; infinity for never."""


class Terms(NamedTuple):
    """The bounds that the pass keeps."""

    cap: int
    dials_max: int
    depth: int
    bytes_max: int
    idle_s: float
    """An idle link older than this is closed: the node may be about to close it, too."""


W = TypeVar("W", bound=Waiter)
C = TypeVar("C", bound=Carrier)


class Plan(NamedTuple, Generic[W, C]):
    """What to do now."""

    sends: list[tuple[W, C]]
    """In the order of arrival."""
    closes: list[C]
    """Idle too long, or too old. They hold their slots until they are gone."""
    dials: int
    """How many to begin."""
    covered: int
    """The first so many of those left waiting have a dial under way for them."""
    refuses_rest: bool
    """Nothing will come for those left beyond ``covered``: no dial is allowed, no link is left."""


def is_stale(link: Carrier, now: float, idle_s: float) -> bool:
    """Say whether an idle link must not be used any more."""
    return link.unanswered == 0 and (now >= link.idle_since + idle_s or now >= link.ends_at)


def assign(
    waiting: Iterable[W],
    links: Sequence[C],
    *,
    dialling: int,
    breaker: BreakerState,
    now: float,
    terms: Terms,
) -> Plan[W, C]:
    """Decide who is sent over which link.

    Args:
        waiting: in order of arrival.
        links: every link of the node that holds a slot, on its way out or not.
        dialling: dials under way; each holds a slot.
        breaker: whether the node may be dialled.
        now: loop time.
        terms: the bounds to keep.

    Source: pool rules CP-11, CP-17 to CP-23; design decision 7.
    """
    closes = [link for link in links if link.is_open and is_stale(link, now, terms.idle_s)]
    seats = [
        _Seat(link)
        for link in links
        if link.is_open and now < link.ends_at and link not in closes  # a busy old one drains
    ]
    dials = _Dials(dialling, _dials_left(len(links), dialling, breaker, terms), terms.depth)
    sends: list[tuple[W, C]] = []
    is_blocked = False
    for waiter in waiting:
        kind = waiter.kind
        # Somebody of its kind came earlier and waits for a dial.
        is_held = bool(dials.seats) and kind in dials.seats
        seat = None if is_held else _own_kind(kind, seats, terms) or _last_used(seats)
        if seat is None:
            if dials.cover(kind):
                continue
            seat = None if is_held else _any_kind(kind, seats, terms)
        if seat is None:
            is_blocked = True
            break
        seat.give(waiter)
        sends.append((waiter, seat.link))
    refuses_rest = is_blocked and not seats and breaker is not BreakerState.CLOSED
    return Plan(sends, closes, dials.begun, dials.covered, refuses_rest)


class _Seat(Generic[C]):
    """A link that may be given something, and what the plan has given it already."""

    __slots__ = ("bytes", "count", "kind", "link")

    def __init__(self, link: C) -> None:
        self.link = link
        self.kind = link.kind
        self.count = link.unanswered
        self.bytes = link.unanswered_bytes

    def has_room(self, terms: Terms) -> bool:
        return (
            self.count < terms.depth
            and self.bytes < terms.bytes_max
            and self.kind is not Kind.ALONE
            and self.link.is_writable
        )

    def give(self, waiter: Waiter) -> None:
        # A mixed link counts as what it was given last: kinds part again as soon as they can.
        self.kind = waiter.kind
        self.count += 1
        self.bytes += waiter.size


class _Dials:
    """Dials under way and begun, and whom each of them is for."""

    __slots__ = ("_depth", "_free", "_left", "begun", "covered", "seats")

    def __init__(self, under_way: int, left: int, depth: int) -> None:
        self.begun = 0
        self.covered = 0
        self.seats: dict[Kind, int] = {}
        """Kinds that a dial is for, and how many more of each it will take."""
        self._free = under_way
        self._left = left
        self._depth = depth

    def cover(self, kind: Kind) -> bool:
        """Let a dial be for a waiter of this kind too, if there is one or one may begin."""
        seats = self.seats.get(kind, 0)
        if not seats:
            if self._free:
                self._free -= 1
            elif self._left:
                self._left -= 1
                self.begun += 1
            else:
                return False
            seats = 1 if kind is Kind.ALONE else self._depth
        self.seats[kind] = seats - 1
        self.covered += 1
        return True


def _dials_left(links: int, dialling: int, breaker: BreakerState, terms: Terms) -> int:
    if breaker is BreakerState.OPEN:
        return 0
    dials_max = 1 if breaker is BreakerState.TRIAL else terms.dials_max
    return max(0, min(terms.cap - links - dialling, dials_max - dialling))


def _own_kind(kind: Kind, seats: list[_Seat[C]], terms: Terms) -> _Seat[C] | None:
    """The fullest link of this kind that has room: what is full is written in one go."""
    best = None
    for seat in seats:
        if (
            seat.kind is kind
            and seat.count
            and seat.has_room(terms)
            and (best is None or seat.count > best.count)
        ):
            best = seat
    return best


def _last_used(seats: list[_Seat[C]]) -> _Seat[C] | None:
    """The idle link used last; the others may grow old enough to be closed."""
    best = None
    for seat in seats:
        if (
            not seat.count
            and seat.link.is_writable
            and (best is None or seat.link.idle_since > best.link.idle_since)
        ):
            best = seat
    return best


def _any_kind(kind: Kind, seats: list[_Seat[C]], terms: Terms) -> _Seat[C] | None:
    """No slot is left: the emptiest link that has room, whatever it carries."""
    best = None
    if kind is Kind.ALONE:
        return best
    for seat in seats:
        if seat.has_room(terms) and (best is None or seat.count < best.count):
            best = seat
    return best
