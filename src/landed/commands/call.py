"""One execution of a command, under way: what it knows and what is still to be found out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from landed.commands.catch_up import Broken, Reader
from landed.commands.command import Command, Reject
from landed.commands.identity import ServiceIdentity
from landed.commands.moves import Attempt, Saw, after_read
from landed.commands.outcome import Done, How
from landed.commands.policy import Policy
from landed.errors import LandedError, SequenceTakenError
from landed.facts import Note
from landed.ids import EventId
from landed.log import Write
from landed.projections.port import Answered, Projection, View

S = TypeVar("S")
R = TypeVar("R")


class KnownLog:
    """Whether the log behind a loop is known to be the one its projection was folded from.

    Asked once, and again after any trouble: a log is only ever swapped or restored behind a broken
    connection (design 23).
    """

    __slots__ = ("is_known",)

    def __init__(self) -> None:
        self.is_known = False

    async def ask(self, reader: Reader[S], projection: Projection[S]) -> None:
        """Ask, and let the projection forget what it folded from another log.

        A server that cannot tell is taken as it is.

        Raises:
            LandedError: no answer; ask again.
        """
        try:
            info = await reader.info()
        except LandedError as error:
            if after_read(error) is Saw.READ_FAILED:
                raise
        else:
            await projection.meet(log_id=info.log_id, restore_epoch=info.restore_epoch)
        self.is_known = True


class Call(Generic[S, R]):
    """Mutable; belongs to one ``execute`` and is gone with it.

    Most of it is never touched by a call that goes well, so it lies in the class until it is.
    """

    attempts: int = 1
    is_last_look: bool = False
    """Attempts are over, but one of them may have landed: catch up once more and judge."""
    is_deriving: bool = True
    """The next sequence is taken from the views; else the last one is held."""
    is_doubted: bool = False
    """"Not found" at version 0 is to be looked into."""
    was_missing: bool = False
    has_scanned: bool = False

    answers: list[Answered[S] | None]
    """What is known of the request's result, in the order of the targets."""
    landed_at: Mapping[int, int] = MappingProxyType({})
    """Position of a target to the version of our batch, where the log named it."""
    is_landed: bool = False
    """Proven to be in the log, by this call or an earlier one."""

    attempt: Attempt = Attempt((), ())
    """The last one that was numbered."""
    write: Write | None = None
    next_states: tuple[S, ...] = ()
    """The states that the write makes if it lands."""
    unknown: tuple[Attempt, ...] = ()
    """Attempts that may still land, or have: the set ``U`` of rule SW-30."""
    versions: tuple[int, ...] = ()
    """What the log says the write became, in the order of the targets; empty if it does not say."""

    last_sent: Saw | None = None
    obstacle: Saw = Saw.NOT_SENT
    retry_after_s: float = 0.0
    taken: SequenceTakenError | None = None
    rejection: Reject | None = None
    broken: Broken | None = None
    detail: str = ""

    def __init__(
        self,
        command: Command[S, R],
        reader: Reader[S],
        *,
        identity: ServiceIdentity,
        policy: Policy,
        known_log: KnownLog,
        note: Note,
    ) -> None:
        self.command = command
        self.event_id = EventId(command.event_id)
        self.reader = reader
        self.identity = identity
        self.policy = policy
        self.known_log = known_log
        self.note = note
        self.views: tuple[View[S], ...] = ()
        """Of this attempt's catch-up, in the order of the targets."""

    @property
    def projection(self) -> Projection[S]:
        return self.reader.projection

    @property
    def is_in_doubt(self) -> bool:
        """Whether an attempt may still land, or the last word of the log was "in flight"."""
        return bool(self.unknown) or self.last_sent is Saw.IN_FLIGHT

    def done(self, how: How) -> Done[R]:
        """Make the answer from what is known of every target."""
        respond = self.command.respond
        results, versions = [], []
        for key, answered in zip(self.command.targets, self.answers, strict=True):
            assert answered is not None
            results.append(respond(key, answered.state, answered.version))
            versions.append(answered.version)
        return Done(tuple(results), tuple(versions), how, self.attempts)
