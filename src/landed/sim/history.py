"""What happened in a world, in order: the only thing that invariants look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from landed.accounts.decide import AccountAnswer, command_of
from landed.accounts.domain import Transfer, account_key
from landed.commands import Command, Done, Outcome
from landed.ids import AggregateKey, EventId
from landed.log import Batch, Delete, FeedEntry, Trim, Write
from landed.sim.durable import Act
from landed.sim.filed import Filed
from landed.sim.subject import Subject, Wish


class Entry(NamedTuple):
    """One line of the timeline."""

    at: float
    """Virtual seconds."""
    host: str
    what: str
    """A dotted word, as of facts."""
    fields: Mapping[str, object]


@dataclass(slots=True)
class Request:
    """One intent of one caller. Its retries are calls with the same event id."""

    number: int
    event_id: EventId
    order: Any
    """An ``Order`` of the demo's accounts, or the ``Wish`` of a user's own subject."""
    began_at: float = 0.0
    """When its first call began; the promised window is counted from here, which is the earliest
    moment at which it can have landed."""
    _command: Command[Any, Any] | None = field(default=None, repr=False, compare=False)

    def command(self) -> Command[Any, Any]:
        """What carries it out: a value, and the same one for every call."""
        if isinstance(self.order, Wish):
            return self.order.command(self.event_id)
        if self._command is None:
            self._command = command_of(self.order, self.event_id)
        return self._command

    @property
    def targets(self) -> tuple[AggregateKey, ...]:
        """The accounts it changes, in the order of its command's targets."""
        if isinstance(self.order, Wish):
            return self.order.targets
        if isinstance(self.order, Transfer):
            return (account_key(self.order.source), account_key(self.order.target))
        return (account_key(self.order.account),)


@dataclass(slots=True)
class Call:
    """One call of one request on one replica."""

    number: int
    request: Request
    replica: str
    began_at: float
    ended_at: float | None = None
    outcome: Outcome[AccountAnswer, int] | None = None
    """What the loop answered, whether the caller heard it or not. None: cancelled or cut off."""
    writes: int = 0
    """Writes it handed to the log."""
    is_resent: bool = False
    """A write of it was sent again behind its back, and it knows the second answer only."""
    deadline_at: float = math.inf
    """Nothing may be asked of the log on its behalf that could last longer (SW-33)."""
    is_last: bool = False
    """Made at the end, when nothing goes wrong and nothing is late any more."""

    @property
    def done(self) -> Done[AccountAnswer] | None:
        """The success it was answered, if it was one."""
        return self.outcome if isinstance(self.outcome, Done) else None


class Look(NamedTuple):
    """One plain read of one account through a replica."""

    key: AggregateKey
    replica: str
    began_at: float
    ended_at: float
    balance_cents: int
    version: int


class Shipped(NamedTuple):
    """An event that the stranger knows to be in the log."""

    key: AggregateKey
    client_seq: int
    event_id: EventId
    cents: int


@dataclass(slots=True)
class Tended:
    """One act of a gardener."""

    request: Write | Trim | Delete
    is_told: bool = False
    """It heard that it was done."""


@dataclass(slots=True)
class Truth:
    """What the log holds at the end."""

    batches: dict[AggregateKey, tuple[Batch, ...]] = field(default_factory=dict)
    feed: tuple[FeedEntry, ...] = ()
    filed: Mapping[bytes, Sequence[Filed]] | None = None
    """The same batches as the rows of the file, by packed key; None if the log was in memory."""
    acts: Sequence[Act] = ()
    """Every change of beds that was committed, in its order, whether it can be read or not."""
    _known: dict[tuple[AggregateKey, UUID], tuple[tuple[Batch, ...], dict[int, list[Batch]]]] = (
        field(default_factory=dict)
    )

    def fleets(self, key: AggregateKey, client_id: UUID) -> dict[int, list[Batch]]:
        """The batches of one client on one aggregate, by the event ids they carry."""
        batches = self.batches.get(key, ())
        known = self._known.get((key, client_id))
        if known is not None and known[0] is batches:
            return known[1]
        by_id: dict[int, list[Batch]] = {}
        for batch in batches:
            if batch.client_id == client_id:
                for number in {event.event_id.int for event in batch.events if event.event_id}:
                    by_id.setdefault(number, []).append(batch)
        self._known[key, client_id] = batches, by_id
        return by_id


class History:
    """Everything noted in one world."""

    def __init__(
        self,
        *,
        service: UUID,
        window_s: float,
        names: Mapping[AggregateKey, str],
        subject: Subject | None = None,
    ) -> None:
        self.service = service
        """The client id of the fleet."""
        self.window_s = window_s
        self.names = names
        """Short names of the accounts, for people."""
        self.subject = subject
        """What it is about; None: the accounts of the demo."""
        self.entries: list[Entry] = []
        self.requests: list[Request] = []
        self.calls: list[Call] = []
        self._calls_of: dict[int, list[Call]] = {}
        self.looks: list[Look] = []
        self.shipped: list[Shipped] = []
        self.tended: list[Tended] = []
        self.truth = Truth()
        self.broken: list[str] = []
        """What was seen to be wrong at the step at which it went wrong."""
        self.now: Callable[[], float] = float
        """The loop's time; set when the world begins."""

    def note(self, host: str, what: str, /, **fields: object) -> None:
        """Add a line to the timeline."""
        self.entries.append(Entry(self.now(), host, what, fields))

    def noter(self, host: str) -> Callable[[str, Mapping[str, object]], None]:
        """Where the product's own facts of one host go."""

        def note(name: str, fields: Mapping[str, object]) -> None:
            self.entries.append(Entry(self.now(), host, name, fields))

        return note

    def begin(self, request: Request, replica: str, *, is_last: bool) -> Call:
        """Open the record of a call."""
        call = Call(len(self.calls) + 1, request, replica, self.now(), is_last=is_last)
        if not request.began_at:
            request.began_at = self.now()
        self.take(call)
        return call

    def take(self, call: Call) -> None:
        """Add the record of a call."""
        self.calls.append(call)
        self._calls_of.setdefault(call.request.event_id.int, []).append(call)

    def calls_of(self, event_id: EventId) -> list[Call]:
        """Every call made under one event id."""
        return self._calls_of.get(event_id.int, [])

    def landed(self, key: AggregateKey, event_id: EventId) -> list[Batch]:
        """The fleet's batches on an aggregate that carry an event id."""
        return self.truth.fleets(key, self.service).get(event_id.int, [])


def describe(value: Any, names: Mapping[AggregateKey, str]) -> str:
    """Say a field of a timeline in few words."""
    if isinstance(value, AggregateKey):
        return names.get(value, str(value))
    if isinstance(value, tuple):
        return "(" + ", ".join(describe(item, names) for item in value) + ")"
    return f"{value}"
