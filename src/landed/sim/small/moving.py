"""What may happen next in a small world: every message, every flush, every fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar, cast

from landed.commands import Applied, Outcome
from landed.commands.moves import At
from landed.ids import AggregateKey, ClientId
from landed.log import NEVER, Head, Landed, Life, Refusal, Unknown, VersionConflict
from landed.log import judge as law
from landed.sim.small.state import (
    NOBODY,
    SERVICE,
    Calling,
    Known,
    Landing,
    Reply,
    Size,
    World,
    Writing,
)
from landed.sim.small.stepping import BEGAN_MS, Steps, Went

T = TypeVar("T")


class Move(NamedTuple):
    """One thing that happens, told in a few words, and the world after it."""

    told: str
    world: World
    call: Calling | None = None
    """A call that ended by it, as it was before."""
    outcome: Outcome[int, int] | None = None
    """How it ended."""
    is_denied: bool = False
    """What its call said is not applied has become durable."""


class _Tail:
    """The accepted tail as the law sees it. Implements ``Tail``."""

    def __init__(self, seqs: list[int], ahead: list[int]) -> None:
        self._seqs = seqs
        self._ahead = ahead

    def head(self, _key: AggregateKey) -> Head:
        version = len(self._seqs) + len(self._ahead)
        if not version:
            return NEVER
        last_ms = BEGAN_MS + version
        return Head(Life.LIVE, 1, version, version, 1, False, False, last_ms, SERVICE, None)

    def mark(self, _key: AggregateKey, _client_id: ClientId) -> int:
        return max(self._seqs, default=0)

    def in_flight(self, _key: AggregateKey, _client_id: ClientId) -> int | None:
        return max(self._ahead, default=None)


class Moves:
    """Everything that may happen in worlds of one size."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._steps = Steps(sendings=size.sendings)
        self._judged: dict[tuple[object, ...], int | None] = {}
        self._nothing = self._steps.known.number(Known(answered=(None,) * size.requests))
        self._unknown = self._steps.answers.number(Unknown("no answer"))

    def beginning(self) -> World:
        """Nothing has happened yet."""
        size = self._size
        replicas = (self._nothing,) * size.replicas
        return World((), (), replicas, (), (), (), (0,) * size.requests, size.faults)

    def of(self, world: World) -> Iterator[Move]:
        """Everything that may happen next."""
        yield from self._calls_begin(world)
        for at, calling in enumerate(world.calls):
            if calling.at is not At.SEND:
                yield from self._stepped(world, at, None, f"goes on ({calling.at.value})")
        for at, writing in enumerate(world.wire):
            if writing not in world.wire[:at]:
                yield self._arrived(world._replace(wire=_without(world.wire, at)), writing)
        for reply in world.replies:
            answer = type(self._steps.answers[reply.answer]).__name__
            yield from self._answered(world, reply.call, reply.answer, f"is answered {answer}")
        if world.ahead:
            yield self._flushed(world)
        if world.faults:
            yield from self._faults(world._replace(faults=world.faults - 1))

    # --- what calls do

    def _calls_begin(self, world: World) -> Iterator[Move]:
        """A call of any request begins, on any replica, also beside another one.

        The requests are alike, so the first of them is the one that begins first.
        """
        size = self._size
        for request, begun in enumerate(world.begun):
            under_way = sum(calling.request == request for calling in world.calls)
            if begun == size.calls or under_way == size.at_once:
                continue
            counted = world._replace(begun=_put(world.begun, request, begun + 1))
            for replica, known in enumerate(world.replicas):
                if known in world.replicas[:replica] and not world.calls:
                    continue  # replicas that know the same and do nothing are alike
                calling = Calling(request, replica, At.CATCH_UP, 0)
                for went in self._steps.begin(request, known, world.visible):
                    told = f"{_name(calling)} begins"
                    yield self._went(counted, calling, None, went, told)
            if not begun:
                return

    def _stepped(self, world: World, at: int, answer: int | None, told: str) -> Iterator[Move]:
        calling = world.calls[at]
        known = world.replicas[calling.replica]
        for went in self._steps.go_on(calling, known, world.visible, answer):
            yield self._went(world, calling, at, went, f"{_name(calling)} {told}")

    def _went(self, world: World, calling: Calling, at: int | None, went: Went, told: str) -> Move:
        replicas = _put(world.replicas, calling.replica, went.known)
        world = world._replace(replicas=replicas)
        if went.at is None:
            told += f", and ends: {went.outcome}"
            if at is not None:
                is_denied = went.outcome is not None and (
                    went.outcome.applied is Applied.NOT_APPLIED
                )
                world = _over(world, at, is_denied=is_denied)
            return Move(told, _sorted(world), calling, went.outcome)
        is_sending = went.write is not None
        then = calling._replace(at=went.at, memory=went.memory, sent=calling.sent + is_sending)
        if at is None:
            at = len(world.calls)
            world = world._replace(calls=(*world.calls, then))
        else:
            world = world._replace(calls=_put(world.calls, at, then))
        if went.write is not None:
            leg = self._steps.writes[went.write].legs[0]
            told += (
                f", and writes sequence {leg.events[0].client_seq} "
                f"expecting version {leg.expected_version}"
            )
            writing = Writing(calling.request, went.write, at, then.sent)
            world = world._replace(wire=(*world.wire, writing))
        return Move(told, _sorted(world))

    def _answered(self, world: World, at: int, answer: int, told: str) -> Iterator[Move]:
        """A call hears one answer; what else comes for that sending reaches nobody."""
        replies = tuple(reply for reply in world.replies if reply.call != at)
        yield from self._stepped(world._replace(replies=replies), at, answer, told)

    # --- what the log does

    def _arrived(self, world: World, writing: Writing) -> Move:
        """The law judges a write against the accepted tail; an admitted one waits for its flush."""
        refusal = self._refusal(writing.write, world.visible, world.ahead)
        told = f"the log takes a write of request {writing.request}"
        if refusal is None:
            world = world._replace(ahead=(*world.ahead, writing))
            return Move(f"{told}: accepted", _sorted(world))
        told += f": {type(self._steps.answers[refusal]).__name__}"
        return Move(told, _sorted(_replied(world, writing, refusal)))

    def _refusal(
        self, write: int, visible: tuple[Landing, ...], ahead: tuple[Writing, ...]
    ) -> int | None:
        """What the judge says to a write; None if it is admitted."""
        asked = (write, visible, ahead)
        if asked not in self._judged:
            seqs = [landing.client_seq for landing in visible]
            tail = _Tail(seqs, [self._seq(writing) for writing in ahead])
            version = len(visible) + len(ahead) + 1
            result = law.judge_write(
                self._steps.writes[write], tail, now_ms=BEGAN_MS + version, seq_jump_max=0
            )
            if isinstance(result[0], law.Step):
                assert result[0].head.version == version, "the judge counts versions"
                self._judged[asked] = None
            else:
                refusal = cast("Refusal", result)
                self._judged[asked] = self._steps.answers.number(refusal)
        return self._judged[asked]

    def _seq(self, writing: Writing) -> int:
        return self._steps.writes[writing.write].legs[0].events[0].client_seq

    def _flushed(self, world: World) -> Move:
        """Durable, therefore visible, therefore answered."""
        writing = world.ahead[0]
        landing = Landing(writing.request, self._seq(writing))
        calls = world.calls
        if writing.call != NOBODY and not writing.is_repeated:
            calls = _put(calls, writing.call, calls[writing.call]._replace(has_landed=True))
        world = world._replace(
            visible=(*world.visible, landing), ahead=world.ahead[1:], calls=calls
        )
        version = len(world.visible)
        told = f"request {writing.request} is durable at version {version}"
        world = _replied(world, writing, self._steps.answers.number(Landed((version,))))
        # A write that nobody waits for and that can never be admitted any more changes nothing.
        wire = tuple(
            left
            for left in world.wire
            if _is_awaited(world, left) or not self._is_dead(left, world)
        )
        is_denied = writing.is_disowned and not writing.is_repeated
        return Move(told, _sorted(world._replace(wire=wire)), is_denied=is_denied)

    def _is_dead(self, writing: Writing, world: World) -> bool:
        refusal = self._refusal(writing.write, world.visible, ())
        return refusal is not None and isinstance(self._steps.answers[refusal], VersionConflict)

    # --- what goes wrong

    def _faults(self, world: World) -> Iterator[Move]:
        for at, calling in enumerate(world.calls):
            if calling.at is At.SEND:
                # Its write is lost on the way, or late, or the answer is: it may still arrive, and
                # a write that is lost is one that has not arrived yet.
                told = "hears no answer in time: FAULT"
                yield from self._answered(world, at, self._unknown, told)
        for at, writing in enumerate(world.wire):
            if writing.is_repeated or writing in world.wire[:at]:
                continue
            twice = writing._replace(is_repeated=True)
            both = (*_without(world.wire, at), twice, twice)
            told = f"a write of request {writing.request} is delivered twice: FAULT"
            yield Move(told, _sorted(world._replace(wire=both)))
        if world.ahead:
            yield self._flush_failed(world)
        for replica, known in enumerate(world.replicas):
            is_busy = any(calling.replica == replica for calling in world.calls)
            if is_busy or known != self._nothing:
                yield self._restarted(world, replica)

    def _flush_failed(self, world: World) -> Move:
        """Nothing of it is in the log; who waits is told that nobody knows."""
        after = world._replace(ahead=())
        for writing in world.ahead:
            after = _replied(after, writing, self._unknown)
        return Move("the flush fails: FAULT", _sorted(after))

    def _restarted(self, world: World, replica: int) -> Move:
        """Its calls are cut off, and it knows nothing; what it sent is still on its way."""
        for at in reversed(range(len(world.calls))):
            if world.calls[at].replica == replica:
                world = _over(world, at, is_denied=False)
        world = world._replace(replicas=_put(world.replicas, replica, self._nothing))
        return Move("a replica is restarted: FAULT", _sorted(world))


def _is_awaited(world: World, writing: Writing) -> bool:
    if writing.call == NOBODY:
        return False
    calling = world.calls[writing.call]
    return calling.at is At.SEND and calling.sent == writing.number


def _replied(world: World, writing: Writing, answer: int) -> World:
    """Send an answer back, if anybody still waits for one."""
    is_answered = any(reply.call == writing.call for reply in world.replies)
    if is_answered or not _is_awaited(world, writing):
        return world
    return world._replace(replies=(*world.replies, Reply(writing.call, answer)))


def _over(world: World, at: int, *, is_denied: bool) -> World:
    """Take a call away that has ended. What it sent may still arrive, and nobody waits for it."""

    def left(writings: tuple[Writing, ...]) -> tuple[Writing, ...]:
        return tuple(
            writing._replace(call=NOBODY, number=0, is_disowned=is_denied)
            if writing.call == at
            else writing._replace(call=writing.call - (writing.call > at))
            for writing in writings
        )

    replies = tuple(
        reply._replace(call=reply.call - (reply.call > at))
        for reply in world.replies
        if reply.call != at
    )
    return world._replace(
        calls=_without(world.calls, at),
        wire=left(world.wire),
        ahead=left(world.ahead),
        replies=replies,
    )


def _sorted(world: World) -> World:
    """The same world in the one order that all its likes have: replicas and calls have no names."""
    calls, replicas = world.calls, world.replicas
    of_replica: list[list[tuple[object, ...]]] = [[] for _ in replicas]
    for calling in calls:
        of_replica[calling.replica].append((calling.request, *calling[2:]))
    order = sorted(
        range(len(replicas)), key=lambda replica: (replicas[replica], sorted(of_replica[replica]))
    )
    place = [order.index(replica) for replica in range(len(replicas))]
    moved = [
        calling
        if place[calling.replica] == calling.replica
        # Positional, as _replace costs more than all the rest of this.
        else Calling(calling.request, place[calling.replica], *calling[2:])
        for calling in calls
    ]
    order_of_calls = sorted(range(len(calls)), key=moved.__getitem__)
    new = [*sorted(range(len(calls)), key=order_of_calls.__getitem__), NOBODY]
    return World(
        world.visible,
        tuple([_renamed(writing, new[writing.call]) for writing in world.ahead]),
        tuple([replicas[replica] for replica in order]),
        tuple([moved[at] for at in order_of_calls]),
        tuple(sorted([_renamed(writing, new[writing.call]) for writing in world.wire])),
        tuple(sorted([Reply(new[reply.call], reply.answer) for reply in world.replies])),
        world.begun,
        world.faults,
    )


def _renamed(writing: Writing, call: int) -> Writing:
    if writing.call == call:
        return writing
    return Writing(writing.request, writing.write, call, *writing[3:])


def _name(calling: Calling) -> str:
    return f"a call of request {calling.request} on replica {calling.replica}"


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _without(values: tuple[T, ...], at: int) -> tuple[T, ...]:
    return values[:at] + values[at + 1 :]
