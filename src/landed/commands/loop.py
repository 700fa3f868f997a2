"""The write loop, once, for one aggregate or many. Which move follows what is in moves.py.

The loop itself only goes from step to step as the table says, pauses in between, keeps to the
deadline, and puts the end into an outcome.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final, Generic, TypeVar

from landed.client.log import Log, for_decisions
from landed.commands.call import Call, KnownLog
from landed.commands.catch_up import Broken, Reader, catch_up
from landed.commands.command import Command
from landed.commands.identity import ServiceIdentity
from landed.commands.moves import MOVES, At, End, Saw, Sequence, after_read, when_giving_up
from landed.commands.outcome import (
    Applied,
    Conflicted,
    Fault,
    FaultKind,
    How,
    KeyReused,
    Outcome,
    Rejected,
    Seen,
    Unavailable,
    Unresolved,
)
from landed.commands.policy import Policy
from landed.commands.steps import STEPS
from landed.errors import LandedError
from landed.facts import Note, forget
from landed.ids import AggregateKey
from landed.projections import MemoryProjection, Ours
from landed.projections.port import Domain, Projection

S = TypeVar("S")
R = TypeVar("R")

_KEEP: Final = Sequence.KEEP
_ENTER: Final = At.ENTER
_RECORD: Final = At.RECORD
_BACK_OFF: Final = At.BACK_OFF
_FRESH: Final = How.FRESH
# Named here because looking a member up in its enumeration costs as much as a step.


class SafeLoop(Generic[S]):
    """Execute commands so that each lands at most once, and each retry gets the first answer.

    One for a service and process; calls may run at the same time. Replicas share nothing but the
    log: any of them recognises a request that any other one wrote.

    ``projection`` is one in this process's memory unless another one is given. ``rng`` draws the
    pauses; tests hand one in. ``note`` takes facts.
    """

    def __init__(
        self,
        log: Log,
        *,
        identity: ServiceIdentity,
        domain: Domain[S],
        projection: Projection[S] | None = None,
        policy: Policy | None = None,
        rng: random.Random | None = None,
        note: Note = forget,
    ) -> None:
        self.identity = identity
        self.policy = policy or Policy()
        self._log = for_decisions(log)
        self._projection: Projection[S] = MemoryProjection() if projection is None else projection
        self._domain = domain
        self._rng = rng or random.Random()  # noqa: S311  # pauses are no secrets
        self._note = note
        self._known_log = KnownLog()
        self._ours = Ours(identity.client_id, identity.own, self.policy.life_ms)

    async def execute(self, command: Command[S, R], /) -> Outcome[R, S]:
        """Carry a command to its end.

        Safe to call again with the same command, here or on another replica, at any time within
        the window: also after it was cancelled, and while another call with it is running.

        Returns:
            Exactly one outcome. Each says whether this call changed the log, or that nobody knows.

        Raises:
            asyncio.CancelledError: passed on at once; the write may have landed. Shield the call
                from a client's disconnect if the answer is to be recorded (rule SW-38).
            Exception: what ``decide``, ``respond`` or the domain raise.

        Source: rules SW-26 to SW-39; mission 1, "The write loop".
        """
        call = Call(
            command,
            self._reader(),
            identity=self.identity,
            policy=self.policy,
            known_log=self._known_log,
            note=self._note,
        )
        at = _ENTER
        step = STEPS[at]
        while True:
            saw = await step(call)
            rule = MOVES[at, saw]
            if rule.sequence is not _KEEP:
                call.is_deriving = rule.sequence is Sequence.DERIVE
            then = rule.then
            if then is _BACK_OFF:
                assert rule.back_to is not None
                assert rule.otherwise is not None
                call.obstacle = saw
                then = rule.back_to if await self._back_off(call, rule.back_to) else rule.otherwise
            if isinstance(then, End):
                outcome = _end(call, then, at)
                self._note(
                    "loop.ended", {"event_id": call.event_id, "at": at, "saw": saw, "end": outcome}
                )
                return outcome
            at = then
            step = STEPS[at]

    async def look(
        self, key: AggregateKey, *, at_least: int | None = None
    ) -> Seen[S] | Unavailable | Fault:
        """Read one aggregate's state, caught up with the log.

        Args:
            key: the aggregate.
            at_least: a version that is recent enough; if the projection is there already, the log
                is not read at all. The version seen may still be lower if the log has no more.

        Returns:
            What was seen (version 0: never written), or why it could not be.
        """
        reader = self._reader()
        try:
            (view,) = await self._projection.load((key,), None, self._domain)
            if at_least is not None and view.version >= at_least:
                return Seen(view.state, view.version)
            if not self._known_log.is_known:
                await self._known_log.ask(reader, self._projection)
                (view,) = await self._projection.load((key,), None, self._domain)
            # "Not found" is looked into: a deleted aggregate must not be shown as an empty one.
            caught_up = await catch_up(reader, view, None, is_doubted=True)
        except LandedError as error:
            self._known_log.is_known = False
            if after_read(error) is Saw.READ_FAILED:
                return Unavailable(str(error))
            return Fault(FaultKind.REFUSED, Applied.NOT_APPLIED, str(error))
        if isinstance(caught_up, Broken):
            return Fault(caught_up.kind, Applied.NOT_APPLIED, caught_up.detail, caught_up.code)
        return Seen(caught_up.state, caught_up.version)

    def _reader(self) -> Reader[S]:
        now = asyncio.get_running_loop().time
        return Reader(
            self._log,
            self._projection,
            self._domain,
            self._ours,
            now,
            now() + self.policy.deadline_s,
            self.policy.attempt_timeout_s,
        )

    async def _back_off(self, call: Call[S, R], back_to: At) -> bool:
        """Pause, and say whether the call may go on (rules SW-33, SW-39).

        Holds nothing while it waits: no connection, no lock, no transaction.
        """
        policy, reader = self.policy, call.reader
        left_s = reader.deadline_at - reader.now()
        is_over = call.attempts >= policy.attempts_max
        is_worth_a_look = bool(call.unknown) and back_to is At.CATCH_UP and not call.is_last_look
        if left_s <= 0 or (is_over and not is_worth_a_look):
            return False
        ceiling_s = min(policy.backoff_max_s, policy.backoff_first_s * 2 ** (call.attempts - 1))
        pause_s = max(self._rng.uniform(0, ceiling_s), call.retry_after_s)
        # Never past the deadline: the last look is worth more than the rest of a pause.
        pause_s = min(pause_s, left_s / 2)
        self._note(
            "loop.backed_off",
            {"event_id": call.event_id, "saw": call.obstacle, "pause_s": pause_s},
        )
        call.retry_after_s = 0.0
        await asyncio.sleep(pause_s)
        if is_over:
            call.is_last_look = True
        else:
            call.attempts += 1
        return True


def _end(call: Call[S, R], end: End, at: At) -> Outcome[R, S]:
    """Put the end of a call into an outcome."""
    attempts = call.attempts
    match end:
        case End.DONE:
            if at is _RECORD:
                return call.done(_FRESH)
            is_exact = all(answered is None or answered.is_exact for answered in call.answers)
            return call.done(How.ORIGINAL if is_exact else How.REBUILT)
        case End.GIVE_UP:
            return _end(call, when_giving_up(call.obstacle, is_in_doubt=call.is_in_doubt), at)
        case End.REJECTED:
            assert call.rejection is not None
            return Rejected(call.rejection, tuple([view.state for view in call.views]), attempts)
        case End.KEY_REUSED:
            return KeyReused(attempts)
        case End.UNRESOLVED:
            return Unresolved(Applied.UNKNOWN, call.detail, attempts)
        case End.UNRESOLVED_APPLIED:
            return Unresolved(Applied.APPLIED, call.detail, attempts)
        case End.UNAVAILABLE:
            return Unavailable(call.detail, attempts)
        case End.CONFLICTED:
            return Conflicted(attempts)
        case End.FAULT:
            broken = call.broken
            assert broken is not None
            return Fault(broken.kind, _applied(call), broken.detail, broken.code, attempts)


def _applied(call: Call[S, R]) -> Applied:
    if call.is_landed:
        return Applied.APPLIED
    return Applied.UNKNOWN if call.unknown else Applied.NOT_APPLIED
