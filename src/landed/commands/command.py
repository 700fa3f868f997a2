"""``Command``: what a caller wishes, as a value. The loop turns it into writes, and into one answer.

The functions in it must be pure with respect to the log: the loop calls ``decide`` once an attempt,
each time on fresh states, and as often as it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from landed.ids import AggregateKey

S = TypeVar("S")
R = TypeVar("R")


class NewEvent(NamedTuple):
    """An event as a decision proposes it: neither numbered nor stamped.

    The loop gives it the client sequence and the request's event id. Nobody else may: a sequence
    that does not come from the log is how writes get doubled.
    """

    type_major: int
    """What kind of event it is; 1 and up."""
    value: bytes
    type_minor: int = 0
    event_ms: int = 0
    """The writer's time, if it matters to the domain. Never checked, never an order."""
    iv: bytes | None = None


class Accept(NamedTuple):
    """The decision to write: events for every target, in the order of the targets."""

    events: tuple[tuple[NewEvent, ...], ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """The decision not to write. A retry decides afresh; a rejection is never remembered."""

    code: str
    """A fixed word for programs, such as ``insufficient_funds``."""
    detail: str = ""
    """A sentence for people."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """What else the caller should know, such as the balance."""


Decision = Accept | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[S, R]):
    """One intent of one caller, on one aggregate or several, safe to execute again.

    Rules SW-10 to SW-12. See ``Command.on`` for one aggregate.
    """

    event_id: UUID
    """The caller's key: the same for every retry of this intent, another for any other intent."""
    fingerprint: bytes
    """What is wished, as ``landed.commands.fingerprint`` makes it: a key used again with another
    one is refused. The domain must be able to give it back from the events (rule SW-80)."""
    targets: tuple[AggregateKey, ...]
    """One or more aggregates; all of them change, or none. The same one twice is rejected before
    anything is read."""
    decide: Callable[[tuple[S, ...]], Decision]
    """States in the order of the targets to events for each of them, at least one each."""
    respond: Callable[[AggregateKey, S, int], R]
    """The answer for one target, from its state and version after the write."""
    malformed: Reject | None = None
    """What is wrong with the wish itself, whatever the states are; then nothing is read."""

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("a command needs at least one target")
        if not self.event_id.int:
            raise ValueError("the nil UUID is not an event id: it would match every other nil")

    @classmethod
    def on(
        cls,
        key: AggregateKey,
        *,
        event_id: UUID,
        fingerprint: bytes,
        decide: Callable[[S], NewEvent | Iterable[NewEvent] | Reject],
        respond: Callable[[S, int], R],
        malformed: Reject | None = None,
    ) -> Command[S, R]:
        """Make a command on one aggregate.

        ``decide`` takes its state and returns one event, several, or a ``Reject``; ``respond``
        takes the state after the write and the version.
        """

        def decide_one(states: tuple[S, ...]) -> Decision:
            decision = decide(states[0])
            if isinstance(decision, Reject):
                return decision
            if isinstance(decision, NewEvent):
                return Accept(((decision,),))
            return Accept((tuple(decision),))

        def respond_one(_key: AggregateKey, state: S, version: int) -> R:
            return respond(state, version)

        return cls(
            event_id=event_id,
            fingerprint=fingerprint,
            targets=(key,),
            decide=decide_one,
            respond=respond_one,
            malformed=malformed,
        )
