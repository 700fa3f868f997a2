"""One step of the product's own write loop, as a function of values.

The steps are coroutines that wait for the log alone. The log handed to them here answers at once,
so each runs to its end when it is started, and what the call remembers is frozen into a value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from landed.client.log import LogInfo
from landed.commands import Accept, Command, NewEvent, Outcome, Policy, ServiceIdentity
from landed.commands import loop as write_loop
from landed.commands import steps as write_steps
from landed.commands.call import Call, KnownLog
from landed.commands.catch_up import Reader
from landed.commands.moves import MOVES, At, End, Saw, Sequence
from landed.errors import AggregateMissingError
from landed.facts import forget
from landed.ids import AggregateKey
from landed.log import Answer, Batch, Details, Event, Landed, Page, Read, Write
from landed.log.read import select
from landed.projections import MemoryProjection, Ours
from landed.projections.port import Advance, Entry
from landed.sim.small.state import EVENT_IDS, KEY, SERVICE, Calling, Known, Landing
from landed.testing.clock import Clock
from landed.wire.codes import error_of
from landed.wire.messages import Operation

T = TypeVar("T")

_POLICY: Final = Policy()
_IDENTITY: Final = ServiceIdentity(SERVICE)
_OURS: Final = Ours(SERVICE, _IDENTITY.own, _POLICY.life_ms)
_STILL: Final = Clock(0)
"""No time passes: a window never ends here. What ends it is explored elsewhere, with time."""
_ADVANCE: Final = MemoryProjection.advance
"""Kept from before any rule is broken: what a replica knows is put back by sound means."""
BEGAN_MS: Final = 1_000
"""Server time of what would be version 0."""
_NO_MATTER: Final = frozenset(
    {"command", "reader", "identity", "policy", "known_log", "note", "event_id"}
    | {"detail", "retry_after_s", "attempts", "taken", "rejection"}
)
"""Attributes of a call that are made anew for each step, or change nothing here: words for people,
pauses, how often it was tried."""
_SET_ANEW: Final = frozenset({"views", "answers", "write", "next_states", "obstacle"})
"""What a catch-up and a decision set before anybody reads it."""
_KEPT: Final[dict[str, Callable[[Any], Any]]] = {
    "answers": tuple,
    "landed_at": lambda versions: tuple(sorted(versions.items())),
}
_USED: Final[dict[str, Callable[[Any], Any]]] = {"answers": list, "landed_at": dict}
"""How attributes that cannot be compared are kept, and made usable again."""
_WAITS: Final = (At.CATCH_UP, At.VERIFY, At.SETTLE)
"""Steps that read the log, each at a moment of its own."""


class _Sums:
    """The domain: the state is the sum of what was added."""

    def initial(self, _key: AggregateKey, /) -> int:
        return 0

    def fold(self, state: int, event: Event, _key: AggregateKey, /) -> int:
        return state + event.value[0]

    def fingerprint_of(self, event: Event, _key: AggregateKey, /) -> bytes:
        return event.value


class _PresentLog:
    """A log that answers at once with what is visible now. Implements what steps need of ``Log``."""

    def __init__(self, batches: list[Batch], answer: Answer | None) -> None:
        self._batches = batches
        self._answer = answer

    async def write(self, _write: Write, *, timeout_s: float | None = None) -> Landed:
        assert timeout_s is not None
        assert self._answer is not None
        if isinstance(self._answer, Landed):
            return self._answer
        raise error_of(Operation.WRITE, self._answer)

    async def read(self, read: Read, *, timeout_s: float | None = None) -> Page:
        assert timeout_s is not None
        if not self._batches:
            raise AggregateMissingError("never written")
        beginning = self._batches[read.filters.from_version - 1 :]
        selected = [select(read.filters, batch) for batch in beginning]
        return Page(tuple(batch for batch in selected if batch is not None), None)

    async def details(self, _key: AggregateKey, *, timeout_s: float | None = None) -> Details:
        assert timeout_s is not None
        if not self._batches:
            raise AggregateMissingError("never written")
        head = self._batches[-1]
        return Details(
            1, head.version, head.version, False, False, False, head.server_ms, SERVICE, None
        )

    async def info(self, *, timeout_s: float | None = None) -> LogInfo:
        assert timeout_s is not None
        return LogInfo(UUID(int=1), 0, len(self._batches))


def command(request: int) -> Command[int, int]:
    """Add 1, 2, 4 … to the sum: a sum tells which requests are in it, and how often."""
    value = bytes([1 << (3 * request)])

    def decide(_states: tuple[int, ...]) -> Accept:
        return Accept(((NewEvent(1, value),),))

    def respond(_key: AggregateKey, state: int, _version: int) -> int:
        return state

    return Command(
        event_id=EVENT_IDS[request],
        fingerprint=value,
        targets=(KEY,),
        decide=decide,
        respond=respond,
    )


class Went(NamedTuple):
    """Where a call went, and what its replica knows then."""

    at: At | None
    """Where it waits now; None: it has ended."""
    memory: int
    known: int
    write: int | None = None
    """What it sent."""
    outcome: Outcome[int, int] | None = None
    """How it ended."""


Memory = tuple[tuple[str, object], ...]
"""What a call remembers, by attribute of ``landed.commands.call.Call``."""


class Table(Generic[T]):
    """Values by number: numbers are compared faster than what they stand for."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        """The number of a value, a new one if it is new."""
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> T:
        return self._values[number]


class Steps:
    """The product's steps, each taken once for equal values."""

    def __init__(self, *, sendings: int) -> None:
        """Let a call send so often, or give up earlier at any pause, as if its time were over."""
        self._sendings = sendings
        self._memories: Table[Memory] = Table()
        self.known: Table[Known] = Table()
        self.writes: Table[Write] = Table()
        self.answers: Table[Answer] = Table()
        self._taken: dict[tuple[object, ...], list[Went]] = {}

    def begin(self, request: int, known: int, visible: tuple[Landing, ...]) -> list[Went]:
        """Enter, and make the first catch-up: a call does nothing anybody could see before it."""
        rule = MOVES[At.ENTER, Saw.WELL_FORMED]
        assert isinstance(rule.then, At)
        calling = Calling(request, 0, rule.then, self._memories.number(()))
        return self.go_on(calling, known, visible, None)

    def go_on(
        self,
        calling: Calling,
        known: int,
        visible: tuple[Landing, ...],
        answer: int | None,
    ) -> list[Went]:
        """Go on as the product's table says, up to the next message: every way it may go.

        Args:
            calling: the call.
            known: what its replica knows.
            visible: what the log shows.
            answer: of the log to its write, if it is at SEND.
        """
        asked = (calling.request, calling.at, calling.memory, calling.sent, known, visible, answer)
        ways = self._taken.get(asked)
        if ways is None:
            told = None if answer is None else self.answers[answer]
            ways = self._taken[asked] = self._go_on(calling, self.known[known], visible, told)
        return ways

    def _go_on(
        self,
        calling: Calling,
        known: Known,
        visible: tuple[Landing, ...],
        answer: Answer | None,
    ) -> list[Went]:
        projection = _projection(known)
        call = _call(calling.request, projection, batches_of(visible), answer)
        for name, value in self._memories[calling.memory]:
            setattr(call, name, _USED[name](value) if name in _USED else value)
        at = calling.at
        while True:
            saw = _now(write_steps.STEPS[at](call))
            rule = MOVES[at, saw]
            if rule.sequence is not Sequence.KEEP:
                call.is_deriving = rule.sequence is Sequence.DERIVE
            then = rule.then
            after = self.known.number(_known(projection, len(known.answered)))
            if then is At.BACK_OFF:
                assert rule.back_to is not None
                assert rule.otherwise is not None
                call.obstacle = saw
                ways = [_ended(call, rule.otherwise, at, after)]
                if calling.sent < self._sendings or rule.back_to is not At.CATCH_UP:
                    ways.append(Went(rule.back_to, self._frozen(call, rule.back_to), after))
                return ways
            if isinstance(then, End):
                return [_ended(call, then, at, after)]
            if then is At.SEND:
                assert call.write is not None
                write = self.writes.number(call.write)
                return [Went(then, self._frozen(call, then), after, write)]
            if then in _WAITS or (then is At.JUDGE and call.unknown):
                return [Went(then, self._frozen(call, then), after)]
            at = then

    def _frozen(self, call: Call[int, int], at: At) -> int:
        unread = _NO_MATTER | (_SET_ANEW if at is At.CATCH_UP else frozenset())
        return self._memories.number(
            tuple(
                (name, _KEPT[name](value) if name in _KEPT else value)
                for name, value in sorted(vars(call).items())
                if name not in unread
            )
        )


def batches_of(visible: tuple[Landing, ...]) -> list[Batch]:
    """The log as it is read."""
    return [
        Batch(version, SERVICE, None, BEGAN_MS + version, (_event(landing, version),))
        for version, landing in enumerate(visible, start=1)
    ]


def _event(landing: Landing, version: int) -> Event:
    (new,) = command(landing.request).decide((0,)).events[0]  # type: ignore[union-attr]
    return Event(
        landing.client_seq, version, EVENT_IDS[landing.request], 0, new.type_major, 0, new.value
    )


def _now(coroutine: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
    """Run what never waits."""
    assert isinstance(coroutine, Coroutine)
    try:
        coroutine.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    raise AssertionError("a step waited for something else than the log")


def _projection(known: Known) -> MemoryProjection[int]:
    projection: MemoryProjection[int] = MemoryProjection(clock=_STILL)
    if known.version:
        entries = tuple(
            Entry(EVENT_IDS[request], answered, _POLICY.life_ms)
            for request, answered in enumerate(known.answered)
            if answered is not None
        )
        moved = Advance(
            KEY, 0, known.state, known.version, known.client_seq, known.newest_ms, entries
        )
        _now(_ADVANCE(projection, moved))
    return projection


def _known(projection: MemoryProjection[int], requests: int) -> Known:
    views = [
        _now(projection.load((KEY,), EVENT_IDS[request], _Sums()))[0] for request in range(requests)
    ]
    view = views[0]
    answered = tuple(view.answered for view in views)
    return Known(view.state, view.version, view.client_seq, view.newest_ms, answered)


def _call(
    request: int,
    projection: MemoryProjection[int],
    batches: list[Batch],
    answer: Answer | None,
) -> Call[int, int]:
    log: Any = _PresentLog(batches, answer)
    reader = Reader(log, projection, _Sums(), _OURS, lambda: 0.0, 1e9, _POLICY.attempt_timeout_s)
    known_log = KnownLog()
    known_log.is_known = True
    return Call(
        command(request),
        reader,
        identity=_IDENTITY,
        policy=_POLICY,
        known_log=known_log,
        note=forget,
    )


def _ended(call: Call[int, int], end: End, at: At, known: int) -> Went:
    outcome: Outcome[int, int] = write_loop._end(call, end, at)
    return Went(None, 0, known, outcome=outcome)
