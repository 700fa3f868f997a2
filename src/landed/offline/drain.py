"""The one loop that empties a queue: in order, without a guard, holding every number it has.

Nothing here decides about numbers: taken.py does, and store.py remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from landed.client.log import Log
from landed.errors import (
    BusyError,
    ConfigurationError,
    DrainFaultError,
    LandedError,
    RefusedError,
    RequestTooLargeError,
    SequenceRegressedError,
    SequenceTakenError,
)
from landed.facts import Note
from landed.log import ANY, Write
from landed.offline.answers import Next, after_write
from landed.offline.entry import Blocked, Run, Settled
from landed.offline.recovery import Recovered, Repair, plan_repair
from landed.offline.store import Store
from landed.offline.taken import Absurd, Regressed, judge_taken, owners_of

T = TypeVar("T")


class InThread(Protocol):
    """Run a function on the one thread that touches the file."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    """How patiently a queue is drained; seconds. There is no limit on tries (rule SW-105)."""

    attempt_timeout_s: float = 30.0
    backoff_first_s: float = 0.5
    """Upper bound of the first pause; it doubles. The pause is drawn between half of it and it."""
    backoff_max_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.backoff_first_s <= self.backoff_max_s or not self.attempt_timeout_s > 0:
            raise ConfigurationError(
                "attempt_timeout_s and backoff_first_s are above 0, backoff_max_s not below the latter"
            )

    def pause_s(self, failures: int, rng: Random) -> float:
        """The pause after so many failures in a row, the first being 1."""
        most = min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 30))
        return most * (0.5 + 0.5 * rng.random())


class Synced(NamedTuple):
    """How far a sync came."""

    landed: int
    """Events that the log was found to hold, this time."""
    left: int
    """Events still queued, blocked ones included."""
    blocked: tuple[Blocked, ...]
    is_in_time: bool
    """False: the time was up before everything sendable was sent."""
    last_trouble: str | None
    """Why the last pause was made; None if there was none."""


class Drain:
    """Sends what a store has to send over a log. One at a time for a store: its face sees to that."""

    def __init__(
        self,
        store: Store,
        log: Log,
        *,
        in_thread: InThread,
        policy: DrainPolicy,
        rng: Random,
        note: Note,
        connected: asyncio.Event,
    ) -> None:
        self._store = store
        self._log = log
        self._do = in_thread
        self._policy = policy
        self._rng = rng
        self._note = note
        self._connected = connected
        self._failures = 0
        self._singly: dict[int, int] = {}
        """Aggregates whose events go one by one up to a number, to find the one at fault."""
        self.landed = 0
        self.trouble: str | None = None

    async def run(self) -> None:
        """Send until nothing is left that may be sent.

        Raises:
            SequenceRegressedError: the store was restored or copied; see ``recover``.
            DrainFaultError: a bug.
            PoolClosedError: the log was closed.
        """
        settled: Settled | None = None
        after = 0
        while True:
            run = await self._take(settled, after)
            if run is None:
                return
            after = run.aggregate
            settled = await self._send(run)

    async def _take(self, settled: Settled | None, after: int) -> Run | None:
        store, most = self._store, self._store.limits.run_events_max
        # While any aggregate is sent event by event, all are: simple, rare, and soon over.
        events_max = 1 if self._singly else most
        return await self._do(lambda: store.take(settled, after=after, events_max=events_max))

    async def _send(self, run: Run) -> Settled | None:
        write = Write.to(
            run.key,
            [entry.event() for entry in run.entries],
            client_id=self._store.client_id,
            expected_version=ANY,
            allow_create=True,
            enforce_sequence=True,
        )
        try:
            await self._log.write(write, timeout_s=self._policy.attempt_timeout_s)
        except LandedError as error:
            return await self._after(run, error)
        return self._is_in(run, run.last, "fresh")

    def _is_in(self, run: Run, upto: int, how: str) -> Settled:
        count = sum(entry.client_seq <= upto for entry in run.entries)
        self._failures = 0
        self.landed += count
        if upto >= self._singly.get(run.aggregate, upto + 1):
            del self._singly[run.aggregate]
        fields = {"key": str(run.key), "first": run.first, "last": upto, "events": count}
        self._note("offline.landed", {**fields, "how": how})
        return Settled(run, upto)

    async def _after(self, run: Run, error: LandedError) -> Settled | None:
        match after_write(error):
            case Next.JUDGE:
                assert isinstance(error, SequenceTakenError)
                return await self._judge(run, error)
            case Next.HOLD:
                await self._hold(error)
            case Next.BLOCK:
                await self._refuse(run, error)
            case Next.FAULT:
                raise DrainFaultError(
                    f"a write without a guard was answered: {error}; nothing was marked"
                ) from error
            case Next.RAISE:
                raise error
        return None

    # --- taken --------------------------------------------------------------------------------

    async def _judge(self, run: Run, error: SequenceTakenError) -> Settled | None:
        store = self._store
        highest = error.highest_seq
        if highest is None:
            if len(run.entries) > 1:  # how far it got is not said: each is asked for itself
                await self._one_by_one(run)
                return None
            highest = run.first
        try:
            owners = await owners_of(
                self._log, run.key, client_id=store.client_id, first=run.first, last=run.last
            )
        except LandedError as failed:
            await self._hold(failed)
            return None
        verdict = judge_taken(run, highest, owners)
        match verdict:
            case Settled():
                return self._is_in(run, verdict.upto, "taken")
            case Regressed():
                await self._do(
                    lambda: store.regress(run, highest_seq=highest, detail=verdict.detail)
                )
                regressed = SequenceRegressedError(
                    key=run.key,
                    highest_seq=highest,
                    attempted_seq=run.attempted_seq,
                    detail=verdict.detail,
                )
                self._note("offline.regressed", {"key": str(run.key), "reason": str(regressed)})
                raise regressed from error
            case Absurd():
                raise DrainFaultError(
                    f"number {run.first} was called taken, and {highest} the highest one seen"
                ) from error

    # --- refused ------------------------------------------------------------------------------

    async def _refuse(self, run: Run, error: LandedError) -> None:
        if len(run.entries) > 1:  # whose fault it is comes out one by one
            await self._one_by_one(run)
            return
        code = error.code if isinstance(error, RefusedError) else 0
        reason = "too large" if isinstance(error, RequestTooLargeError) else str(error)
        await self._do(lambda: self._store.block(run, code=code, reason=reason))
        self._singly.pop(run.aggregate, None)
        fields = {"key": str(run.key), "client_seq": run.first, "code": code, "reason": reason}
        self._note("offline.blocked", fields)

    async def _one_by_one(self, run: Run) -> None:
        self._singly[run.aggregate] = run.last
        await self._do(lambda: self._store.refused(run))

    # --- hold ---------------------------------------------------------------------------------

    async def _hold(self, error: LandedError) -> None:
        """Pause, but not beyond the news that there is a network again."""
        self._failures += 1
        self.trouble = str(error)
        pause_s = self._policy.pause_s(self._failures, self._rng)
        if isinstance(error, BusyError):
            pause_s = max(pause_s, min(error.retry_after_s or 0.0, self._policy.backoff_max_s))
        self._note("offline.held", {"reason": self.trouble, "pause_s": round(pause_s, 3)})
        try:
            async with asyncio.timeout(pause_s):
                await self._connected.wait()
        except TimeoutError:
            return
        self._connected.clear()
        self._failures = 0

    # --- recovery -----------------------------------------------------------------------------

    async def recover(self) -> Recovered:
        """Read back what the log holds under this client id, and put the store right (SW-108).

        Raises:
            LandedError: a read failed; nothing was changed.
        """
        store = self._store
        fault = await self._do(store.fault)
        if fault is None:
            return Recovered((), (), ())
        repairs: list[Repair] = []
        for aggregate, key in await self._do(store.aggregates):
            pending = await self._do(partial(store.pending, key))
            entries = tuple([entry for _, entry in pending])
            owners = await owners_of(
                self._log, key, client_id=store.client_id, first=entries[0].client_seq
            )
            reported = fault.highest_seq if key == fault.key else 0
            repairs.append(plan_repair(aggregate, key, entries, owners=owners, reported=reported))
        recovered = await self._do(lambda: store.repair(repairs))
        for old, new in recovered.renumbered:
            self._note("offline.renumbered", {"old": old, "new": new})
        return recovered
